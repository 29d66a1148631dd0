"""Connection events: headers of events about logins and connections of any door, with RabbitMQ's names.

Doors emit them through the broker's Events, which calls these functions only for events that have listeners.
``protocol`` is the door's name.
"""


def connection_created(connection, protocol):
    """Headers of ``connection.created``, emitted when the client has opened its vhost."""
    limits = connection.limits
    return {
        "name": connection.name, "pid": connection.name,
        **_ends(connection.socket, connection.peer_host, connection.peer_port),
        "ssl": hasattr(connection.socket, "cipher"),
        "protocol": protocol, "type": "network", "user": connection.user.name,
        "vhost": connection.vhost.name, "timeout": limits.heartbeat_s,
        "frame_max": limits.frame_max, "channel_max": limits.channel_max,
        "client_properties": connection.client_properties,
    }


def connection_closed(connection):
    """Headers of ``connection.closed``."""
    return {
        "name": connection.name, "pid": connection.name, "client_properties": connection.client_properties,
        "vhost": connection.vhost.name, "user": connection.user.name,
    }


def logged_in(name, username, socket, peer, protocol, error=""):
    """Headers of ``user.authentication.success`` and ``user.authentication.failure``; ``name`` is the
    connection's, ``peer`` its client's (host, port).
    """
    headers = {
        "name": username, "connection_name": name, "connection_type": "network", "protocol": protocol,
        **_ends(socket, *peer),
    }
    if error:
        headers["error"] = error
    return headers


def _ends(socket, peer_host, peer_port):
    """Both ends; the client's as announced by a proxy, if any."""
    try:
        address = socket.getsockname()
    except OSError:  # it is gone
        address = ""
    host, port = (address[0], address[1]) if isinstance(address, tuple) else ("", 0)
    return {"host": host, "port": port, "peer_host": peer_host, "peer_port": peer_port}
