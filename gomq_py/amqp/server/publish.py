"""Publish: the slow lane: what the fast lane leaves, such as split frames, returns, checks of properties, CC and BCC, direct reply-to.

    content_header, content_body   frames -> Content
    prepare                        Content -> Publication: checked and routed; what is wrong is raised here, when it is complete, as in RabbitMQ
    store                          Publication -> queues; returns and confirm counting

Between channel and the vhost's routes; complete and simple, never fast. It must answer what the fast lane answers; a property test holds
it to that.
"""
from functools import partial

from gomq_py.amqp.server.topology import REPLY_TO
from gomq_py.amqp.wire.constants import CLASS_BASIC
from gomq_py.amqp.wire.errors import AccessRefused, NoRoute, NotImplemented_, PreconditionFailed, SyntaxError_, UnexpectedFrame
from gomq_py.amqp.wire.frames import content_frames, decode_header, method_frame
from gomq_py.amqp.wire.methods import BasicReturn
from gomq_py.broker.destination import LATER
from gomq_py.broker.envelope import SECRET_KEYS, check_user_id, expiration_ms, is_persistent, keys_among
from gomq_py.broker.queues.queue import Queue
from gomq_py.broker.routing import with_properties
from gomq_py.content.fields import encode_shortstr, remove_key
from gomq_py.content.properties import Properties, PropertyScan
from gomq_py.storage.message import Message


class Content:
    """A message being received: method seen, then header, then bodies until ``size`` octets are there. The body budget's client."""

    __slots__ = ("channel", "method", "size", "properties", "chunks", "received", "hold")

    def __init__(self, channel, method):
        self.channel = channel
        self.method = method
        self.size = -1
        self.properties = b""
        self.chunks = []
        self.received = 0
        self.hold = None

    def unexpected_frame(self):
        """The error for a frame out of its order, with RabbitMQ's texts."""
        if self.size < 0:
            return UnexpectedFrame("expected content header for class 60, got non content header frame instead")
        return UnexpectedFrame("expected content body, got non content body frame instead")

    def resume(self):
        """There is room for the rest, or nobody waits for it any more."""
        if self.hold is not None:
            self.hold.release()

    def fail(self, error):
        """It held up others for too long."""
        self.channel.connection.fail(error)


class Publication:
    """A checked message and where it goes."""

    __slots__ = ("exchange", "method", "properties", "body", "destinations", "message", "durable", "more_keys", "seen")

    def __init__(self, exchange, method, properties, body, destinations, message, more_keys=()):
        self.exchange = exchange
        self.method = method
        self.properties = properties
        self.body = body
        self.destinations = destinations
        self.message = message
        self.more_keys = more_keys
        self.seen = None  # (id, its own ttl) where the exchange deduplicates
        self.durable = message.describe()["persistent"] and any(destination.durable for destination in destinations)

    def committed(self, vhost, now_ms):
        """The transaction it waited for is committed: its time begins now, and queues deleted meanwhile are no destinations any more."""
        self.message.restamp(now_ms)
        self.destinations = [
            destination for destination in self.destinations
            if not isinstance(destination, Queue) or vhost.queues.get(destination.name) is destination
        ]


# receiving

def basic_publish(channel, method):
    """basic.publish: its content follows."""
    channel.content = Content(channel, method)
    channel.choose_lane()
    if channel.connection.blocked_reason is not None:
        channel.connection.hold_publishing()


def content_header(channel, payload):
    """The header frame. Returns False when reading must pause. Raises UnexpectedFrame, SyntaxError_, PreconditionFailed."""
    content = channel.content
    if content.size >= 0:
        raise content.unexpected_frame()
    class_id, size, properties = decode_header(payload)
    if class_id != CLASS_BASIC:
        raise UnexpectedFrame(f"expected content header for class 60, got one for class {class_id} instead")
    if payload[2] or payload[3]:  # the weight, which only ever was 0
        raise content.unexpected_frame()
    limit = channel.connection.max_message_size
    if size > limit:
        raise PreconditionFailed(f"message size {size} is larger than configured max size {limit}")
    content.size = size
    content.properties = properties
    if size == 0:
        return _complete(channel, content)
    return True


def content_body(channel, payload):
    """A body frame. Returns False when reading must pause. Raises UnexpectedFrame."""
    content = channel.content
    content.received += len(payload)
    if content.size < 0 or content.received > content.size:
        raise content.unexpected_frame()
    content.chunks.append(payload)
    if content.received == content.size:
        return _complete(channel, content)
    if channel.connection.bodies.grow(content, len(payload)):
        return True
    content.hold = channel.connection.stream.hold("room for message bodies")
    return False


def drop_content(channel):
    """Forget the message under way."""
    content, channel.content = channel.content, None
    if content is not None:
        channel.connection.bodies.release(content)
        content.resume()


def _complete(channel, content):
    """Returns False when reading must pause."""
    drop_content(channel)
    channel.choose_lane()
    body = content.chunks[0] if len(content.chunks) == 1 else b"".join(content.chunks)
    content.chunks.clear()
    publication = prepare(channel, content.method, content.properties, body)
    if channel.transaction is not None:
        channel.transaction.publish(publication)
    else:
        # An exchange that deduplicates has noted the id already: a repeat may not be confirmed before this is stored.
        publication.message.may_wait = publication.seen is None or publication.seen[0] is None
        store(channel, publication)
    return not channel.connection.stream.paused


