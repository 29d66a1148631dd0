"""Events of the AMQP door: what the event exchange tells about logins, connections, channels and consumers,
with RabbitMQ's header names.

Beside connection, which emits them through the broker's Events; each function makes the headers of one kind,
and is called only when they are wanted.
"""


def connection_created(connection):
    """Of ``connection.created``: when the client has opened its vhost."""
    limits = connection.limits
    return {
        "name": connection.name, "pid": connection.name,
        **_ends(connection.socket, connection.peer_host, connection.peer_port),
        "ssl": hasattr(connection.socket, "cipher"),
        "protocol": "{0,9,1}", "type": "network", "user": connection.user.name,
        "vhost": connection.vhost.name, "timeout": limits.heartbeat_s,
        "frame_max": limits.frame_max, "channel_max": limits.channel_max,
        "client_properties": connection.client_properties,
    }


def connection_closed(connection):
    """Of ``connection.closed``."""
    return {
        "name": connection.name, "pid": connection.name, "client_properties": connection.client_properties,
        "vhost": connection.vhost.name, "user": connection.user.name,
    }


def channel_created(channel):
    """Of ``channel.created``."""
    connection = channel.connection
    return {
        "name": channel_name(channel), "pid": channel_name(channel), "connection": connection.name,
        "number": channel.id, "user": connection.user.name, "vhost": connection.vhost.name,
    }


def channel_closed(channel):
    """Of ``channel.closed``."""
    return {
        "name": channel_name(channel), "pid": channel_name(channel), "connection": channel.connection.name,
        "number": channel.id,
    }


def consumer_created(consumer):
    """Of ``consumer.created``."""
    return {
        **consumer_deleted(consumer), "exclusive": bool(consumer.exclusive),
        "ack_required": not consumer.no_ack,
        "prefetch_count": consumer.prefetch, "arguments": consumer.arguments or {},
    }


def consumer_deleted(consumer):
    """Of ``consumer.deleted``, whoever brought it about."""
    queue = consumer.source
    return {
        "consumer_tag": consumer.tag, "channel": channel_name(consumer.channel), "queue": queue.name,
        "vhost": queue.vhost,
    }


def logged_in(name, username, socket, peer, error=""):
    """Of ``user.authentication.success`` and ``user.authentication.failure``; ``name`` is the connection's,
    ``peer`` its client's (host, port).
    """
    headers = {
        "name": username, "connection_name": name, "connection_type": "network", "protocol": "{0,9,1}",
        **_ends(socket, *peer),
    }
    if error:
        headers["error"] = error
    return headers


def channel_name(channel):
    """What RabbitMQ calls a channel."""
    return f"{channel.connection.name} ({channel.id})"


def _ends(socket, peer_host, peer_port):
    """Both ends; the client's as a proxy announced it, where there is one."""
    try:
        address = socket.getsockname()
    except OSError:  # it is gone
        address = ""
    host, port = (address[0], address[1]) if isinstance(address, tuple) else ("", 0)
    return {"host": host, "port": port, "peer_host": peer_host, "peer_port": peer_port}
