"""Flows: passes messages between one client and the broker. Never stores a message or switches greenlets.

Inbound answers a client's publishes at QoS 1 and 2, and knows their packet identifiers. Both parsers of a
connection (the lanes) call it. Answers are gathered during a socket read. They leave together in the order of
the publishes (MQTT 5 §4.6), once their messages are on disk.

    fast lane, slow lane > stored(), answer() > done() > verbs.pending_confirms > output

Outbound sends all messages to one client, and gets the client's acknowledgements from the lanes. Outbound has
the consumer of the session's queue and the sink (delivery), and the messages in flight (sent).
"""
from functools import partial

from gomq_py import octets
from gomq_py.broker.verbs.blocked_publish import WAITS_FOR
from gomq_py.broker.verbs.pending_confirms import Answer, PendingConfirms, UnsyncedQueues
from gomq_py.mqtt.model import received as _received  # noqa: F401  (its .pxd types the identifiers)
from gomq_py.mqtt.model import sent as _sent
from gomq_py.mqtt.model.qos2_records import QoS2Records
from gomq_py.mqtt.server.delivery import SessionConsumer, Sink
from gomq_py.mqtt.server.publication import Publication
from gomq_py.mqtt.wire import reason_codes
from gomq_py.mqtt.wire.constants import MQTT_5, PUBACK, PUBCOMP, PUBREC, PUBREL
from gomq_py.mqtt.wire.errors import MQTTError, ProtocolError, TopicAliasInvalid
from gomq_py.mqtt.wire.frames import Acknowledgements
from gomq_py.mqtt.wire.reason_codes import (
    NO_MATCHING_SUBSCRIBERS, PACKET_IDENTIFIER_NOT_FOUND, QUOTA_EXCEEDED, UNSPECIFIED_ERROR,
)
from gomq_py.net import output as _output  # noqa: F401

# States of an identifier: NEW may be stored; AGAIN was stored before; TOO_MANY exceeds the receive maximum;
# IN_USE belongs to another message; PARTLY: an earlier run stored its message in some destinations.
NEW, AGAIN, TOO_MANY, IN_USE, PARTLY = 0, 1, 2, 3, 4
# Topic aliases of one client (each takes up to 255 octets here), as in RabbitMQ.
TOPIC_ALIASES = 16
TOPIC_MAX = 255
# Reason codes from here on are errors.
REFUSED = 0x80
WAITS_FOR_IDENTIFIERS = "a disk that takes the store of QoS 2 identifiers"


class Refusal(MQTTError):
    """A refused PUBLISH. The answer has the reason code; if MQTT has no answer, the connection ends."""

    def __init__(self, reason_code, text):
        super().__init__(text)
        self.reason_code = reason_code