# checking and routing

def prepare(channel, method, properties, body):
    """A Publication. The order of the checks is RabbitMQ's, which has no ``immediate``. Raises AMQPError."""
    if method.immediate:
        raise NotImplemented_("immediate=true")
    vhost = channel.vhost
    channel.access.write("exchange", method.exchange)
    exchange = vhost.exchange(method.exchange)
    if exchange.internal:
        raise AccessRefused(f"cannot publish to internal exchange '{exchange.name}' in vhost '{vhost.name}'")
    scan = PropertyScan()
    if not scan.scan_octets(properties):
        raise SyntaxError_("malformed basic properties")
    decoded = Properties.decode(properties)
    if decoded.headers:
        channel.connection.tables.check(decoded.headers, len(properties))
    if decoded.reply_to == REPLY_TO:
        properties = _with_reply_to(properties, scan.reply_to_at, _reply_name(channel))
    check_user_id(decoded.user_id, channel.access.user)
    lives_ms = expiration_ms(decoded.expiration)
    more_keys = keys_among(decoded.headers)
    persistent = is_persistent(decoded.delivery_mode)
    if decoded.headers and SECRET_KEYS in decoded.headers:
        properties = _without_header(properties, scan.headers_at, scan.headers_length, SECRET_KEYS)
    channel.access.write_topic(exchange, (method.routing_key, *more_keys))
    headers = with_properties(decoded.headers, decoded) if vhost.needs_properties else decoded.headers
    destinations = vhost.route(exchange, method.routing_key, headers, more_keys)
    message = Message()
    now_ms = channel.connection.scheduler.now_ms
    message.assign(
        _octets(method.exchange), _octets(method.routing_key), properties, body, now_ms,
        expires_at_ms=0 if lives_ms is None else now_ms + lives_ms,
        priority=decoded.priority or 0, persistent=persistent,
    )
    publication = Publication(exchange, method, properties, body, destinations, message, more_keys)
    if exchange.deduplication is not None:
        publication.seen = exchange.deduplication.read(properties)
    return publication


def _reply_name(channel):
    if channel.reply_consumer is None:
        raise PreconditionFailed("fast reply consumer does not exist")
    return channel.reply_consumer.name


def _with_reply_to(properties, at, name):
    """The properties with another reply_to, every other octet as it was."""
    return properties[:at] + encode_shortstr(name) + properties[at + 1 + properties[at]:]


def _without_header(properties, at, length, name):
    """The properties without one header, every other octet as it was."""
    return properties[:at] + remove_key(properties[at:at + length], name) + properties[at + length:]


def _octets(name):
    return name.encode("utf-8", "surrogateescape")


# storing

def store(channel, publication):
    """Hand the message to its destinations or return it to the client, and count it for confirms. Returns whether all of them took it; one that
    may wait (``may_wait``) may do so, and None is returned.
    """
    if _is_duplicate(channel, publication):
        publication.destinations = ()
    state, destinations = publication.exchange.state, publication.destinations
    state.publish_in += 1
    if channel.tracing:
        channel.trace_publish(publication.message, publication.more_keys, destinations)
    taken = True
    for at, destination in enumerate(destinations):
        answer = destination.publish(publication.message)
        if answer == LATER:
            publication.body = None  # only what is returned needs it once more; of large ones two copies would wait
            channel.connection.publish_later(publication.message, destinations[at:], taken, partial(_stored, channel, publication))
            return None
        if not answer:
            taken = False
    return _stored(channel, publication, taken)


def _stored(channel, publication, taken):
    """All destinations have had the message. Returns ``taken``: whether they took it."""
    state, destinations = publication.exchange.state, publication.destinations
    state.publish_out += len(destinations)
    if not taken and publication.seen is not None and publication.exchange.deduplication is not None:
        publication.exchange.deduplication.forget(publication.seen[0])
    if not destinations:
        state.unroutable += 1
    channel.publishes += 1
    if publication.method.mandatory and not destinations:
        state.returned += 1
        channel.send(return_frames(channel, publication))
    if channel.confirming:
        channel.published += 1
        if not taken:
            channel.refused.append(channel.published)
        elif publication.durable:
            channel.unsynced = True
        channel.connection.note_published(channel)
    return taken


def _is_duplicate(channel, publication):
    """Whether its exchange has seen the message's id, which then is noted. A duplicate goes nowhere, and counts as unrouted."""
    seen = publication.exchange.deduplication
    return seen is not None and publication.seen is not None and not seen.take(*publication.seen, channel.connection.scheduler.now_ms)


def return_frames(channel, publication):
    """basic.return with the message: it was mandatory, and went nowhere."""
    method = publication.method
    answer = BasicReturn(
        reply_code=NoRoute.reply_code, reply_text=NoRoute.name, exchange=method.exchange, routing_key=method.routing_key,
    )
    return method_frame(channel.id, answer) + content_frames(
        channel.id, publication.properties, publication.body, channel.connection.frame_max,
    )
