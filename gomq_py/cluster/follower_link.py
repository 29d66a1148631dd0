"""Follower link: the leader's connection to one follower that has logged in.

Used by cluster.leader; uses the stream and a sync source. One greenlet reads ACK and HASHES, one sends, one
checks the time limits, and one runs the sync if needed. A link sends the entries of the stream's list
(``chain``) and, between two entries, the frames of the sync that belong there. A failure ends only this link,
and the frame REFUSED tells the follower the reason.
"""
import contextlib
import time
from collections import deque
from typing import NamedTuple

import gevent
from gevent import socket
from gevent.event import Event

from gomq_py.cluster.sync_source import SyncError, SyncSource
from gomq_py.cluster.wire import frames, messages
from gomq_py.hub.scheduler import SliceClock
from gomq_py.hub.turns import give_way
from gomq_py.observability.log import logger

LOG = logger("cluster")
# A link that has sent nothing for so long sends a HEARTBEAT; the next one comes within twice this time.
BEAT_S = 0.25
# A follower acknowledges every HEARTBEAT_S; a silent one is gone, or hangs.
SILENT_S = 5.0
# A follower that has sent something within this time is alive: its id is taken.
ALIVE_S = 2.0
# A follower that takes no frame for so long loses its turn to sync, and its connection.
STUCK_S = 30.0
# Time for telling a follower why its link ends.
ENDING_S = 0.2
# Rest after each ACK that brings nothing new, and after HASHES that nobody waits for: a flood of them costs
# other clients no more than 200 or 2000 a second do, some 1 % of a core. Followers send 2 such ACKs a second.
ACK_REST_S, HASHES_REST_S = 0.005, 0.0005
# Octets of a sync that wait for being sent. More would only be older when they arrive.
ROOM_OCTETS = 4 << 20
RECEIVE_OCTETS = 64 * 1024
# Octets that are sent in a row before the loop is polled: some 0.3 ms. A fast peer takes as many as come.
TURN_OCTETS = 512 * 1024
# Time for frames received at once, which may be a thousand HASHES.
READING_S = 0.001
# Frames sent within this time are one step of the lag's figures.
STEP_S = 0.02
SYNCING, STREAMING = "syncing", "streaming"
# The end of the text for a link whose place in the chain was dropped.
MUST_SYNC = "must begin with a sync"


class LinkError(Exception):
    """The link must end. The text says why."""


class FollowerLeaves(LinkError):
    """The follower ends the link, because its folder cannot take the changes."""


class LinkClosed(LinkError):
    """The leader has closed the link in an orderly way."""


class FollowerFigures(NamedTuple):
    """A follower's state for operators.

        received, flushed    positions that the follower has acknowledged
        lag_octets           bytes of events that the follower has not flushed
        lag_s                age of the oldest of these events, in seconds
        sync_done_octets     bytes that its full sync has compared, of ``sync_total_octets`` in all
    """

    node_id: str
    name: str
    address: str
    state: str
    received: int
    flushed: int
    lag_octets: int
    lag_s: float
    sync_done_octets: int
    sync_total_octets: int


