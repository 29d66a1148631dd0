"""The broker's entities as JSON objects in RabbitMQ's form; one function per entity.

Field names and types are those of a live RabbitMQ. Fields without a meaning here are left out and listed in
docs/compatibility.md.
"""
import base64
import ssl

from gomq_py.auth import certificates
from gomq_py.broker.features.arguments import CLASSIC, QUORUM, STREAM
from gomq_py.broker.features.retry import described as described_retry
from gomq_py.broker.queues.quorum import ready_by_priority
from gomq_py.broker.topology.bindings import escaped
from gomq_py.broker.topology.definitions import jsonable
from gomq_py.content.properties import Properties
from gomq_py.errors import Malformed
from gomq_py.http import curves, statistics
from gomq_py.http.answers import node
from gomq_py.mqtt.model.sessions import NEVER as MQTT_NEVER
from gomq_py.mqtt.wire.constants import VERSION_NAMES as MQTT_VERSIONS

# RabbitMQ's fields about an Erlang process: there is none, but clients expect the object.
NO_PROCESS = {
    "garbage_collection": {
        "fullsweep_after": 0, "max_heap_size": 0, "min_bin_vheap_size": 0, "min_heap_size": 0, "minor_gcs": 0
    },
    "reductions": 0, "reductions_details": {"rate": 0.0},
}
# Errors of a closed socket: gevent's TLS sockets then lack an attribute.
_GONE = (OSError, ValueError, AttributeError)


def vhost(one):
    """Return a vhost as JSON, with the sums of its counters. May switch greenlets."""
    view = curves.view(statistics.VHOST, (one, node()))
    shape = {
        "name": one.name, "protected_from_deletion": False, **one.metadata(), "metadata": one.metadata(),
        "tracing": bool(one.tracing), "cluster_state": {node().name: "running"},
    }
    lengths, octets = len(statistics.LENGTH_NAMES), len(view.group.names) - len(statistics.OCTETS)
    view.put(shape, 0, lengths)
    view.put(shape, octets)
    shape["message_stats"] = view.put({}, lengths, octets)
    return shape


def user(one):
    """Return a user as JSON, with the password's hash, as definitions have it."""
    return {
        "name": one.name, "password_hash": one.password_hash, "hashing_algorithm": one.hashing_algorithm,
        "tags": list(one.tags), "limits": dict(one.limits),
    }


def permission(one):
    return {
        "user": one.user, "vhost": one.vhost, "configure": one.configure, "write": one.write, "read": one.read
    }


def topic_permission(one):
    return {
        "user": one.user, "vhost": one.vhost, "exchange": one.exchange, "write": one.write, "read": one.read
    }


def binding(one):
    """Return a binding as JSON. The destination is a queue or an exchange."""
    return {
        "source": one.source.name, "vhost": one.source.vhost, "destination": one.destination.name,
        "destination_type": one.destination_type, "routing_key": one.routing_key,
        "arguments": jsonable(one.arguments), "properties_key": one.properties_key,
    }


def default_binding(queue):
    """Return a queue's implicit binding to the default exchange, as JSON."""
    return {
        "source": "", "vhost": queue.vhost, "destination": queue.name, "destination_type": "queue",
        "routing_key": queue.name, "arguments": {}, "properties_key": escaped(queue.name),
    }


def exchange(one):
    """Return an exchange as JSON, with its counters."""
    shape = {
        "name": one.name, "vhost": one.vhost, "type": one.type, "durable": bool(one.durable),
        "auto_delete": bool(one.auto_delete),
        "internal": bool(one.internal), "arguments": jsonable(one.arguments), **in_force(one),
        "user_who_performed_action": "",
    }
    if one.state.publish_in or one.state.publish_out:
        shape["message_stats"] = curves.view(statistics.EXCHANGE, one).put({})
    if getattr(one, "delayed_store", None) is not None:
        shape |= set_aside(one.delayed_store.aside)
    return shape


def set_aside(aside):
    """Return the JSON fields about messages set aside because they could not be moved. ``aside`` has their
    number (``count``) and ``reasons``, a mapping of reason to number; None means no messages.
    """
    return {
        "messages_set_aside": aside.count if aside else 0,
        "set_aside_reasons": dict(aside.reasons) if aside else {},
    }