class Inbound:
    """Handles a client's publishes.

        receive_maximum    most publishes in flight at QoS 1 and 2
        received           the session's QoS 2 identifiers that are not released
        is_over            the connection ends; no packet is handled any more
        publishes          count of publishes, without those that FastLane counts
        published          count of publishes at QoS 1 and 2
        confirmed_count    count of publishes that were answered with success
    """

    # While the disk refuses the store of identifiers, nothing is read from the client, as during an alarm.
    __slots__ = (
        "connection", "version", "receive_maximum", "publishes", "published", "confirmed_count", "unsynced",
        "pending", "received", "answers", "pubacks", "confirms", "unanswered", "aliases", "is_over",
        "has_released", "is_held",
    )

    def __init__(self, connection, when_safe, receive_maximum):
        self.connection = connection
        self.version = connection.version
        self.receive_maximum = receive_maximum
        self.publishes = self.published = self.confirmed_count = 0
        self.unsynced = UnsyncedQueues()
        self.pending = PendingConfirms(connection.output.write, when_safe)
        self.received = connection.session.received_ids()
        self.aliases = None
        self.is_over = self.has_released = self.is_held = False
        self.answers = Acknowledgements(self.version)
        # PUBACKs noted in this read, messages taken in it, and QoS 1 publishes whose PUBACK has not left.
        self.pubacks = self.confirms = self.unanswered = 0

    # for the lanes

    def begin(self, qos, packet_identifier):
        """Begin a PUBLISH at QoS 1 or 2. Returns its state: NEW, PARTLY, AGAIN, IN_USE or TOO_MANY."""
        if self.received.count and self.received.has(packet_identifier):
            if qos == 2:
                return PARTLY if self.received.is_partly(packet_identifier) else AGAIN
            return IN_USE
        if self.unanswered + self.received.count >= self.receive_maximum:
            return TOO_MANY
        if qos == 1:
            self.unanswered += 1
        return NEW

    def pause_if_stuck(self):
        """If the store of identifiers has failed, pause reading until it is replaced, and return True."""
        records = self.received.records
        if records is None or not records.is_stuck:
            return False
        if not self.is_held:
            self.is_held = True
            hold = self.connection.stream.pause_reading(WAITS_FOR_IDENTIFIERS)
            records.when_replaced(partial(self._let_go, hold))
        return True

    def _let_go(self, hold):
        self.is_held = False
        hold.release()

    def is_new(self, qos, packet_identifier):
        """Begin a PUBLISH at QoS 1 or 2. Returns True if its message must be stored. Answers a repeated
        PUBLISH. Raises Refusal.
        """
        state = self.begin(qos, packet_identifier)
        if state == TOO_MANY:
            raise Refusal(
                reason_codes.RECEIVE_MAXIMUM_EXCEEDED,
                f"more than {self.receive_maximum} publishes under way at QoS 1 and 2")
        if state == IN_USE:
            if qos == 1:
                self.unanswered += 1  # until its refusal leaves
            raise Refusal(
                reason_codes.PACKET_IDENTIFIER_IN_USE,
                f"packet identifier {packet_identifier} is in use at QoS 2")
        if state == AGAIN:
            self.again(packet_identifier)
        return state == NEW or state == PARTLY

    def stored(self, qos, packet_identifier, taken, has_destinations, queues):
        """Answer a message that was offered to all its destinations, if any. ``taken``: all stored it.
        ``queues``: the destinations to flush before the answer (a tuple or None); all, if not ``taken``.
        """
        self.publishes += 1
        if qos:
            self.published += 1
            if taken:
                self.confirms += 1
                if queues is not None and self.unsynced.last is not queues:
                    self.unsynced.add(queues)
                if qos == 2:
                    self.received.add(packet_identifier, queues)
                code = 0 if has_destinations else NO_MATCHING_SUBSCRIBERS
                self.answer(PUBACK if qos == 1 else PUBREC, packet_identifier, code)
            else:
                if qos == 2 and not self._is_told():
                    self.received.refused_by_some(packet_identifier, queues)
                self._refused_by_queue(qos, packet_identifier)

    def _refused_by_queue(self, qos, packet_identifier):
        if self._is_told():
            self.refused(qos, packet_identifier, QUOTA_EXCEEDED)
        elif not self.is_over:
            self.connection.fail(Refusal(QUOTA_EXCEEDED, "a queue has refused a message"))

    def _is_told(self):
        """Return True if MQTT can answer a refusal. Otherwise the client will repeat its message."""
        return self.version >= MQTT_5 and not self.is_over

    def refused(self, qos, packet_identifier, reason_code):
        """Answer a refused PUBLISH (MQTT 5)."""
        if qos == 2:
            self.received.not_stored(packet_identifier)  # the client may reuse the identifier
        self.answer(PUBACK if qos == 1 else PUBREC, packet_identifier, reason_code)

    def alias(self, alias, topic):
        """Return the topic of an alias. A ``topic``, if not empty, is assigned first. Raises
        TopicAliasInvalid if the number is too high, ProtocolError if the alias is unknown.
        """
        if alias > TOPIC_ALIASES:
            raise TopicAliasInvalid(f"topic alias {alias}, {TOPIC_ALIASES} are accepted")
        if self.aliases is None:
            self.aliases = {}
        if topic:
            # A longer topic is refused whenever it is named.
            self.aliases[alias] = topic if len(topic) <= TOPIC_MAX else topic[:TOPIC_MAX + 1]
            return topic
        if alias not in self.aliases:
            raise ProtocolError(f"topic alias {alias}, which stands for no topic")
        return self.aliases[alias]

    def again(self, packet_identifier):
        """Answer a repeated QoS 2 PUBLISH, and return True. If its message still waits for files, pause
        reading and return False; the answer follows later.
        """
        if self.received.is_storing(packet_identifier):
            hold = self.connection.stream.pause_reading(WAITS_FOR)
            self.received.when_stored(packet_identifier, partial(self._first_stored, packet_identifier, hold))
            return False
        for queues in self.received.awaited(packet_identifier):
            self.unsynced.add(queues)
        self.answer(PUBREC, packet_identifier, 0)
        return True

    def _first_stored(self, packet_identifier, hold, taken, queues):
        """Answer a repeated PUBLISH, whose message has been stored or refused. Ends the pause ``hold``."""
        if not self.is_over:
            if taken:
                if queues is not None:
                    self.unsynced.add(queues)
                self.answer(PUBREC, packet_identifier, 0)
            else:
                self._refused_by_queue(2, packet_identifier)
            self.done()
        hold.release()

    def released(self, packet_identifier):
        known = self.received.discard(packet_identifier)
        if self.received.records is not None:
            # A power cut must not restore the identifier: the client reuses it for another message. An
            # unknown identifier may have been released over an earlier connection that ended before the
            # flush.
            self.has_released = True
            self.unsynced.add(self.received.records.together)
            self.pause_if_stuck()
        code = 0 if known else PACKET_IDENTIFIER_NOT_FOUND
        self.answer(PUBCOMP, packet_identifier, code)

    def answer(self, kind, packet_identifier, reason_code):
        if kind == PUBACK:
            self.pubacks += 1
        self.answers.add(kind, packet_identifier, reason_code)

    def done(self):
        """Have the gathered answers sent once their messages are on disk. Called at the end of a read."""
        if self.answers.used == 0:
            return
        if self.has_released:
            self.has_released = False
            self.received.records.await_flush()
        unsynced = self.unsynced.take()
        batch = Batch(self, self.answers.take(), self.pubacks, self.confirms)
        if unsynced:
            batch.added = self.received.added
            if self.received.records is not None:
                batch.mark = self.received.records.last_received
        self.pubacks = self.confirms = 0
        self.pending.done(batch, unsynced)

    def leave(self):
        """Send answers whose messages are on disk, and drop all others. Called when the connection ends."""
        self.is_over = True
        self.done()
        self.pending.mute()

    def close(self):
        """Drop answers, because the connection has ended. The session still gets the results of flushes."""
        self.is_over = True
        self.connection = None  # breaks a reference cycle
        self.pending.mute()

    # for the answers

    def lost(self, answers, destinations):
        """Return the answers (bytes) to send after a failed flush, in place of ``answers``. ``destinations``:
        None, or, if a store has lost messages, all destinations of the answered messages.
        """
        # If MQTT cannot report the failure, the connection ends, and identifiers stay known: a repeated
        # message goes only to destinations that lack it.
        refused = Acknowledgements(self.version)
        noted = _parts(answers)
        is_told = self._is_told() and all([kind != PUBCOMP for kind, _, _ in noted])
        for kind, identifier, code in noted:
            if kind != PUBCOMP and code < UNSPECIFIED_ERROR:
                code = UNSPECIFIED_ERROR
                if kind == PUBREC and is_told:
                    self.received.discard(identifier)
                elif kind == PUBREC and destinations is not None:
                    self.received.lost_by_some(identifier, destinations)
            if is_told:
                refused.add(kind, identifier, code)
        if not is_told and not self.is_over:
            self.is_over = True
            self.connection.fail(MQTTError("the disk refused what it published"))
        return refused.take()


