"""Link: moves messages from one broker to another until it is stopped.

A greenlet connects to both ends, makes a session (links.session) and ends. After the session a new greenlet
waits for the back-off and reconnects. Used by shovels and federation; uses the client and the transfer
engine.
"""
import math
import random
import time
from contextlib import contextmanager

from gevent.event import Event

from gomq_py.amqp.wire.methods import BasicConsume
from gomq_py.client.backoff import Attempts
from gomq_py.links import troubles
from gomq_py.links.source_reader import buffers_of
from gomq_py.links.ends import ACK_MODES, NO_ACK, ON_CONFIRM, Status
from gomq_py.links.target_writer import WireTargetWriter
from gomq_py.links.session import DESTINATION, FAULTS, OURS, SOURCE, LinkSession, Keepalive
from gomq_py.links.poison_detection import FINAL_CODES, PoisonDetection, is_final
from gomq_py.links.uris import without_login
from gomq_py.observability.log import logger
from gomq_py.observability.quiet_log import QuietLog

LOG = logger("links")
# Rate-limited: a thousand links to one broker that is down are one fault.
QUIET = QuietLog(LOG, most=50)

QUEUE_LENGTH = "queue-length"
STARTING, RUNNING, STOPPED, TERMINATED, ERROR = "starting", "running", "stopped", "terminated", "error"
# Time for messages in flight to be settled at a stop.
DRAIN_S = 5.0
# How often the source is asked for its count of ready messages.
LAG_S = 5.0
# Longest error text shown: a peer may send any length.
TEXT_MOST = 1000
# Shortest time over which a rate is measured.
RATE_S = 5.0


class _Failed(Exception):
    """Carries an ``error``, and the ``end`` of the link where it happened: SOURCE, DESTINATION or OURS."""

    def __init__(self, end, error):
        super().__init__(end, error)
        self.end, self.error = end, error


