"""Leadership: lets an elected leader confirm and deliver, or stops it from doing so.

Uses ``core`` (which followers a confirm waits for), the links to followers, and the broker. ``step`` is
called a few times a second and changes ``isr`` where necessary. Each pass of the event loop begins with a
check of the clock, so that a process that was stopped delivers nothing on waking.

A leader is *fenced* past the deadline of its lease, and while it does not know whether it leads. A fenced
leader confirms and delivers nothing, and blocks publishers; connections stay open.
"""
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import gevent
from gevent.event import Event

from gomq_py.cluster.core.coordinator import Coordinator
from gomq_py.cluster.core.in_sync import STEP_S, InSync
from gomq_py.cluster.core.lease import Lease
from gomq_py.cluster.core.transactions import CoordinatorError, Transaction, Unanswered
from gomq_py.cluster.refusals import AGAIN_S, Address, refuses
from gomq_py.errors import ClusterError
from gomq_py.observability.log import logger
from gomq_py.observability.quiet_log import QuietLog

LOG = logger("cluster")
# How often a node notes in its folder how far it is, while that changes. A copy of a member's folder that is
# older than this is not elected in the member's place. Each time costs every node two flushes of a small
# file, and etcd one transaction: some 3000 a day, which etcd keeps until a compaction.
NOTE_S = 30.0
# What a fenced leader is low on, as operators and the clients of connection.blocked read it.
CONTACT = "contact with etcd"
# Alarm that holds publishers before another node is to lead.
LEADERSHIP = "leadership"
# Longest time for the nodes in sync to take everything.
DRAIN_S = 5.0
# The loop's highest priority: the watcher is called before those of sockets and timers of the same turn.
FIRST = 2
# Shown in place of more seconds: a lease that is lost has a deadline of -inf.
MOST_S = 1e6
# Answer of a deposed leader to promises that it did not keep.
DEPOSED = "this node leads no more, and nobody knows whether its successor has this"


boot_time_s = partial(time.clock_gettime, time.CLOCK_BOOTTIME)
"""Seconds of the clock that goes on while the machine sleeps. Read in each turn of the loop."""


