"""Outbound: all messages to one client, and its acknowledgements of them.

Between the connection, whose lanes pass on acknowledgements, and the model's session: the consumer of the
session's queue (delivery), its sink, and the messages in flight (sent). Never yields.
"""
from functools import partial

from gomq_py.mqtt.model import sent as _sent
from gomq_py.mqtt.server.delivery import SessionConsumer, Sink
from gomq_py.mqtt.server.publication import Publication
from gomq_py.mqtt.wire.constants import PUBREC, PUBREL
from gomq_py.mqtt.wire.errors import ProtocolError
from gomq_py.mqtt.wire.frames import Acknowledgements
from gomq_py.mqtt.wire.reason_codes import PACKET_IDENTIFIER_NOT_FOUND
from gomq_py.net import output as _output  # noqa: F401

# Reason codes from here on are errors.
REFUSED = 0x80


class Outbound:
    """The outgoing half of ``connection``. Calls in order: start() when the session has been taken over, in
    the same turn; begin() behind CONNACK; attach() when the session gets a queue; stop() before the session
    is left.
    """

    __slots__ = (
        "connection", "session", "output", "version", "publication", "consumer", "sink", "sent", "answers",
        "is_begun", "is_stopped", "traced",
    )

    def __init__(self, connection):
        self.connection = connection
        self.session = connection.session
        self.output = connection.output
        self.version = connection.version
        self.publication = Publication(
            self.session.interests, self.output.buffers, self.version, connection.maximum_packet_size,
            connection.topic_alias_maximum)
        self.consumer = self.sink = self.sent = None
        self.answers = None  # made for the first PUBREL
        self.is_begun = self.is_stopped = False
        self.traced = None

    # its life

    def start(self):
        """Take the session's queue and sink. Nothing is sent before begin()."""
        connection, session = self.connection, self.session
        session.interests.new_connection()
        if not session.is_durable:
            self.sink = session.sink = Sink(
                session, self.output, self.publication, connection.hub.scheduler,
                connection.hub.large_output, self.output.limit // 2, connection.abort)
        self.attach()

    def attach(self):
        """Take the session's queue, if it has one that is not taken."""
        queue = self.session.queue
        if queue is None or self.consumer is not None or self.is_stopped:
            return
        connection = self.connection
        self.sent = self.session.sent_from(queue)
        self.consumer = SessionConsumer(
            self.output, queue, self.sent, self.publication, self.sink, connection.hub.large_output,
            self._ended, connection.abort)
        self.consumer.trace = self.traced
        queue.add_consumer(self.consumer)
        if self.is_begun:
            self._begin_consumer()

    def begin(self):
        """After CONNACK: send outstanding PUBRELs, and deliver."""
        self.is_begun = True
        if self.consumer is not None:
            self._begin_consumer()
        if self.sink is not None:
            self.sink.begin()

    def stop(self):
        """Release the queue and return unsettled messages to it. A second call changes nothing."""
        if self.is_stopped:
            return
        self.is_stopped = True
        if self.sink is not None:
            self.sink.stop()
        if self.consumer is not None:
            self.consumer.stop()
            self.sent.end()

    # for who looks on

    def trace(self, traced):
        """Call ``traced(message)`` for each message sent from now on; None: stop."""
        self.traced = traced
        if self.sink is not None:
            self.sink.trace = traced
        if self.consumer is not None:
            self.consumer.trace = traced

    def unkept(self):
        """(QoS 0 messages sent by the sink, messages dropped: not read in time, or too large)."""
        sent = dropped = 0
        if self.sink is not None:
            sent = self.sink.sent
            dropped = self.sink.dropped
        if self.consumer is not None:
            dropped += self.consumer.dropped
        return sent, dropped

    # acknowledgements

    def acknowledged(self, kind, packet_identifier):
        """Handle a PUBACK, PUBREC or PUBCOMP of success. Raises ProtocolError if it is not awaited."""
        if self.is_stopped:  # another connection has the messages in flight
            return
        todo = _sent.UNKNOWN
        if self.sent is not None:
            todo = self.sent.acknowledged(kind, packet_identifier)
        if todo == _sent.RELEASE:
            self._answer(packet_identifier, 0)
        elif todo == _sent.NOTHING:
            self.consumer.room_again()
        elif todo == _sent.UNKNOWN:
            if kind == PUBREC:
                self._answer(packet_identifier, PACKET_IDENTIFIER_NOT_FOUND)
        else:
            raise ProtocolError(
                f"packet type {kind} is not what packet identifier {packet_identifier} waits for")

    def acknowledged_with(self, kind, packet_identifier, reason_code):
        """Handle an acknowledgement with a reason code: from 0x80 on it refuses the message."""
        if kind != PUBREC or reason_code < REFUSED:
            self.acknowledged(kind, packet_identifier)
            return
        if self.is_stopped:
            return
        todo = _sent.UNKNOWN
        if self.sent is not None:
            todo = self.sent.refused(packet_identifier)
        if todo == _sent.NOTHING:
            self.consumer.room_again()
        elif todo == _sent.WRONG:
            raise ProtocolError(f"packet type {kind} for the QoS 1 message {packet_identifier}")

    def done(self):
        """End a read: send its PUBRELs, once the acknowledgers (followers) know what is taken."""
        if self.answers is None or not self.answers.used or self.is_stopped:
            return
        answers = self.answers.take()
        records = None if self.sent is None else self.sent.records
        if records is not None and records.is_kept_elsewhere():
            records.when_safe(partial(self._is_safe, answers))
        else:
            self.output.write(answers)

    def _is_safe(self, answers, error):
        if not self.is_stopped:
            if error is None:
                self.output.write(answers)
            else:
                self.connection.abort(f"what it has received at QoS 2 is not safe: {error}")

    # helpers

    def _answer(self, packet_identifier, reason_code):
        if self.answers is None:
            self.answers = Acknowledgements(self.version)
        self.answers.add(PUBREL, packet_identifier, reason_code)

    def _begin_consumer(self):
        for packet_identifier in self.sent.begin(self.connection.receive_maximum):
            self._answer(packet_identifier, 0)
        for packet_identifier in self.sent.take_to_release():
            self._answer(packet_identifier, 0)
        self.done()
        self.consumer.begin()

    def _ended(self, reason):
        """The queue was deleted."""
        if not self.is_stopped:
            self.connection.force_close(reason)
