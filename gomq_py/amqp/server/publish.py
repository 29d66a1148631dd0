"""Publish: the slow, general code for the publishes that the fast lane does not handle: split frames,
returns, checks of properties, CC and BCC, direct reply-to.

    content_header, content_body   frames -> Content
    prepare                        Content -> Publication; as in RabbitMQ, raises errors when the content is
                                   complete; Content.check() runs earlier for a large or divided body
    store                          Publication -> queues; returns and confirm counting

Can handle every publish, and answers like the fast lane; a property test compares both.
"""
from functools import partial

from gomq_py.amqp.server.replies import message_frames
from gomq_py.amqp.server.topology import REPLY_TO
from gomq_py.amqp.wire.errors import (
    ContentTooLarge, NoRoute, NotImplemented_, PreconditionFailed, ResourceError, UnexpectedFrame,
)
from gomq_py.amqp.wire.frames import CLASS_BASIC, decode_header
from gomq_py.amqp.wire.methods import BasicPublish, BasicReturn
from gomq_py.broker.envelope import envelope_of
from gomq_py.broker.verbs import blocked_publish, publishing
from gomq_py.content.gathered import Gathered


# A body of at least so many octets is received into the buffer that it is stored from.
GATHERED_OCTETS = 128 * 1024
# The reason for not reading a client that does not read its answers.
UNREAD = "the client to read its answers"
IMMEDIATE = "immediate=true"
# Octets of two short strings, and of the properties that the broker may add.
ROUTING_OCTETS = 1024


class Content:
    """A message whose frames are being received: method, header, then bodies of ``size`` bytes in all. If
    memory is short, the memory budget stops the reading of this connection. Later it calls resume_held() or
    give_up().
    """

    __slots__ = (
        "channel", "method", "size", "properties", "chunks", "gathered", "received", "hold", "is_checked",
    )

    def __init__(self, channel, method):
        self.channel = channel
        self.method = method
        self.size = -1
        self.properties = b""
        self.chunks = []
        self.gathered = None  # a Gathered, from the first frame of a large body on
        self.received = 0
        self.hold = None
        self.is_checked = False

    def unexpected_frame(self):
        """Return the UnexpectedFrame for a frame out of order, with RabbitMQ's texts."""
        if self.size < 0:
            return UnexpectedFrame(
                "expected content header for class 60, got non content header frame instead"
            )
        return UnexpectedFrame("expected content body, got non content body frame instead")

    def check(self):
        """Check exchange and rights, before the message takes much memory. Raises AMQPError or Refused."""
        if not self.is_checked:
            self.is_checked = True
            method = self.method
            if method.immediate:
                raise NotImplemented_(IMMEDIATE)
            publishing.check_address(self.channel.caller, method.exchange, method.routing_key)

    def gather(self):
        """Borrow a shared buffer for the whole body. Does nothing if there is not enough memory."""
        room = ROUTING_OCTETS + len(self.properties)
        try:
            lent = self.channel.connection.hub.body_buffers.take(room + self.size)
        except OSError:
            return
        self.gathered = Gathered(lent, room, self.size)
        for chunk in self.chunks:
            self.gathered.add(chunk)
        self.chunks.clear()

    @property
    def output(self):
        return self.channel.connection.output

    @property
    def is_held_up(self):
        """True if reading is paused, but not because the client does not read its output."""
        return any(what != UNREAD for what in self.channel.connection.stream.waits_for)

    def resume_held(self):
        """Read the client again, because there is memory for bodies, or the message was dropped."""
        if self.hold is not None:
            self.hold.release()

    def give_up(self, why):
        """Close the connection, because others have waited too long for the memory of this message."""
        self.channel.connection.fail(ResourceError(why))


# receiving

def basic_publish(channel, method):
    """basic.publish: begin to receive a message, whose header and body frames follow."""
    channel.content = Content(channel, method)
    channel.choose_lane()
    if channel.connection.blocked_reason is not None:
        channel.connection.pause_for_alarm()


def content_header(channel, payload):
    """Handle the payload of a content header frame. Returns False if the connection must stop reading. Raises
    UnexpectedFrame, FrameError, PreconditionFailed, and the errors of Content.check() and prepare().
    """
    content = channel.content
    if content.size >= 0:
        raise content.unexpected_frame()
    class_id, size, properties = decode_header(payload)
    if class_id != CLASS_BASIC:
        raise UnexpectedFrame(f"expected content header for class 60, got one for class {class_id} instead")
    limit = channel.connection.server.settings.max_message_size
    if size > limit:
        raise PreconditionFailed(f"message size {size} is larger than configured max size {limit}")
    content.size = size
    content.properties = properties
    if size == 0:
        return _complete(channel, content)
    if size >= GATHERED_OCTETS:
        content.check()
    return True