class Leadership:
    """Permits or stops a leader's confirms and deliveries.

    ``lease``: the present Lease. ``note``: see member.Member. ``former``: the former leader's id and cluster
    address, (host, port), or None.

        in_sync      the InSync of the present election
        promises     core.promises.Promises
        opened       an Event that is set once clients may connect
        is_fenced    nothing is confirmed or delivered; True at first
    """

    def __init__(
            self, coordinator: Coordinator, promises: Any, lease: Lease, in_sync: InSync, min_isr: int = 1,
            clock: Any = boot_time_s, note: Callable[[int], None] = lambda position: None,
            former: tuple[str, Address] | None = None):
        self.in_sync = in_sync
        self.promises = promises
        self.opened = Event()
        self.is_fenced = True
        self._coordinator = coordinator
        self._lease = lease
        self._min_isr = min_isr
        self._clock = clock
        self._note, self._noted_s = note, time.monotonic()
        self._former = former
        self._leads = True  # as far as is known
        self._gate: Any = None
        self._alarms: Any = None
        self._leader: Any = None
        self._holds: Any = None
        self._has_ended = False
        self._greenlets: list[Any] = []
        self._check: Any = None  # libev watcher
        self._wake = Event()
        self._quiet = QuietLog(LOG)

    # life

    def start(self) -> None:
        self._check = gevent.get_hub().loop.check(priority=FIRST)
        self._check.start(self._look_at_clock)
        self._begin("in-sync set", self._run)
        if self._former is not None:
            self._begin("looks for the former leader", self._look_for_former, *self._former)

    def serve(self, gate: Any, alarms: Any, leader: Any, holds: Any) -> None:
        """Control the event loop's Gate and the broker's Alarms from now on. Does not switch greenlets.

        Must be called before listeners open. ``leader``: the cluster.leader.Leader. ``holds``: the
        PublisherHolds.
        """
        self._gate, self._alarms, self._leader, self._holds = gate, alarms, leader, holds
        leader.on_streaming = self._wake.set
        if self.is_fenced:
            gate.shut()
        self._apply()

    def renew(self, lease: Lease, in_sync: InSync) -> None:
        """Continue with the lease and the InSync of a new election that this node has won."""
        self._lease, self.in_sync = lease, in_sync
        self._wake.set()
        self._apply()

    def know(self, leads: bool) -> None:
        """Note whether etcd says that this node leads. If not, confirms and deliveries stop."""
        self._leads = leads
        self._apply()

    def refresh(self) -> None:
        """Release or stop confirms and deliveries, after the lease was renewed or lost."""
        self._apply()

    def end(self) -> None:
        """Refuse all confirms, and stop delivering. Does not switch."""
        self._has_ended = True
        self._apply()
        self.promises.refuse(ClusterError(DEPOSED))
        self.stop()

    def stop(self) -> None:
        """End the greenlets and the check of the clock. Confirms and deliveries stay as they are."""
        if self._check is not None:
            self._check.stop()
            self._check.close()
            self._check = None
        for greenlet in self._greenlets:
            if greenlet is not gevent.getcurrent():
                greenlet.kill(block=False)

    @property
    def lease_left_s(self) -> float:
        """Seconds until the lease's deadline; negative after the deadline."""
        return max(-MOST_S, min(MOST_S, self._lease.deadline_s - self._clock()))

    def close(self) -> None:
        """Send followers all present changes, and disconnect. Call after ``serve``. May switch greenlets."""
        self._leader.close()
        self._holds.close()

    @property
    def leader(self) -> Any:
        """The Leader; None before ``serve``."""
        return self._leader

    # handing over

    @property
    def has_others(self) -> bool:
        return len(self.in_sync.members) > 1

    def check_transfer(self) -> None:
        """Raise ClusterError if no other node can lead now."""
        if not self.opened.is_set() or self.is_fenced:
            raise ClusterError("this node does not lead, or does not know whether it does")
        if not self.has_others:
            raise ClusterError("no other node is in sync: this one would have to come back at once")

    def drain(self) -> frozenset[str]:
        """Block publishers, and wait up to DRAIN_S until every in-sync node has flushed all changes.

        Call after ``serve``. Returns the nodes that lack changes. If some do, publishers may go on; otherwise
        they stay blocked, because another node is to lead. May switch greenlets.
        """
        self._alarms.set(LEADERSHIP, LEADERSHIP, "another node is to lead")
        lacking: frozenset[str] = self._leader.drain(self.in_sync.required, DRAIN_S)
        if lacking:
            self._alarms.clear(LEADERSHIP)
        return lacking

    # the in-sync set

    def _begin(self, what: str, function: Callable[..., None], *arguments: Any) -> None:
        greenlet = gevent.spawn(function, *arguments)
        greenlet.name = f"cluster: {what}"
        self._greenlets.append(greenlet)

    def _look_for_former(self, node: str, address: Address) -> None:
        """Remove the former leader from the in-sync set if no process listens at its address.

        Otherwise confirms would wait for a third of ack_timeout. The former leader joins again when it comes
        back. May switch greenlets.
        """
        while node in self.in_sync.members and (self._leader is None or node not in self._leader.progress):
            if refuses(address):
                self.in_sync.leave(node)
                self._wake.set()
                return
            gevent.sleep(AGAIN_S)

    def _run(self) -> None:
        while True:
            try:
                self.step()
            except Exception:
                LOG.exception("the in-sync set could not be looked at; it is tried again")
            self._wake.wait(STEP_S / 2)
            self._wake.clear()

    def step(self) -> None:
        """Change ``isr`` for followers that have joined, left or stalled. Does not wait for etcd's answer."""
        in_sync = self.in_sync
        if self._leader is not None:
            for node in self._leader.take_leavers():
                in_sync.leave(node)
        progress = {} if self._leader is None else self._leader.progress
        transaction = in_sync.step(self._clock(), progress, self.promises.asked, self.promises.promised)
        self._apply()
        if self.promises.promised > in_sync.noted and time.monotonic() >= self._noted_s + NOTE_S:
            self._noted_s = time.monotonic()
            gevent.spawn(self._note_position, in_sync, self.promises.promised).name = "cluster: notes"
        if transaction is not None:
            gevent.spawn(self._change, in_sync, transaction).name = "cluster: changes the in-sync set"

    def _note_position(self, in_sync: InSync, position: int) -> None:
        try:
            self._note(position)
        except OSError as error:
            self._quiet.warning("note", "the position cannot be noted in the data folder: %s", error)
        else:
            in_sync.noted = position

    def _change(self, in_sync: InSync, transaction: Transaction) -> None:
        before = in_sync.members
        try:
            in_sync.done(self._coordinator.transact(transaction))
            self._wake.set()
        except Unanswered as error:
            self._quiet.warning("unanswered", "etcd has not answered a change of the in-sync set: %s", error)
            in_sync.unanswered()
        except CoordinatorError as error:
            self._quiet.warning("not done", "etcd has not changed the in-sync set: %s", error)
            in_sync.not_done()
        except Exception:  # in_sync sends no other change before it is told of this one
            LOG.exception("a change of the in-sync set has failed; it counts as unanswered")
            in_sync.unanswered()
        if in_sync is self.in_sync:
            if in_sync.members.keys() != before.keys():
                LOG.warning("in sync now: %s", ", ".join(sorted(in_sync.members)))
            self._apply()

    # what is promised and delivered

    def _look_at_clock(self) -> None:
        if self._clock() >= self._lease.deadline_s and not self.is_fenced:
            self._apply()

    def _apply(self) -> None:
        """Open or close the delivery gate, and release or hold confirms. Never switches greenlets."""
        in_sync = self.in_sync
        knows = self._leads and not self._has_ended and not in_sync.is_deposed and in_sync.is_open
        is_fenced = not knows or self._clock() >= self._lease.deadline_s
        if is_fenced:
            self.promises.hold(True)
        self.promises.require(in_sync.required)
        self.promises.hold(is_fenced or not in_sync.may_promise)
        if is_fenced != self.is_fenced:
            self.is_fenced = is_fenced
            if is_fenced:
                self._shut()
            else:
                self._open()
        if not is_fenced:
            self.opened.set()
        if self._holds is not None:
            # min_isr keeps late members in the set, for which promises wait in vain
            count = len(in_sync.members) - len(in_sync.late)
            self._holds.count(count if in_sync.has_enough else min(count, self._min_isr - 1), self._min_isr)

    def _shut(self) -> None:
        if self._gate is not None:
            self._gate.shut()
            LOG.warning("this node is fenced: it does not know whether it leads")
            self._alarms.set(CONTACT, CONTACT, "nothing is delivered or confirmed meanwhile")

    def _open(self) -> None:
        if self._gate is not None:
            self._gate.open()
            self._alarms.clear(CONTACT, "this node leads")