def in_force(one):
    """Return JSON fields with the policies that apply to a queue or exchange, and their merged definition."""
    found = one.in_force
    return {
        "policy": found.policy.name if found.policy else None,
        "operator_policy": found.operator_policy.name if found.operator_policy else None,
        "effective_policy_definition": found.definition,
    }


def queue_kind(one):
    """Return ``classic``, ``quorum`` or ``stream``. The queues of MQTT sessions count as classic."""
    return one.type if one.type in (QUORUM, STREAM) else CLASSIC


def queue_itself(one):
    """Return a queue as JSON with its fixed fields and state, for lists with ``disable_stats``."""
    return {
        "name": one.name, "vhost": one.vhost, "type": queue_kind(one), "durable": bool(one.durable),
        "auto_delete": bool(one.auto_delete),
        "exclusive": one.exclusive_owner is not None, "arguments": jsonable(one.arguments),
        "node": node().name, "state": queue_state(one),
    }


def queue_with_totals(one):
    """Return a queue as JSON with fixed fields, state and message counts, for ``enable_queue_totals``."""
    ready, unacked = one.ready_count, one.unacked_count
    return {
        **queue_itself(one), "messages": ready + unacked, "messages_ready": ready,
        "messages_unacknowledged": unacked,
    }


def queue(one):
    """Return a queue as JSON, with all fields that lists show."""
    shape = {
        **queue_itself(one), **in_force(one), "exclusive_consumer_tag": exclusive_tag(one),
        "single_active_consumer_tag": active_tag(one), **set_aside(one.aside),
    }
    if one.exclusive_owner is not None:
        shape["owner_pid_details"] = owner(one)
    view, store, consumers = curves.view(statistics.QUEUE, one), one.store, one.consumer_count
    ready_bytes = store.ready_bytes if store is not None else 0
    unacked_bytes = store.unacked_bytes if store is not None else 0
    capacity = 1.0 if consumers else 0
    shape |= {
        "consumers": consumers, "message_bytes": ready_bytes + unacked_bytes,
        "message_bytes_ready": ready_bytes, "message_bytes_unacknowledged": unacked_bytes,
        "message_bytes_persistent": ready_bytes + unacked_bytes if one.durable else 0,
        "messages_persistent": one.ready_count + one.unacked_count if one.durable else 0,
        "consumer_utilisation": capacity, "consumer_capacity": capacity, "message_bytes_ram": 0,
        "message_bytes_paged_out": 0, "messages_ram": 0, "messages_ready_ram": 0,
        "messages_unacknowledged_ram": 0, "messages_paged_out": 0, "head_message_timestamp": None,
        "memory": 0, "recoverable_slaves": None, "storage_version": 1, **NO_PROCESS, "slave_nodes": [],
        "synchronised_slave_nodes": [], "messages_delayed": 0,
    }
    if one.limits is not None:
        limit, retries = one.limits.settings.delivery_limit, one.limits.retries
        if limit is not None and limit >= 0:
            shape["delivery_limit"] = limit
        if retries is not None:
            shape["messages_delayed"] = retries.count
    if one.type == QUORUM:
        by_priority = {} if one.closed else {str(key): count for key, count in ready_by_priority(store)}
        shape["messages_by_priority"], shape["messages_active_priorities"] = by_priority, len(by_priority)
        shape["delayed_retry"] = described_retry(None if one.limits is None else one.limits.settings.retry)
        shape["leader"], shape["members"], shape["online"] = node().name, [node().name], [node().name]
    lengths = len(statistics.LENGTH_NAMES)
    view.put(shape, 0, lengths)
    shape["message_stats"] = view.put({}, lengths)
    return shape


def queue_state(one):
    """Return a queue's state: ``running``, ``paused``, or ``stopped`` after a fault of its store."""
    if one.closed:
        return "stopped"
    return "paused" if one.paused else "running"


def consumers_of(one):
    return list(one.ring.consumers) if one.ring is not None else []


def exclusive_tag(one):
    """Return the tag of a queue's exclusive consumer, or None."""
    for consumer in consumers_of(one):
        if consumer.exclusive:
            return consumer.tag
    return None


def active_tag(one):
    """Return the tag of a queue's single active consumer; None if it has none, or if all are active."""
    consumers = consumers_of(one)
    return consumers[0].tag if consumers and one.single_active else None