class FollowerLink:
    """A connection to a follower that has logged in. ``epoch``: the leader's at this login.

    ``hello``: the follower's Hello. ``entry``: the Entry of the stream after which the follower continues;
    None if it needs a full sync. ``heard(link)`` is called after each ACK. ``acked``: the follower's last
    Ack. ``place``: the Entry up to which the follower has flushed; None before its sync begins.
    """

    def __init__(self, connection, address, hello, reader, stream, entry, epoch, heard):
        self.hello = hello
        self.address = address
        self.epoch = epoch
        self.acked = messages.Ack(0 if entry is None else entry.position, 0)
        self.place = entry
        self._heard = heard
        self._connection = connection
        self._reader = reader
        self._stream = stream
        self._at = entry  # last entry of the chain that was sent
        self._steps = deque()  # (entry, time) of what was sent and is not flushed there
        self._queue = SyncQueue()
        self._wake = Event()
        self._source = None
        self._synced_position = None  # of the end of the sync; 0: none is needed, and it has acknowledged
        self._error = None
        self._ended = Event()
        self._farewell = None  # the error for the end, once all is sent
        self._is_ending = False  # the sender stops behind a whole frame
        self._is_sending = False
        self._heard_s = self._taken_s = time.monotonic()  # of the last octets received, and of the last sent
        self._greenlets = []
        self._clock = SliceClock(READING_S)

    def __str__(self):
        return f"follower {self.hello.name!r} at {self.address}"

    def run(self, root, register, turn, found_damage):
        """Serve the follower until the link ends. May switch greenlets.

        ``root``: the data folder. ``register``: its register of files. ``turn``: a lock that is held during a
        full sync. ``found_damage``: see SyncSource. Raises LinkError, FrameError, MessageError, SyncError,
        OSError, or an unexpected exception.
        """
        self._stream.attach()
        self._stream.wakes.add(self._wake.set)
        try:
            reader, sender = self._begin(self._read, "reads"), self._begin(self._send, "sends")
            self._begin(self._beat, "looks at the clock")
            if self._at is None:
                self._begin(self._sync, "syncs", root, register, turn, found_damage)
            self._ended.wait()
            if self._error is not None:
                reader.kill()
                self._tell_why(sender)
                raise self._error
        finally:
            self._stream.wakes.discard(self._wake.set)
            gevent.killall(self._greenlets)
            self._stream.detach()
            self._queue = SyncQueue()

    def end(self, error):
        """End the link. ``run`` then tells the follower the reason, and raises ``error``."""
        if not self._ended.is_set():
            self._error = error
            self._ended.set()

    def finish(self):
        """End the link with LinkClosed once all present events are sent."""
        self._farewell = LinkClosed("the leader closes")
        self._wake.set()

    @property
    def is_alive(self):
        """Whether the link has not ended, and the follower has sent something within ALIVE_S."""
        return not self._ended.is_set() and time.monotonic() < self._heard_s + ALIVE_S

    @property
    def node(self):
        return self.hello.node_id.hex()

    @property
    def is_over(self):
        return self._ended.is_set()

    @property
    def is_streaming(self):
        """Whether the follower has acknowledged a complete state in this epoch, and so needs no sync."""
        return self._synced_position is not None and self.acked.flushed >= self._synced_position

    def figures(self):
        source = self._source
        now_s = time.monotonic()
        return FollowerFigures(
            self.node, self.hello.name, self.address,
            STREAMING if self.is_streaming else SYNCING, self.acked.received, self.acked.flushed,
            self._lag_octets(), now_s - self._lags_since(now_s),
            0 if source is None else source.done_octets, 0 if source is None else source.total_octets)

    # reading

    def _read(self):
        while True:
            octets = self._connection.recv(RECEIVE_OCTETS)
            if not octets:
                self._ended.set()
                return
            self._heard_s = time.monotonic()
            self._reader.feed(octets)
            rest_s = self._take_frames()
            if rest_s:
                gevent.sleep(rest_s)

    def _take_frames(self):
        """Handle the received frames. Returns the seconds to wait before the next read.

        Raises LinkError, FrameError, MessageError. May switch greenlets.
        """
        rest_s = 0.0
        self._clock.begin()
        while (frame := self._reader.next()) is not None:
            if self._clock.is_over():
                give_way()
                self._clock.begin()
            if frame.epoch != self.epoch:
                raise LinkError(f"it is in epoch {frame.epoch}, not in {self.epoch}")
            if frame.kind == frames.ACK:
                if not self._acknowledged(messages.Ack.decode(frame.payload)):
                    rest_s += ACK_REST_S
            elif frame.kind == frames.HASHES and self._source is not None:
                hashes = messages.Hashes.decode(frame.payload, self._source.blocks_of)
                if not self._source.hashes(hashes.file_id, hashes.checksums):
                    rest_s += HASHES_REST_S
            elif frame.kind == frames.REFUSED:
                raise FollowerLeaves(f"it leaves: {messages.Refused.decode(frame.payload).text!r}")
            else:
                raise LinkError(f"a frame {frames.KINDS[frame.kind]} is not expected")
        return rest_s

    def _acknowledged(self, ack):
        """Handle an ACK. Returns whether it differs from the last one. Raises LinkError."""
        if ack.received > self._stream.position:
            raise LinkError(f"it acknowledges position {ack.received}, which is not reached yet")
        self._check_place()  # the sender may wait for a follower that reads nothing
        is_new, self.acked = ack != self.acked, ack
        if self._synced_position is None and self._source is None and self._at is not None:
            self._synced_position = 0
        while self._steps and self._steps[0][0].position <= ack.flushed:
            self.place = self._steps.popleft()[0]
        self._heard(self)
        return is_new

    # sending

    def _send(self):
        in_a_row = 0
        while not self._is_ending:
            self._wake.clear()
            octets = self._next()
            if octets is None:
                if self._farewell is not None:
                    self.end(self._farewell)
                    return
                if time.monotonic() < self._taken_s + BEAT_S:
                    self._wake.wait()
                    continue
                octets = frames.encode(
                    frames.HEARTBEAT, messages.Heartbeat(time.time_ns()).encode(), self.epoch,
                    self._stream.position)
            self._is_sending = True
            sent = self._connection.send(octets)  # cheaper than sendall()
            if sent < len(octets):
                self._connection.sendall(memoryview(octets)[sent:])
            self._is_sending = False
            self._taken_s = time.monotonic()
            in_a_row += len(octets)
            if in_a_row >= TURN_OCTETS:
                in_a_row = 0
                give_way()

    def _beat(self):
        """Make the sender send a heartbeat whenever nothing was sent for BEAT_S. May switch greenlets.

        Raises LinkError if the follower is silent for SILENT_S.
        """
        # One timer does both.
        while True:
            gevent.sleep(BEAT_S)
            now_s = time.monotonic()
            if now_s > self._heard_s + SILENT_S:
                raise LinkError(f"it was silent for {SILENT_S:g} s")
            if now_s >= self._taken_s + BEAT_S:
                self._stream.close_frame()
                self._wake.set()

    def _next(self):
        at = self._at
        if at is None:
            return None
        self._check_place()
        octets = self._queue.take(at)
        if octets is not None:
            return octets
        entry = at.next
        if entry is None:
            return None
        octets = self._stream.octets_of(entry)
        if octets is None:
            raise LinkError("a change cannot be read")
        self._at = entry
        self._note_sent(entry)
        return octets

    def _check_place(self):
        if self._at is not None and self._at.is_dropped:
            raise LinkError(f"it is too far behind, and {MUST_SYNC}")

    # the sync

    def _sync(self, root, register, turn, found_damage):
        with turn:
            began_s = time.monotonic()
            source = SyncSource(root, register, self._put, self._wait_for_room, found_damage)
            self._at = self.place = self._stream.end()
            self._source = source
            LOG.info("%s: sync begins", self)
            source.run()
            self._synced_position = self._stream.position
            LOG.info(
                "%s: sync done, %d of %d bytes sent in %.1f s", self, source.sent_octets, source.total_octets,
                time.monotonic() - began_s)

    def _put(self, payload):
        """Queue a payload of EVENTS from the sync, to be sent after all present events. Does not switch."""
        entry = self._stream.end()
        self._queue.put(entry, frames.encode(frames.EVENTS, payload, self.epoch, self._stream.position))
        self._wake.set()

    def _wait_for_room(self):
        while self._queue.octets > ROOM_OCTETS:
            left_s = self._taken_s + STUCK_S - time.monotonic()
            if left_s <= 0:
                raise LinkError(f"it has taken nothing of its sync for {STUCK_S:g} s")
            self._queue.room.clear()
            self._queue.room.wait(left_s)

    # figures

    def _note_sent(self, entry):
        steps = self._steps
        told_s = entry.told_s
        if steps and told_s - steps[-1][1] < STEP_S:
            told_s = steps.pop()[1]
        steps.append((entry, told_s))

    def _lag_octets(self):
        return 0 if self.place is None else self._stream.octets - self.place.end

    def _lags_since(self, now_s):
        if self._steps:
            return self._steps[0][1]
        behind = None if self._at is None else self._at.next
        return now_s if behind is None else behind.told_s

    # helpers

    def _tell_why(self, sender):
        """Send REFUSED with the reason, after the frame that is being sent. May switch greenlets.

        Gives up after ENDING_S.
        """
        self._is_ending = True
        self._wake.set()
        text = text_of(self._error) if isinstance(self._error, EXPECTED) else "a fault of the leader"
        refused = frames.encode(
            frames.REFUSED, messages.Refused(text).encode(), self.epoch, self._stream.position)
        with contextlib.suppress(OSError), gevent.Timeout(ENDING_S, False):
            sender.join()
            if self._is_sending:  # a frame was cut short
                return
            self._connection.sendall(refused)
            # not SSLSocket's, which forgets the session
            socket.socket.shutdown(self._connection, socket.SHUT_WR)
            # a socket that is closed with unread octets forgets the unsent ones
            while self._connection.recv(RECEIVE_OCTETS):
                give_way()

    def _begin(self, function, what, *arguments):
        def guarded():
            try:
                function(*arguments)
            except Exception as error:
                self.end(error)

        greenlet = gevent.spawn(guarded)
        greenlet.name = f"cluster {what} to {self.hello.name}"
        self._greenlets.append(greenlet)
        return greenlet


class SyncQueue:
    """The frames of a sync that wait to be sent, each after a certain entry of the stream's list.

    ``octets``: total size in bytes. ``room``: an Event, set when a frame was removed.
    """

    __slots__ = ("octets", "room", "_frames")

    def __init__(self):
        self.octets = 0
        self.room = Event()
        self._frames = deque()  # (entry, frame)

    def put(self, entry, frame):
        """Add a frame, to be sent after ``entry`` and after the frames added for this entry earlier."""
        self._frames.append((entry, frame))
        self.octets += len(frame)

    def take(self, entry):
        """Remove and return the next frame if it belongs after this entry, else None."""
        if not self._frames or self._frames[0][0] is not entry:
            return None
        frame = self._frames.popleft()[1]
        self.octets -= len(frame)
        self.room.set()
        return frame


def text_of(error):
    return getattr(error, "strerror", None) or str(error) or type(error).__name__


EXPECTED = (LinkError, SyncError, frames.FrameError, messages.MessageError, OSError)
"""Errors of a link that are not faults of the leader."""