class Link:
    """Moves messages from a source to a target.

        on_change(link)              called at each change of the status; must not switch greenlets
        on_end(link, reason)         called at the end: "terminated" (``delete_after`` is reached) or "error"
                                     (retrying cannot help); must not switch greenlets
        connect(uri), connect_target(uri)
                                     return a gomq_py.client Connection, on gevent's sockets, to the source
                                     or the target; may switch greenlets
        delete_after                 number of messages to move before the link ends, "queue-length" for as
                                     many as are ready at the first connection, or None
        refusals                     how often the target may refuse a message before it is rejected at the
                                     source; 0: no limit
        ends_with                    AMQP reply codes that end the link if it has never been running
        paused                       whether the link begins paused
        account                      (user who set the link, virtual host), to share out memory and turns
    """

    # Saves the instance dict of 2 KiB; there is a dict where tests replace a method.
    __slots__ = (
        "name", "account", "source", "target", "stream_offset", "poison_detection", "is_paused",
        "_hub", "_ack_mode", "_backoff", "_connect", "_connect_target",
        "_delete_after", "_on_change", "_on_end", "_ends_with", "_wakened", "_greenlet", "_keepalive",
        "_session", "_attempts", "_state", "_error", "_since_ms", "_moved", "_refused", "_set_aside",
        "_reconnects", "_source_uri", "_target_uri", "_rate_marks", "_queue", "_lag", "_lag_asked_s",
        "_is_stopping", "_starts_again", "_was_up", "_left", "_knows_left", "__dict__", "__weakref__",
    )

    def __init__(
        self, hub, name, source, target, *, ack_mode=ON_CONFIRM, backoff, connect, delete_after=None,
        refusals=0, on_change=None, on_end=None, connect_target=None, ends_with=FINAL_CODES, paused=False,
        account=None,
    ):
        if ack_mode not in ACK_MODES:
            raise ValueError(f"ack mode {ack_mode!r} is none of {', '.join(ACK_MODES)}")
        self.name, self.account = name, account
        self.source, self.target = source, target
        self.stream_offset = None
        self.poison_detection = PoisonDetection(target, refusals)
        self.is_paused = paused
        self._hub = hub
        self._ack_mode = NO_ACK if source.no_ack else ack_mode
        self._backoff = backoff
        self._connect, self._connect_target = connect, connect_target or connect
        self._delete_after = delete_after
        self._on_change, self._on_end = on_change, on_end
        self._ends_with = ends_with
        self._wakened = Event()
        self._greenlet = None
        self._keepalive = Keepalive(hub)
        self._session = None
        self._attempts = None
        self._state, self._error, self._since_ms = STOPPED, "", hub.timers.now_ms()
        self._moved = self._refused = self._set_aside = self._reconnects = 0
        self._source_uri = self._target_uri = ""
        self._rate_marks = [(time.monotonic(), 0)] * 2
        self._queue, self._lag, self._lag_asked_s = "", None, -math.inf
        self._begin()

    # Called by users.

    def start(self):
        """Begin to connect and move messages. No effect while running."""
        if self.has_ended:
            self._begin()
            self._set_state(STARTING, "")
            self._spawn()

    def stop(self):
        """Begin to stop: consume no more, settle messages in flight for up to DRAIN_S, then be "stopped"."""
        self._is_stopping = True
        self._starts_again = False
        if self.has_ended and self._state not in (TERMINATED, ERROR):
            self._set_state(STOPPED, "")
        self.wake()

    def restart(self):
        """Settle messages in flight, clear suspicions against messages, and reconnect without a back-off."""
        if self.has_ended:
            self.start()
        else:
            self._is_stopping = self._starts_again = True
            self.wake()

    def pause(self):
        """Consume no more until ``resume``. The connections stay open; received messages are still moved."""
        if not self.is_paused:
            self.is_paused = True
            if self._session is not None:
                self._session.consume_or_cancel()

    def resume(self):
        """Consume from the source again, after ``pause``."""
        if self.is_paused:
            self.is_paused = False
            if self._session is not None:
                self._session.consume_or_cancel()

    @property
    def has_ended(self):
        """True if the link has no connection and is not connecting."""
        return self._greenlet is None and not self._keepalive.is_on

    @property
    def status(self):
        writer = self._session and self._session.writer
        return Status(
            self._state, self._error, self._since_ms, self._moved,
            writer.unconfirmed() if writer else 0, self._refused, self._set_aside, self._reconnects,
            self._rate(), without_login(self._source_uri), without_login(self._target_uri),
            bool(writer and writer.is_held()),
        )

    @property
    def lag(self):
        """Number of ready messages that the source last reported, or None. Asks it again after LAG_S."""
        if self._session is None:
            return None
        now = time.monotonic()
        if now - self._lag_asked_s >= LAG_S:
            self._lag_asked_s = now
            self._session.ask_lag(self._queue)
        return self._lag

    # Called by the session.

    def lag_told(self, count):
        self._lag = count

    def up(self):
        """Set the state to running: the source has accepted the consumer, or a paused link has connected."""
        self._was_up = True
        self._attempts.succeeded()
        self._set_state(RUNNING, "")

    def settled(self, batch):
        """Count a batch that is settled at its source. Returns True if ``delete_after`` is reached."""
        if batch.is_rejected:
            self._set_aside += batch.count
            QUIET.warning(
                (self.name, "rejected"),
                "%s: a message is rejected at its source: %s", self.name, self._error,
            )
        else:
            self._moved += batch.count
            if self._error and not self._session.reader.has_held():
                self._set_state(RUNNING, "")
        self.poison_detection.settled(batch)
        self._attempts.worked()
        if self._left is not None:
            self._left -= batch.count
        return self._left is not None and self._left <= 0

    def were_refused(self, count, error):
        self._refused += count
        self._set_state(RUNNING, f"{DESTINATION}: {error}")

    def has_stalled(self, text):
        """Show and log ``text``, because the target has confirmed nothing for a long time."""
        if not self._error:
            QUIET.warning((self.name, "stalled"), "%s: %s: %s", self.name, DESTINATION, text)
            self._set_state(self._state, f"{DESTINATION}: {text}")

    def reached(self, offset):
        """Store the stream offset up to which all messages are settled at the source, a stream."""
        is_first = self.stream_offset is None
        self.stream_offset = offset
        if is_first:
            self.changed()

    def changed(self):
        """Call ``on_change``, because the status has changed."""
        if self._on_change is not None:
            self._on_change(self)

    def wake(self):
        """Wake the link's greenlet, or start one that takes over the session from the Keepalive."""
        self._wakened.set()
        if self._keepalive.is_on and not self._hub.is_closed:
            self._keepalive.end()
            self._spawn()

    # private from here on: the greenlet

    def _spawn(self):
        self._greenlet = self._hub.spawn(self._run)
        self._greenlet.name = f"link {self.name}"

    def _begin(self):
        self._attempts = Attempts(self._backoff)
        self._is_stopping = self._starts_again = self._was_up = False
        self._left = None if self._delete_after == QUEUE_LENGTH else self._delete_after
        self._knows_left = self._delete_after != QUEUE_LENGTH
        self.poison_detection.forget()

    def _run(self):
        """Run the link's greenlet: until the link ends, or until the Keepalive takes over the session."""
        # A greenlet would cost 10 KiB.
        outcome = STOPPED, ""
        try:
            while (outcome := self._keep_up()) is not None and self._starts_again:
                self._begin()
                self._set_state(STARTING, "")
        except Exception as error:
            LOG.exception("%s ends: a fault of ours", self.name)
            outcome = ERROR, f"{OURS}: a fault of ours: {type(error).__name__}"
        finally:
            self._greenlet = None
            if outcome is None:
                self._keepalive.begin(self._session)
            elif not self._hub.is_closed:
                self._ended(*outcome)

    def _ended(self, reason, error):
        self._set_state(reason, error)
        if reason in (TERMINATED, ERROR) and self._on_end is not None:
            self._on_end(self, reason)

    def _keep_up(self):
        """Run sessions one after the other. May switch greenlets. Returns the final (state, error), or None
        if the Keepalive is to take over the present session, which runs on.
        """
        while self._session is not None or not self._is_stopping:
            try:
                if not self._pass():
                    return None
                if not self._is_stopping:
                    return TERMINATED, ""
            except _Failed as failed:
                text = self._note(failed)
                wait_s = self._attempts.failed()
                if self._is_stopping:
                    break
                if wait_s is None or not self._was_up and is_final(failed.error, self._ends_with):
                    QUIET.warning((self.name, "ends"), "%s ends: %s", self.name, text)
                    return ERROR, text
                self._reconnects += 1
                self._set_state(STARTING, text)
                self._wait(wait_s)
        return STOPPED, ""

    def _pass(self):
        """Make a session if there is none, and check whether the session is over. Returns True if it is over
        and closed, False if it runs on. Raises _Failed. May switch greenlets.
        """
        is_over = True
        try:
            if self._session is None:
                self._hub.link_turns.wait(
                    self._wakened, lambda: self._is_stopping, has_failed=self._attempts.count > 0,
                    account=self.account)
                self._session, queue = self._aside(self._open) or (None, "")
                if self._session is None:
                    return True
                self._move(self._session, queue)
            is_over = self._is_over(self._session)
            return is_over
        finally:
            if is_over:
                self._close_session()

    def _close_session(self):
        session = self._session
        try:
            if session is not None and self._hub.is_closed:
                session.abort()
            elif session is not None:
                session.end()
        finally:
            self._session = None

    def _aside(self, function):
        """Run ``function()``, which connects and makes a session, in another greenlet. May switch greenlets.
        Returns its result or raises its error. Returns None if the link is stopped meanwhile.
        """
        # The greenlet's deep stack is then freed.
        outcome: list = []
        is_left = False

        def work():
            try:
                made = function()
            except BaseException as error:
                outcome.append((None, error))
            else:
                outcome.append((made, None))
                if is_left and made is not None:  # it has finished before the kill arrived
                    made[0].abort()

        worker = self._hub.spawn(work)
        worker.link(lambda _: self.wake())
        try:
            while not (worker.ready() or self._is_stopping):
                self._wakened.wait()
                self._wakened.clear()
        finally:
            if not worker.ready():
                is_left = True
                worker.kill(block=False)
        # popped, because a raised error refers to the frame of work()
        answer, error = outcome.pop() if outcome else (None, None)
        if error is not None:
            raise error
        return answer

    def _open(self):
        """Connect to both ends. Returns (LinkSession, queue name), or None if no message is left to move.
        Raises _Failed. May switch greenlets.
        """
        source = writer = None
        try:
            with self._at(SOURCE):
                self._source_uri = random.choice(self.source.uris)
                source = self._connect(self._source_uri)
                queue, channel = self._open_source(source)
            if self._left == 0:
                source.close()
                return None
            with self._at(DESTINATION):
                self._target_uri = random.choice(self.target.uris)
                writer = self._open_target()
            with self._at(OURS):
                return LinkSession(
                    self, self._hub, buffers_of(self._hub), channel, writer, self._is_acked(), self._left,
                    self.poison_detection.careful), queue
        except BaseException:
            for end in (source, writer):
                if end is not None:
                    end.abort()
            raise

    def _open_source(self, connection):
        name = self.source.queue
        if self.source.prepare is not None:
            name = self._prepare(connection, self.source.prepare)
        channel = connection.channel()
        if not self._knows_left:
            self._left = channel.queue_declare(name, passive=True).message_count
            self._knows_left = True
        if self._is_acked():
            channel.qos(self.source.prefetch)
        return name, channel

    def _open_target(self):
        """Connect to the target. Returns its TargetWriter. May switch greenlets."""
        if not self.target.has_lane:
            return self.target.open_writer(self._target_uri, self._hub)
        connection = self._connect_target(self._target_uri)
        try:
            if self.target.prepare is not None:
                self._prepare(connection, self.target.prepare)
            channel = connection.channel()
            if self._ack_mode == ON_CONFIRM:
                channel.confirm_select()
        except BaseException:
            connection.abort()
            raise
        return WireTargetWriter(
            channel, buffers_of(self._hub), self._ack_mode == ON_CONFIRM, self.target.queue)

    @staticmethod
    def _prepare(connection, prepare):
        channel = connection.channel()
        answer = prepare(channel)
        if not channel.closed:
            channel.close()
        return answer

    def _move(self, session, queue):
        self._queue, self._lag, self._lag_asked_s = queue, None, -math.inf
        arguments = dict(self.source.consumer_arguments)
        if self.stream_offset is not None:
            arguments[self.source.offset_argument] = self.stream_offset + 1
        session.start(BasicConsume(
            queue=queue, consumer_tag=self.source.consumer_tag, no_ack=not self._is_acked(),
            exclusive=self.source.exclusive, arguments=arguments,
        ))

    def _is_over(self, session):
        """True if the session is over. If the link is stopping, settles messages in flight first. Raises
        _Failed if the session has failed. May switch greenlets.
        """
        self._wakened.clear()
        if not session.is_over():
            if not self._is_stopping:
                return False
            self._drain(session)
        if session.failure is not None and not session.is_done:
            raise _Failed(*session.failure)
        return True

    def _drain(self, session):
        session.stop()
        until = time.monotonic() + DRAIN_S
        while not session.is_over() and (rest_s := until - time.monotonic()) > 0:
            due_s = session.tick()
            self._wakened.wait(rest_s if due_s is None else min(rest_s, due_s))
            self._wakened.clear()

    def _is_acked(self):
        # Without acks a count cannot be kept exactly: more deliveries would arrive and be lost.
        return self._ack_mode != NO_ACK or self._left is not None

    @contextmanager
    def _at(self, end):
        try:
            yield
        except (*FAULTS, ValueError) as error:
            raise _Failed(end, error) from error
        except Exception as error:
            LOG.exception("%s: a fault of ours", self.name)
            raise _Failed(OURS, error) from error

    def _note(self, failed):
        """Log a _Failed, and report it to the PoisonDetection. Returns the error's text, without secrets."""
        self.poison_detection.failed(failed.error, failed.end == DESTINATION)
        uri = {SOURCE: self._source_uri, DESTINATION: self._target_uri}.get(failed.end, "")
        text = f"{failed.end}: {troubles.told(failed.error, uri)}"[:TEXT_MOST]
        # at a stop, either end may close before the link does
        say = QUIET.info if self._is_stopping else QUIET.warning
        say((self.name, failed.end), "%s: %s", self.name, text)
        return text

    def _wait(self, seconds):
        until = time.monotonic() + seconds
        self._wakened.clear()
        while not self._is_stopping and (rest_s := until - time.monotonic()) > 0:
            self._wakened.wait(rest_s)
            self._wakened.clear()

    def _set_state(self, state, error):
        if (state, error) != (self._state, self._error):
            if state != self._state:
                self._since_ms = self._hub.timers.now_ms()
            self._state, self._error = state, error
            self.changed()

    def _rate(self):
        now, (first, second) = time.monotonic(), self._rate_marks
        if now - second[0] >= RATE_S:
            self._rate_marks = first, second = [second, (now, self._moved)]
        return (self._moved - first[1]) / (now - first[0]) if now > first[0] else 0.0