def owner(one):
    """Return the connection that owns an exclusive queue, as JSON; {} without such a connection."""
    connection = one.exclusive_owner
    if connection is None or not hasattr(connection, "peer"):
        return {}
    host, port = peer_of(connection)
    return {"name": connection.name, "peer_host": host, "peer_port": port}


def consumer(one, connection):
    """Return a consumer as JSON. ``connection`` is the connection of its channel."""
    channel = one.channel
    return {
        "consumer_tag": one.tag, "queue": {"name": one.source.name, "vhost": one.source.vhost},
        "exclusive": bool(one.exclusive),
        "ack_required": not one.no_ack, "prefetch_count": one.prefetch,
        "arguments": jsonable(one.arguments or {}), "active": True,
        "activity_status": "up", "channel_details": channel_details(channel, connection),
        "consumer_timeout": one.holder.timeout_ms() or None,
    }


def channel_details(channel, connection):
    """Return a channel and its connection as JSON, for a field of a consumer or another entity."""
    host, port = peer_of(connection)
    return {
        "name": channel_name(channel, connection), "number": channel.id, "user": connection.user.name,
        "connection_name": connection.name, "peer_host": host, "peer_port": port, "node": node().name,
    }


def channel_name(channel, connection):
    return f"{connection.name} ({channel.id})"


def channel(one, connection):
    """Return a channel as JSON, with all fields that lists show."""
    host, port = peer_of(connection)
    stats = curves.view(statistics.CHANNEL, one).put({})
    return {
        "name": channel_name(one, connection), "number": one.id, "node": node().name,
        "vhost": connection.vhost.name, "user": connection.user.name,
        "user_who_performed_action": connection.user.name, "state": one.flow,
        "consumer_count": len(one.consumers), "confirm": bool(one.confirming),
        "transactional": one.transaction is not None,
        "prefetch_count": one.prefetch_count, "global_prefetch_count": max(one.global_prefetch, 0),
        "messages_unacknowledged": one.unacked.count,
        "messages_unconfirmed": one.published - one.confirmed_count if one.confirming else 0,
        "messages_uncommitted": 0, "acks_uncommitted": 0,
        "pending_raft_commands": 0,
        "connection_details": {"name": connection.name, "peer_host": host, "peer_port": port},
        "message_stats": stats,
        **NO_PROCESS,
    }


def connection(one):
    """Return a connection as JSON, with all fields that lists show."""
    host, port = peer_of(one)
    local_host, local_port = address_of(one.socket.getsockname) if one.socket else ("", 0)
    tls = tls_of(one.socket)
    shape = {
        "name": one.name, "node": node().name, "vhost": one.vhost.name, "user": one.user.name,
        "user_who_performed_action": one.user.name,
        "user_provided_name": one.client_properties.get("connection_name"), "protocol": one.protocol,
        "type": "network", "state": one.flow if one.state == "open" else one.state,
        "channels": len(one.channels), "channel_max": one.limits.channel_max,
        "frame_max": one.limits.frame_max, "timeout": one.limits.heartbeat_s,
        "auth_mechanism": one.mechanism, "client_properties": jsonable(one.client_properties),
        "connected_at": int(one.connected_at * 1000), "host": local_host, "port": local_port,
        "peer_host": host, "peer_port": port,
        "ssl": tls is not None, "ssl_protocol": tls[0] if tls else None,
        "ssl_cipher": tls[1] if tls else None, "ssl_hash": None,
        "ssl_key_exchange": None, **peer_certificate(one.socket), "recv_cnt": 0, "send_cnt": 0,
        "send_pend": 0, **NO_PROCESS,
    }
    if one.door == "mqtt":
        shape["client_id"] = one.client_id
    return curves.view(statistics.CONNECTION, one).put(shape)


def mqtt_connection(one):
    """Return an MQTT connection as JSON, with all fields that lists show."""
    session = one.session
    return {
        "name": one.name, "node": node().name, "vhost": one.vhost.name, "user": one.user.name,
        "client_id": one.client_id, "protocol": one.protocol,
        "websocket": hasattr(one.socket, "receive_functions"),
        "ssl": tls_of(one.socket) is not None, "peer_host": one.peer_host, "peer_port": one.peer_port,
        "connected_at": int(one.connected_at * 1000), "keep_alive": one.limits.heartbeat_s,
        "state": one.flow if one.state == "open" else one.state,
        "subscriptions": 0 if session is None else len(session.subscriptions),
    }