def content_body(channel, payload):
    """Handle the payload of a body frame. Returns False if the connection must stop reading. Raises
    UnexpectedFrame, ContentTooLarge, and the errors of Content.check() and prepare().
    """
    content = channel.content
    content.received += len(payload)
    if content.size < 0 or content.received > content.size:
        raise content.unexpected_frame()
    if content.gathered is not None:
        content.gathered.add(payload)
    else:
        content.chunks.append(payload)
        if content.received < content.size >= GATHERED_OCTETS:
            content.gather()
    return _received(channel, content, len(payload))


def body_begins(channel, size):
    """Begin a body frame of ``size`` bytes. Returns the Gathered (buffer) to read the frame into; the caller
    then calls body_ends(). Returns None if the caller must wait for the complete frame.
    """
    content = channel.content
    if content is None or content.size < GATHERED_OCTETS or content.received + size > content.size:
        return None
    if content.gathered is None:
        content.gather()
    return content.gathered


def body_ends(channel, gathered, size):
    """Handle a body frame read into ``gathered``. Returns False if the connection must stop reading. Raises
    ContentTooLarge, and the errors of Content.check() and prepare().
    """
    content = channel.content
    if content is None or content.gathered is not gathered:  # the channel has ended meanwhile
        return True
    channel.method_id = BasicPublish.ID
    content.received += size
    return _received(channel, content, size)


def _received(channel, content, count):
    if content.received == content.size:
        return _complete(channel, content)
    content.check()
    bodies = channel.connection.hub.bodies
    if bodies.grow(content, count):
        return True
    if why := bodies.why_in_vain(content):
        raise ContentTooLarge(why)
    content.hold = channel.connection.stream.pause_reading("room for message bodies")
    return False


def drop_content(channel):
    """Forget the message that is being received on ``channel``, and free its memory."""
    content, channel.content = channel.content, None
    if content is not None:
        channel.connection.hub.bodies.release(content)
        content.resume_held()


def _complete(channel, content):
    """Publish a message that is complete. Returns False if the connection must stop reading."""
    drop_content(channel)
    channel.choose_lane()
    body, content.gathered = content.gathered, None
    if body is None:
        body = content.chunks[0] if len(content.chunks) == 1 else b"".join(content.chunks)
    content.chunks.clear()
    publication = prepare(channel, content.method, content.properties, body)
    if channel.transaction is not None:
        channel.transaction.publish(publication)
    else:
        store(channel, publication, may_wait=True)
    return not channel.connection.stream.paused


# publishing

def prepare(channel, method, properties, body):
    """Check and route a message. Returns a Publication. Refuses ``immediate``. Raises AMQPError, Refused."""
    if method.immediate:
        raise NotImplemented_(IMMEDIATE)
    return publishing.prepare(
        channel.caller, method.exchange, method.routing_key,
        partial(envelope_of, properties, reply_to=partial(_own_reply_to, channel)), body,
        channel.connection.scheduler.now_ms, mandatory=method.mandatory)


def _own_reply_to(channel, reply_to):
    """Return the routing key for replies to this client, if ``reply_to`` asks for direct replies; otherwise
    None. Raises PreconditionFailed if the client has no consumer of direct replies.
    """
    if reply_to != REPLY_TO:
        return None
    if channel.reply_consumer is None:
        raise PreconditionFailed("fast reply consumer does not exist")
    return channel.reply_consumer.name


def store(channel, publication, may_wait=False):
    """Store a message in all its queues, or return it to the client, and count it for confirms. Returns True
    if all queues stored it, otherwise False. Returns None (only with ``may_wait``) if the message waits
    for the files of a new segment.
    """
    wait = partial(_wait, channel) if may_wait else None
    taken = publishing.store(channel.caller, publication, channel.connection.scheduler.now_ms, wait)
    if taken is not None:
        _stored(channel, publication)
    return taken


def publish_later(channel, message, destinations, at, taken, mandatory):
    """Once ``destinations[at]`` has files to store the message in, publish it to ``destinations[at:]``.
    ``taken``: True if all earlier destinations have stored the message.
    """
    _wait(channel, publishing.begun(channel.vhost, message, destinations, mandatory), at, taken)


def _wait(channel, publication, at, taken):
    connection = channel.connection

    def stored(taken, somebody_took):
        publishing.stored(publication, taken, somebody_took)
        _stored(channel, publication)
        if connection.lane is not None:
            connection.lane.send_confirms()

    blocked_publish.wait_for_files(
        connection.hub, connection.stream, connection.vhost, publication, at, taken, stored)


def _stored(channel, publication):
    channel.publishes += 1
    if not publication.destinations:
        if publication.mandatory:
            channel.return_unroutable += 1
            if channel.is_open():
                channel.send(return_frames(channel, publication.message))
        else:
            channel.drop_unroutable += 1
    if channel.confirming:
        channel.published += 1
        if not publication.taken:
            channel.refused.append(channel.published)
        elif publication.durable:
            channel.unsynced.add(tuple(publication.awaited))
        channel.connection.lane.confirm(channel)


def return_frames(channel, message):
    """Return the bytes of basic.return for a mandatory message that reached no queue."""
    return message_frames(
        channel, BasicReturn, message, message.get_properties(), message.get_body(),
        reply_code=NoRoute.reply_code, reply_text=NoRoute.name)