class Batch(Answer):
    """The answers to one read: ``pubacks`` of them are PUBACKs, ``confirms`` are answers with success. When
    they leave, Received.sure(``added``, ``mark``) is called.
    """

    __slots__ = ("inbound", "answers", "pubacks", "confirms", "added", "mark")

    def __init__(self, inbound, answers, pubacks, confirms):
        Answer.__init__(self)
        self.inbound = inbound
        self.answers = answers
        self.pubacks = pubacks
        self.confirms = confirms
        self.added = self.mark = 0

    def kept(self):
        self.inbound.unanswered -= self.pubacks
        self.inbound.confirmed_count += self.confirms
        if self.added:
            self.inbound.received.sure(self.added, self.mark)
        return self.answers

    def lost(self):
        self.inbound.unanswered -= self.pubacks
        destinations = None
        if self.is_lost():
            destinations = [
                queue for queues in self.queues for queue in queues if not isinstance(queue, QoS2Records)]
        return self.inbound.lost(self.answers, destinations)

    def must_wait(self, error, callback):
        """Return whether answers wait for a new store of identifiers; if so, ``callback(error)`` follows."""
        # An earlier PUBCOMP or refusal would free identifiers that the failed store still has: after a kill,
        # the client's next message would look like a repeat.
        stuck = self.inbound.received.records if error is not None or self.is_lost() else None
        for queues in self.queues:
            for queue in queues:
                if isinstance(queue, QoS2Records) and queue.is_stuck:
                    stuck = queue
        if stuck is None or not stuck.is_stuck:
            return False
        stuck.when_replaced(partial(callback, error))
        return True

    def is_lost(self):
        for queues in self.queues:
            for queue in queues:
                if queue.failed and not isinstance(queue, QoS2Records):
                    return True
        return False