def mqtt_session(session, vhost):
    """Return an MQTT session as JSON. The field ``expiry`` is the seconds that the session survives without a
    connection; null means for ever.
    """
    queue, connection = session.queue, session.connection
    return {
        "client_id": session.client_id, "vhost": vhost.name, "user": session.user,
        "protocol": MQTT_VERSIONS.get(session.version, ""), "connected": connection is not None,
        "connection": None if connection is None else connection.name, "durable": session.is_durable,
        "expiry": None if session.expiry_s >= MQTT_NEVER else session.expiry_s,
        "subscriptions": len(session.subscriptions), "queue": None if queue is None else queue.name,
        "messages": 0 if queue is None else queue.ready_count + queue.unacked_count,
        "message_bytes": 0 if queue is None else queue.ready_bytes,
    }


def mqtt_subscription(subscription, session, vhost):
    return {
        "client_id": session.client_id, "vhost": vhost.name, "topic_filter": subscription.topic_filter,
        "qos": subscription.qos, "no_local": bool(subscription.no_local),
        "retain_as_published": bool(subscription.retain_as_published),
        "retain_handling": subscription.retain_handling,
        "subscription_identifier": subscription.identifier or None,
    }


def encoded(payload, encoding):
    """Return (a message body as text, its encoding). The encoding is "string" if ``encoding`` is "auto" and
    the body is UTF-8, otherwise "base64".
    """
    if encoding == "auto":
        try:
            return payload.decode("utf-8"), "string"
        except UnicodeDecodeError:
            pass  # not UTF-8: "auto" means base64 then
    return base64.b64encode(payload).decode(), "base64"


def content_shown(message, encoding, most):
    """Return a Message's properties and up to ``most`` bytes of its body, as JSON. If the properties
    are malformed, the field ``unreadable`` says why.
    """
    text, used = encoded(message.get_body_start(most), encoding)
    shape = {
        "payload": text, "payload_bytes": message.get_body_length(), "payload_encoding": used,
        "properties": {},
    }
    try:
        shape["properties"] = Properties.decode(message.get_properties()).as_dict()
    except Malformed as error:
        shape["unreadable"] = error.text
    return shape


def peer_of(one):
    """Return (host, port) of a client. Behind a proxy they are those that the proxy announces."""
    return one.peer_host, one.peer_port


def address_of(ask):
    """Return (host, port) from ``ask()``, a socket's getsockname; ("", 0) for a unix or closed socket."""
    try:
        address = ask()
    except OSError:
        return "", 0
    return (address[0], address[1]) if isinstance(address, tuple) else ("", 0)


def tls_of(socket):
    """Return (protocol, cipher) of a TLS socket; None for other sockets and for closed sockets."""
    try:
        if isinstance(socket, ssl.SSLSocket) or hasattr(socket, "cipher"):
            cipher = socket.cipher()
            return socket.version(), cipher[0] if cipher else None
    except _GONE:
        return None
    return None


def peer_certificate(socket):
    """Return JSON fields about a client's verified certificate. All are None if there is no certificate."""
    try:
        certificate = socket.getpeercert() if hasattr(socket, "getpeercert") else None
    except _GONE:
        certificate = None
    if not certificate:
        return {"peer_cert_subject": None, "peer_cert_issuer": None, "peer_cert_validity": None}
    return {
        "peer_cert_subject": certificates.distinguished_name(certificate["subject"]),
        "peer_cert_issuer": certificates.distinguished_name(certificate["issuer"]),
        "peer_cert_validity": certificates.validity(certificate),
    }


def listeners():
    """Return a list of the broker's listeners, in RabbitMQ's form."""
    shown = []
    for one in node().listeners():
        host, _, port = one.address.rpartition(":")
        shown.append({
            "node": node().name, "protocol": one.protocol, "ip_address": host.strip("[]"),
            "port": int(port) if port.isdigit() else 0,
            "socket_opts": {
                "backlog": node().settings.listen_backlog, "nodelay": bool(node().settings.tcp_nodelay)
            },
        })
    return shown


def contexts():
    """Return a list of the HTTP and HTTPS listeners, in RabbitMQ's form for web servers."""
    return [
        {
            "node": one["node"], "description": "Management", "path": "/", "cowboy_opts": "[]",
            "ip": one["ip_address"], "port": str(one["port"]), "ssl_opts": [],
        }
        for one in listeners() if one["protocol"] in ("http", "https")
    ]
