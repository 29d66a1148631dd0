"""/api/connections, /api/channels, /api/consumers: lists all three, and closes connections."""
from flask import Blueprint, g, request

from gomq_py.http import curves, kinds, shapes
from gomq_py.http.answers import body, integer_of, json_answer, no_content, node
from gomq_py.http.errors import NoSuchObject, NotAuthorised
from gomq_py.http.entities import find_vhost
from gomq_py.http.login import ADMINISTRATOR, MANAGEMENT, MONITORING, access, sees_vhost
from gomq_py.http.paging import listing
from gomq_py.hub.turns import paced

blueprint = Blueprint("connections", __name__)
# Characters of the reason, which is sent to the client.
MAX_REASON = 200


def visible():
    """Return a list of the connections that the user may see: own ones or, with the tag monitoring, all."""
    everybody = MONITORING in g.tags
    return [one for one in node().clients.all() if everybody or one.user.identity == g.user.identity]


def find(name):
    """Return the connection of this name. Raises NoSuchObject if it is missing or hidden from the user."""
    for one in visible():
        if one.name == name:
            return one
    raise NoSuchObject()


def channels_of(connections):
    """Return a list of (channel, connection) of all open channels of these connections."""
    return [(channel, one) for one in connections for channel in list(one.channels.values())]


def list_of_channels(connections):
    """Return a response that lists all channels of these connections. May switch greenlets."""
    return listing(channels_of(connections), kinds.CHANNELS)


@blueprint.get("/api/connections")
@blueprint.get("/api/connections/username/<user>")
@access(MANAGEMENT)
def list_connections(user=None):
    """Return the connections that the caller may see: all of them, or those of the user in the path."""
    return listing([one for one in visible() if user in (None, one.user.name)], kinds.CONNECTIONS)


@blueprint.get("/api/connections/<name>")
@access(MANAGEMENT)
def get_connection(name):
    """Return one connection."""
    curves.with_history()
    return json_answer(shapes.connection(find(name)))


@blueprint.delete("/api/connections/<name>")
@access(MANAGEMENT)
def delete_connection(name):
    """Close the connection, and send its client the text of the header ``X-Reason``."""
    close_connection(find(name))
    return no_content()


@blueprint.delete("/api/connections/username/<user>")
@access(MANAGEMENT)
def delete_user_connections(user):
    """Close every connection of one user."""
    for one in visible():
        if one.user.name == user:
            close_connection(one)
    return no_content()


def check_own(connection):
    """Raise NotAuthorised if the connection is another user's and the caller is no administrator."""
    if ADMINISTRATOR not in g.tags and connection.user.identity != g.user.identity:
        raise NotAuthorised("Not administrator user")


def close_connection(connection):
    """Close a connection, and send its client the text of the request's header ``X-Reason``. Raises
    NotAuthorised if it is another user's and the caller is no administrator.
    """
    check_own(connection)
    connection.force_close(request.headers.get("X-Reason", "Closed via management plugin")[:MAX_REASON])


@blueprint.get("/api/channels")
@blueprint.get("/api/connections/<name>/channels")
@access(MANAGEMENT)
def list_channels(name=None):
    """Return the channels of one connection, or of all connections that the user sees."""
    return list_of_channels(visible() if name is None else [find(name)])


@blueprint.put("/api/channels/<name>")
@access(MANAGEMENT)
def put_channel(name):
    """Set the ``prefetch`` count for consumers that start later on the channel. The route is LavinMQ's."""
    channel, connection = find_channel(name)
    check_own(connection)
    channel.prefetch_count = integer_of(body(required=("prefetch",)), "prefetch", None, 0, 65535)
    return no_content()


@blueprint.get("/api/channels/<name>")
@access(MANAGEMENT)
def get_channel(name):
    """Return one channel with its consumers."""
    curves.with_history()
    channel, connection = find_channel(name)
    shape = shapes.channel(channel, connection)
    shape["consumer_details"] = [
        shapes.consumer(one, connection) for one in list(channel.consumers.values())]
    shape["publishes"], shape["deliveries"] = [], []
    return json_answer(shape)


def find_channel(name):
    """Return (channel, connection) of this channel name. Raises NoSuchObject if it is missing or hidden."""
    for channel, connection in channels_of(visible()):
        if shapes.channel_name(channel, connection) == name:
            return channel, connection
    raise NoSuchObject()


@blueprint.get("/api/consumers")
@blueprint.get("/api/consumers/<vhost>")
@access(MANAGEMENT)
def list_consumers(vhost=None):
    """Return the consumers in one vhost or in all vhosts, as far as the user may see their connections."""
    if vhost is not None:
        find_vhost(vhost)
    pairs = []
    for connection in paced(visible()):
        name = connection.vhost.name
        if name == vhost if vhost is not None else sees_vhost(name):
            for channel in list(connection.channels.values()):
                pairs += [(one, connection) for one in list(channel.consumers.values())]
    return listing(pairs, kinds.CONSUMERS)


@blueprint.delete("/api/consumers/<vhost>/<connection>/<int:number>/<tag>")
@access(MANAGEMENT)
def delete_consumer(vhost, connection, number, tag):
    """Cancel the consumer, and send its client basic.cancel. The route is LavinMQ's."""
    find_vhost(vhost)
    one = find(connection)
    channel = one.channels.get(number)
    consumer = None if channel is None else channel.consumers.get(tag)
    if consumer is None or one.vhost.name != vhost:
        raise NoSuchObject()
    check_own(one)
    consumer.source.remove_consumer(consumer)
    consumer.cancel("cancelled over the management API")
    return no_content()
