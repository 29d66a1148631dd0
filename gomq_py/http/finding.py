"""Finding what a path names, for somebody who may see it. Raises what the answer will be."""
from flask import g

from gomq_py.auth.permissions import refusal, refused_topic
from gomq_py.broker.names import described
from gomq_py.http.answers import node
from gomq_py.http.errors import BadRequest, NoSuchObject, NotAuthorised
from gomq_py.http.login import sees_vhost


def find_vhost(name):
    """The vhost of this name, for somebody who may look into it. Raises NoSuchObject, NotAuthorised."""
    vhost = node().broker.vhosts.get(name)
    if vhost is None:
        raise NoSuchObject()
    if not sees_vhost(name):
        raise NotAuthorised("User not authorised to access virtual host")
    return vhost


def writable_vhost(name):
    """As ``find_vhost``, for requests that change something: RabbitMQ words a missing vhost differently there."""
    if name not in node().broker.vhosts:
        raise NoSuchObject("vhost_not_found", error="not_found")
    return find_vhost(name)


def visible_vhosts():
    """The vhosts that the request's user may look into, by name."""
    return [vhost for name, vhost in sorted(node().broker.vhosts.items()) if sees_vhost(name)]


def find_user(name):
    """The user of this name. Raises NoSuchObject."""
    user = node().broker.users.get(name)
    if user is None:
        raise NoSuchObject()
    return user


def find_queue(vhost_name, name):
    """The queue of this name. Raises NoSuchObject."""
    queue = find_vhost(vhost_name).queues.get(name)
    if queue is None:
        raise NoSuchObject()
    return queue


def shared(queue):
    """``queue``, unless it is some connection's alone. Raises ResourceLocked, whatever the tags of the user."""
    find_vhost(queue.vhost).check_access(queue, None)
    return queue


def queue_to_take_from(vhost_name, name):
    """As ``find_queue``, for requests that RabbitMQ hands on to an AMQP channel, whose words a missing queue has there. Raises NoSuchObject."""
    queue = find_vhost(vhost_name).queues.get(name)
    if queue is None:
        raise NoSuchObject(f"NOT_FOUND - no {described('queue', name, vhost_name)}", error="not_found")
    return queue


def there_is(kind, one, name, vhost_name):
    """``one``, if it is not None. Raises NoSuchObject that says what is not there, as RabbitMQ does of the ends of bindings."""
    if one is None:
        raise NoSuchObject(f"no {described(kind, name, vhost_name)}", error="not_found")
    return one


def find_exchange(vhost_name, name):
    """The exchange of this name; ``amq.default`` is the default exchange. Raises NoSuchObject."""
    exchange = find_vhost(vhost_name).exchanges.get(named(name))
    if exchange is None:
        raise NoSuchObject()
    return exchange


def exchange_to_publish_to(vhost_name, name):
    """As ``find_exchange``, for publishing: there a missing exchange is a mistake in the request, told in AMQP's words. Raises BadRequest."""
    exchange = find_vhost(vhost_name).exchanges.get(named(name))
    if exchange is None:
        raise BadRequest(f"404 NOT_FOUND - no {described('exchange', named(name), vhost_name)}")
    return exchange


def named(exchange):
    """The name of the exchange that a path names: the default exchange has none, and ``amq.default`` stands for it."""
    return "" if exchange == "amq.default" else exchange


def may_use_topic(user, verb, exchange, routing_key):
    """Whether a user may use this routing key at an exchange: at a topic exchange that may be limited."""
    limit = user.topic_permission(exchange.vhost, exchange.name) if exchange.type == "topic" else None
    return limit is None or limit.allows(verb, routing_key)


def require_topic(verb, exchange, routing_key):
    """The request's user may use this routing key at a topic exchange. Raises NotAuthorised."""
    if not may_use_topic(g.user, verb, exchange, routing_key):
        raise NotAuthorised(refused_topic(routing_key, exchange.name, exchange.vhost, g.user.name).text)


def require_all(rights, vhost_name):
    """The request's user has what ``broker.verbs.rights`` says that a verb needs. Raises NotAuthorised."""
    for verb, kind, name in rights:
        require(verb, kind, name, vhost_name)


def require(verb, kind, name, vhost_name):
    """The request's user may do this to that, whatever its tags. Raises NotAuthorised."""
    permission = g.user.permission(vhost_name)
    if permission is None or not permission.allows(verb, name):
        raise NotAuthorised(f"ACCESS_REFUSED - {refusal(verb, kind, name, vhost_name, g.user.name).text}")