class Outbound:
    """Sends one client its messages. The connection calls start() after it has attached the session, begin()
    after CONNACK, attach() when the session gets a queue, and stop() before it leaves the session.
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
        """Attach the session's queue and its sink. Nothing is sent before begin()."""
        connection, session = self.connection, self.session
        session.interests.new_connection()
        if not session.is_durable:
            self.sink = session.sink = Sink(
                session, self.output, self.publication, connection.hub, self.output.limit // 2,
                connection.abort)
        self.attach()

    def attach(self):
        """Consume the session's queue, if the session has one that is not consumed yet."""
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
        """Send outstanding PUBRELs, and start delivering. Called after CONNACK."""
        self.is_begun = True
        if self.consumer is not None:
            self._begin_consumer()
        if self.sink is not None:
            self.sink.begin()

    def stop(self):
        """Leave the session's queue, and return unsettled messages to it. A second call does nothing."""
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
        """Call ``traced(message)`` for each message sent from now on; None stops the calls."""
        self.traced = traced
        if self.sink is not None:
            self.sink.trace = traced
        if self.consumer is not None:
            self.consumer.trace = traced

    def unkept(self):
        """Return (messages sent by the sink, messages dropped by the sink or the consumer)."""
        sent = dropped = 0
        if self.sink is not None:
            sent = self.sink.sent
            dropped = self.sink.dropped
        if self.consumer is not None:
            dropped += self.consumer.dropped
        return sent, dropped

    # acknowledgements

    def acknowledged(self, kind, packet_identifier):
        """Handle a PUBACK, PUBREC or PUBCOMP with success. Raises ProtocolError if another packet is due."""
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
        """Handle an acknowledgement with a reason code; a PUBREC with 0x80 or more refuses its message."""
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
        """Send the PUBRELs gathered during a read, once all followers know of the PUBRECs."""
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
        if not self.is_stopped:
            self.connection.force_close(reason)


def _parts(answers):
    """Return a list of (kind, packet identifier, reason code) from encoded answers (bytes)."""
    parts = []
    at = 0
    while at < len(answers):
        code = answers[at + 4] if answers[at + 1] == 3 else 0
        parts.append((answers[at] >> 4, octets.be16(answers, at + 2), code))
        at += 2 + answers[at + 1]
    return parts
