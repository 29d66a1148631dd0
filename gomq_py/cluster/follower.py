"""Follower: keeps a data folder equal to a leader's.

Connects to the leader's cluster port, logs in, and passes the leader's events to the applier, which writes
them in a thread. If the leader has dropped events that the follower needs, a full sync comes first. After a
network failure the follower reconnects; after a failure of its folder it syncs again.

Another node may become the leader at any time (``follow``). The follower writes a leader's epoch to the
folder's identity, on disk, before it acknowledges anything to that leader.
"""
import time
from collections import deque
from collections.abc import Callable
from typing import Any, NamedTuple

import gevent
from gevent.event import Event

from gomq_py.cluster.applier import FLUSH_S, Applier
from gomq_py.cluster.former_run import RUNS, FormerRun
from gomq_py.cluster.identity import Identity, IdentityFile, this_boot
from gomq_py.cluster.leadership import NOTE_S
from gomq_py.cluster.link import Link
from gomq_py.cluster.login import CopiedFolder, FollowerLogin, LoginRefused
from gomq_py.cluster.replica import ReplicaError
from gomq_py.cluster.wire import frames
from gomq_py.cluster.wire.events import EventError
from gomq_py.cluster.wire.frames import FrameError
from gomq_py.cluster.wire.messages import NO_ID, Ack, Hashes, Heartbeat, MessageError, Refused
from gomq_py.hub.threads import in_thread
from gomq_py.net.listener import format_address
from gomq_py.observability.log import logger
from gomq_py.storage.disk.data_dir import CLUSTER
from gomq_py.storage.errors import DataDirError

LOG = logger("cluster")
CONNECTING, SYNCING, STREAMING, STOPPED = "connecting", "syncing", "streaming", "stopped"
WAITING = "waiting"  # for a leader

# What ends a connection without being a fault of this program.
FAULTS = (OSError, FrameError, EventError, MessageError, LoginRefused, DataDirError, ReplicaError)
# Pause before the next try to connect, and its growth after each one that fails: an eighth of the time since
# the first try, since clients wait for a follower of a leader that boots.
FIRST_PAUSE_S, LONGEST_PAUSE_S, PAUSE_GROWTH = 0.1, 5.0, 9 / 8
# Files, and MiB of them, that a thread reads and hashes at a time: many, because a call of a thread costs as
# much as a small file; few, so that a slow disk does not keep the thread from others.
FILES_PER_TURN, BLOCKS_PER_TURN = 64, 8
# Positions of the leader with the time at which they were heard of: at most one per this many seconds.
HEARD_S = 0.1
# The last heartbeats, whose least difference of the clocks is shown.
SKEWS = 10
# A leader that has said something within this time is alive: two heartbeats.
HEARS_S = 1.0


class Status(NamedTuple):
    """The state of a Follower.

        received           last position received from the leader
        flushed            last position on this disk
        leader_position    last position that the leader has sent or named in a heartbeat
        lag_octets         bytes received and not applied
        lag_s              age of the oldest event that is not on this disk, in seconds
        error              text of the last failure, empty while the follower streams
        clock_skew_s       this clock minus the leader's, in seconds; None before the first heartbeat
    """
    state: str
    address: str
    received: int
    flushed: int
    leader_position: int
    lag_octets: int
    lag_s: float
    error: str
    clock_skew_s: float | None


