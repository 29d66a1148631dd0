"""Finds the entities that a URL path names. Raises an error if one is missing or hidden from the user."""
from flask import g, request

from gomq_py.broker.names import described
from gomq_py.broker.verbs.access import Access
from gomq_py.broker.verbs.caller import Caller
from gomq_py.http.answers import node
from gomq_py.http.errors import BadRequest, NoSuchObject, NotAuthorised
from gomq_py.http.login import sees_vhost


def find_vhost(name):
    """Return the vhost of this name. Raises NoSuchObject, and NotAuthorised if the user may not see it."""
    vhost = node().broker.vhosts.get(name)
    if vhost is None:
        raise NoSuchObject()
    if not sees_vhost(name):
        raise NotAuthorised("User not authorised to access virtual host")
    return vhost


def caller(vhost_name):
    """Return the Caller that acts for the request's user in a vhost. Raises NoSuchObject, NotAuthorised.
    Tracing shows the request as a connection with one channel, as in RabbitMQ.
    """
    return Caller(Access(g.user, vhost_name), find_vhost(vhost_name), None, f"HTTP {request.remote_addr}", 1)


def writable_vhost(name):
    """Return the vhost to be changed. Raises NotAuthorised, or NoSuchObject with RabbitMQ's error text."""
    if name not in node().broker.vhosts:
        raise NoSuchObject("vhost_not_found", error="not_found")
    return find_vhost(name)


def visible_vhosts():
    """Return a list of the vhosts that the request's user may see, sorted by name."""
    return [vhost for name, vhost in sorted(node().broker.vhosts.items()) if sees_vhost(name)]


def vhosts_named(name=None):
    """Return [the vhost of this name], or all visible vhosts if None. Raises NoSuchObject, NotAuthorised."""
    return visible_vhosts() if name is None else [find_vhost(name)]


def check_node_name(name):
    """Raise NoSuchObject if ``name`` names another node. None means this node."""
    if name not in (None, node().name):
        raise NoSuchObject()


def find_user(name):
    """Return the user of this name. Raises NoSuchObject."""
    return _found(node().broker.users.get(name))


def find_queue(vhost_name, name):
    """Return the queue of this name. Raises NoSuchObject, NotAuthorised."""
    return _found(find_vhost(vhost_name).queues.get(name))


def queue_to_take_from(vhost_name, name):
    """Return a queue to get messages from. Raises NotAuthorised, or NoSuchObject with AMQP's error text."""
    # RabbitMQ passes these requests to an AMQP channel.
    queue = find_vhost(vhost_name).queues.get(name)
    if queue is None:
        raise NoSuchObject(f"NOT_FOUND - no {described('queue', name, vhost_name)}", error="not_found")
    return queue


def there_is(kind, one, name, vhost_name):
    """Return the entity ``one``. If it is None, raise NoSuchObject with its kind, name and vhost."""
    # As RabbitMQ does for the source and destination of bindings.
    if one is None:
        raise NoSuchObject(f"no {described(kind, name, vhost_name)}", error="not_found")
    return one


def find_exchange(vhost_name, name):
    """Return the exchange; ``amq.default`` means the default one. Raises NoSuchObject, NotAuthorised."""
    return _found(find_vhost(vhost_name).exchanges.get(named(name)))


def _found(one):
    if one is None:
        raise NoSuchObject()
    return one


def exchange_to_publish_to(vhost_name, name):
    """Return an exchange to publish to. Raises NotAuthorised; if missing, BadRequest with AMQP's text."""
    exchange = find_vhost(vhost_name).exchanges.get(named(name))
    if exchange is None:
        raise BadRequest(f"404 NOT_FOUND - no {described('exchange', named(name), vhost_name)}")
    return exchange


def named(exchange):
    """Return the exchange's name for a name in a URL path: ``amq.default`` becomes "", the default one."""
    return "" if exchange == "amq.default" else exchange