class Follower:
    """Follows the leader at (``host``, ``port``) with the data folder ``root``, which the caller has locked.

    ``host``: empty without a leader, until ``follow`` is called. ``name``: this node's. ``files`` has no
    replicators. ``file``: the folder's ``.cluster``, with the Identity of identity.of_follower. ``tls``: a
    client's ``gevent.ssl.SSLContext``, or None; the standard library's class would block the event loop.

    ``flush_s``: longest time between a change and its flush. ``refused(address)`` is called when the leader
    refuses a connection (ECONNREFUSED).

    ``is_copy``: a leader has refused this node because another process has the same node id, and this node
    has not streamed since. Then the acknowledged changes are in the other process's folder.
    """

    def __init__(
            self, files: Any, root: str, secret: bytes, host: str, port: int, name: str, file: IdentityFile,
            tls: Any = None, flush_s: float = FLUSH_S,
            refused: Callable[[tuple[str, int]], None] = lambda address: None):
        self.is_copy = False
        self._login_with = secret, name
        self._address: Any = (host, port) if host else None
        self._tls = tls
        self._refused = refused
        self._file = file
        self._noted_s = time.monotonic()  # time at which the position was noted
        self._applier = Applier(
            files, root, self._progress, self._applier_failed, flush_s, file.identity.reads_as_on_disk)
        self._run_id = NO_ID  # of the leader's run that the data folder is a copy of
        self._next_run_id = NO_ID  # of the leader that is synced from
        self._former_runs: dict[bytes, int] = {}  # see FormerRun.runs
        self._link: Any = None
        self._connecting: Any = None  # greenlet
        self._greenlet: Any = None
        self._is_stopping = False
        self._again = Event()  # ends the pause before the next try
        self._is_free = Event()  # no connection is open, being made or at work
        self._is_free.set()
        self._spoke_s = 0.0  # time of the leader's last frame
        self._state = STOPPED
        self._error = ""
        self._pause_s = FIRST_PAUSE_S
        self._leader_position = 0
        self._heard: deque = deque()  # (position of the leader, time)
        self._skews_s: deque = deque(maxlen=SKEWS)

    def start(self) -> None:
        self._seek()
        self._applier.start()
        self._greenlet = gevent.spawn(self._run)
        self._greenlet.name = "cluster: follows"

    def stop(self) -> Exception | None:
        """Disconnect, apply and flush all received changes, and close the files. May switch greenlets.

        Drops an unfinished sync. Returns None, or the exception after which the folder may lack changes. Such
        a node must not be promoted.
        """
        self._is_stopping = True
        self._again.set()
        self._hang_up()
        if self._greenlet is not None:
            self._greenlet.join()
            failure = self._applier.stop()
            self._forget_heard()
            if failure is not None and self._state != STOPPED:
                LOG.warning("what was received from %s is not all on the disk: %s", self._shown, failure)
                self._error = str(failure) or repr(failure)
        self._state = STOPPED
        return self._applier.damage

    def follow(self, address: tuple[str, int] | None) -> None:
        """Follow the leader at ``address``, (host, port), from now on; None: no leader. May switch greenlets.

        Ends a connection to another address before it returns. Received changes stay in the folder. A
        leader that continues the same run sends only the changes after them.
        """
        if address == self._address:
            return
        self._address = address
        self._error, self._pause_s = "", FIRST_PAUSE_S
        self._hang_up()
        self._is_free.wait()
        self._again.set()

    def flush(self) -> Exception | None:
        """Apply and flush all received changes. May switch greenlets.

        An unfinished full sync leaves the data folder unchanged. Called before a campaign, after
        ``follow(None)``. Returns None, or the exception after which the folder may lack changes.
        """
        return self._applier.flush()

    @property
    def identity(self) -> Identity:
        return self._file.identity

    @property
    def damage(self) -> Exception | None:
        """The exception after which received changes may be missing on disk; None if all are there."""
        # It has them again once a sync was swapped in.
        return self._applier.damage

    @property
    def former_run(self) -> FormerRun | None:
        """FormerRun or None: lets this node, once it leads, serve other followers without a full sync.

        Call after ``stop``.
        """
        former = self._applier.former
        if former is None or not former.is_exact or self._run_id == NO_ID:
            return None
        return former._replace(runs={**self._former_runs, self._run_id: former.position})

    @property
    def hears_leader(self) -> bool:
        """Whether the leader has sent something within the last second, apart from frames of the login."""
        link = self._link
        return link is not None and not link.is_closed and time.monotonic() < self._spoke_s + HEARS_S

    @property
    def is_whole(self) -> bool:
        """Whether the data folder has a complete copy of a leader's, from this or an earlier process."""
        return self.identity.cluster_id != NO_ID

    @property
    def is_syncing(self) -> bool:
        """Whether a full sync is being received. ``stop`` drops it."""
        return self._applier.staging is not None

    @property
    def status(self) -> Status:
        self._forget_heard()
        return Status(
            self._state, self._shown, self._applier.received, self._applier.flushed,
            self._leader_position, self._applier.octets,
            time.monotonic() - self._heard[0][1] if self._heard else 0.0, self._error,
            min(self._skews_s, default=None))

    @property
    def _shown(self) -> str:
        return "" if self._address is None else format_address(self._address)

    # the greenlet

    def _run(self) -> None:
        while not self._is_stopping:
            self._again.clear()
            self._seek()
            address = self._address
            if address is None:
                self._again.wait()
                continue
            self._is_free.clear()
            try:
                self._follow(address)
            except FAULTS as error:
                self.is_copy = self.is_copy or isinstance(error, CopiedFolder)
                if not self._is_stopping and address == self._address:
                    self._say(error)
            except Exception as error:
                LOG.exception("the follower of %s has failed; it connects again", self._shown)
                self._error = repr(error)
            finally:
                self._link = self._connecting = None
                self._is_free.set()
            self._seek()
            self._again.wait(self._pause_s)
            self._pause_s = min(PAUSE_GROWTH * self._pause_s, LONGEST_PAUSE_S)

    def _seek(self) -> None:
        self._state = WAITING if self._address is None else CONNECTING

    def _say(self, error: Exception) -> None:
        text = str(error)
        if text != self._error:  # the same fault every 5 s is said once
            LOG.warning("following %s: %s", self._shown, text)
        self._error = text

    def _follow(self, address: tuple[str, int]) -> None:
        """Connect, and handle frames until an exception ends the connection. May switch greenlets.

        Returns if this address is not to be followed any more.
        """
        link = self._link = self._connected(address)
        if link is None:
            return
        try:
            if self._is_stopping or address != self._address:
                return
            self._log_in(link)
            link.begin(self._ack, self._hashed)
            while True:
                self._take(link, link.next_frame())
        finally:
            link.end()

    def _connected(self, address: tuple[str, int]) -> Any:
        """Return a new Link, or None if ``_hang_up`` has ended the attempt. May switch greenlets.

        Raises OSError.
        """
        # in a greenlet of its own, which _hang_up() kills: a resolver or a host without an answer takes
        # minutes
        self._connecting = gevent.spawn(_attempt, address, self._tls)
        self._connecting.name = "cluster: connects"
        made = self._connecting.get()
        if isinstance(made, ConnectionRefusedError):
            self._refused(address)
        if isinstance(made, Exception):
            raise made
        return made if isinstance(made, Link) else None  # a GreenletExit

    def _hang_up(self) -> None:
        """End the connection, or the attempt to connect. May switch greenlets."""
        if self._connecting is not None:
            self._connecting.kill()
        if self._link is not None:
            self._link.close()

    def _note_identity(self) -> None:
        if self._applier.identity is not None:
            self._file.identity, self._applier.identity = self._applier.identity, None
            self._run_id, self._former_runs = self._next_run_id, {}

    def _log_in(self, link: Any) -> None:
        self._note_identity()
        place = self._applier.place
        run = NO_ID if place is None else self._run_id
        secret, name = self._login_with
        login = FollowerLogin(
            secret, self.identity.node_id, self.identity.cluster_id, self.identity.epoch, run,
            place if run != NO_ID else 0, name)
        link.send_now(login.hello())
        while not login.done:
            link.send_now(login.feed(link.next_frame()))
        link.epoch, link.counts_received = login.epoch, login.counts_received
        self._skews_s.clear()
        if login.is_sync or login.is_successor:  # of another run
            self._heard.clear()
            self._leader_position = 0
        if login.is_sync:
            self._applier.begin_sync(Identity(
                login.cluster_id, self.identity.node_id, login.epoch,
                unflushed=this_boot() if login.counts_received else ""))
            self._next_run_id = login.run  # not before: the former sync may have been swapped in meanwhile
            self._state = SYNCING
        else:
            self._applier.go_on()
            self._note_identity()
            if (run, place) != (self._run_id, self._applier.place):
                raise LoginRefused("another copy has been swapped in meanwhile")
            if login.is_successor:
                self._go_on_in(login.run)
            self._raise_epoch(login.epoch, login.counts_received)
            self._streams()
        LOG.info(
            "following %s, %s", self._shown,
            "with a sync" if login.is_sync else f"from position {self._applier.received} on")

    def _go_on_in(self, run: bytes) -> None:
        """Follow a new leader, whose run has the id ``run``, without a sync. The new leader has followed the
        same former leader as this node. May switch greenlets.

        Raises LoginRefused if this copy is not exact: it may then differ from the new leader's folder.
        """
        self._applier.flush()
        former = self._applier.former
        if former is None or not former.is_exact:
            self._run_id = NO_ID
            raise LoginRefused("this copy is not exact behind its former leader, and is synced")
        runs = [*self._former_runs.items(), (self._run_id, former.position)]
        self._run_id, self._former_runs = run, dict(runs[-RUNS:])

    def _raise_epoch(self, epoch: int, counts_received: bool) -> None:
        """Save the leader's epoch in ``.cluster`` if it is above the folder's. May switch greenlets.

        Raises OSError.
        """
        if epoch > self.identity.epoch:
            unflushed = this_boot() if counts_received else self.identity.unflushed
            self._file.change(epoch=epoch, position=0, unflushed=unflushed)

    def _note_position(self) -> None:
        """Save the folder's flushed position in ``.cluster``, at most once per NOTE_S.

        Raises OSError. May switch greenlets.
        """
        position = self._applier.flushed
        if position > self.identity.position and time.monotonic() >= self._noted_s + NOTE_S:
            self._noted_s = time.monotonic()
            self._file.change(position=position)

    def _take(self, link: Any, frame: Any) -> None:
        if self._applier.failure is not None:
            raise self._applier.failure
        # events that a leader has kept are of the epoch in which they happened
        if frame.epoch != link.epoch and (frame.kind != frames.EVENTS or frame.epoch > link.epoch):
            raise FrameError(f"a frame is of epoch {frame.epoch}, the leader of {link.epoch}")
        self._spoke_s = time.monotonic()
        if frame.kind in (frames.EVENTS, frames.HEARTBEAT) and self._state == STREAMING:
            self._pause_s = FIRST_PAUSE_S
            self._note_position()
        if frame.kind == frames.EVENTS:
            if frame.position < self._applier.received:
                raise FrameError(
                    f"position {frame.position} came behind position {self._applier.received}")
            self._hear(frame.position)
            if link.counts_received:
                link.wake()  # before put(), which may wait; the acknowledgement is made after this turn
            self._applier.put(frame)
        elif frame.kind == frames.HEARTBEAT:
            self._hear(frame.position)
            self._compare_clocks(Heartbeat.decode(frame.payload).time_ns)
        elif frame.kind == frames.REFUSED:
            raise LoginRefused(f"the leader closes: {Refused.decode(frame.payload).text!r}")
        else:
            raise FrameError(f"{frames.KINDS[frame.kind]} is not expected here")

    # lag, clocks

    def _compare_clocks(self, leader_ns: int | None) -> None:
        # It includes the heartbeat's way, so the least one counts.
        if leader_ns is not None:
            self._skews_s.append((time.time_ns() - leader_ns) / 1e9)

    def _hear(self, position: int) -> None:
        if position <= self._leader_position:
            return
        self._leader_position = position
        now = time.monotonic()
        if self._heard and now - self._heard[-1][1] < HEARD_S and len(self._heard) > 1:
            now = self._heard.pop()[1]
        self._heard.append((position, now))

    def _forget_heard(self) -> None:
        while self._heard and self._heard[0][0] <= self._applier.flushed:
            self._heard.popleft()

    # what the applier says

    def _progress(self) -> None:
        self._note_identity()  # also if the connection has ended meanwhile
        if self._applier.staging is None and self._state == SYNCING:
            self._streams()
            LOG.info("the copy of %s is complete", self._shown)
        self._forget_heard()
        if self._link is not None:
            self._link.wake()

    def _streams(self) -> None:
        self._state = STREAMING
        self.is_copy = False
        self._error = ""  # a later fault with the same text is logged again

    def _applier_failed(self) -> None:
        self._note_identity()  # perhaps the flush behind a sync has failed
        if self._link is not None:
            self._link.leave(self._applier.failure)
        if self._applier.is_doubtful:  # also after a restart of this process
            try:
                self._file.change(torn=this_boot())
            except OSError as error:
                LOG.error("a failed flush cannot be noted in %s: %s", CLUSTER, error)

    # what the link asks for

    def _ack(self) -> Ack:
        noted = self.identity.position if self._state == STREAMING else 0
        return Ack(self._applier.received, self._applier.flushed, noted)

    def _hashed(self, link: Any) -> bool:
        """Send the checksums of the next listed files. Returns False if there are no more.

        May switch greenlets.
        """
        source = self._applier.staging
        batch = [] if source is None else source.take_listed(FILES_PER_TURN, BLOCKS_PER_TURN)
        checksums: list[list[int]] = [[] for _ in batch]
        for first in range(0, max((blocks for _, blocks in batch), default=0), BLOCKS_PER_TURN):
            if link.is_closed:
                return False
            parts = [(file_id, first, min(blocks, first + BLOCKS_PER_TURN)) for file_id, blocks in batch]
            for found, more in zip(checksums, in_thread(source.checksums, parts), strict=True):
                found += more
        for (file_id, _), found in zip(batch, checksums, strict=True):
            message = Hashes(file_id, tuple(found))
            link.send(frames.encode(frames.HASHES, message.encode(), link.epoch))
        return bool(batch)


def _attempt(address: tuple[str, int], tls: Any) -> Any:
    """Make a Link. Returns the Link, or the exception. May switch greenlets."""
    # gevent would print the exception.
    try:
        return Link(address, tls)
    except Exception as error:
        return error
