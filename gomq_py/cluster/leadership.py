"""Leadership: lets an elected leader promise and deliver, or stops it.

Between ``core`` (which followers promises wait for), the links to followers, and the broker. From ``start``
on, ``step`` is called a few times a second and changes ``isr`` where it must; each turn of the hub's loop
begins with a look at the clock, so that a process that was stopped delivers nothing on waking.

A leader is *fenced* past the deadline of its lease, and while it does not know whether it leads: nothing is
promised or delivered, publishers are held, and connections stay open.
"""
import time
from functools import partial
from typing import Any

import gevent
from gevent.event import Event

from gomq_py.cluster.core.coordinator import Coordinator
from gomq_py.cluster.core.in_sync import STEP_S, InSync
from gomq_py.cluster.core.lease import Lease
from gomq_py.cluster.core.transactions import CoordinatorError, Transaction, Unanswered
from gomq_py.errors import ClusterError
from gomq_py.observability.log import logger
from gomq_py.observability.quiet_log import QuietLog

LOG = logger("cluster")
# What a fenced leader is low on, as operators and the clients of connection.blocked read it.
CONTACT = "contact with etcd"
# The loop's highest priority: the watcher is called before those of sockets and timers of the same turn.
FIRST = 2
# Shown in place of more seconds: a lease that is lost has a deadline of -inf.
MOST_S = 1e6
# Answer of a deposed leader to promises that it did not keep.
DEPOSED = "this node leads no more, and nobody knows whether its successor has this"


boot_time_s = partial(time.clock_gettime, time.CLOCK_BOOTTIME)
"""Seconds of the clock that goes on while the machine sleeps. Read in each turn of the loop."""


class Leadership:
    """A leader's promises and deliveries, as long as it leads. ``in_sync``: of the present election;
    ``lease``: the present one; ``promises``: core.promises.Promises.

    ``opened``: an Event that is set once doors may open. ``is_fenced``: see above; True at first.
    """

    def __init__(
            self, coordinator: Coordinator, promises: Any, lease: Lease, in_sync: InSync, min_isr: int = 1,
            clock: Any = boot_time_s):
        self.in_sync = in_sync
        self.promises = promises
        self.opened = Event()
        self.is_fenced = True
        self._coordinator = coordinator
        self._lease = lease
        self._min_isr = min_isr
        self._clock = clock
        self._leads = True  # as far as is known
        self._gate: Any = None
        self._alarms: Any = None
        self._leader: Any = None
        self._holds: Any = None
        self._has_ended = False
        self._stepping: Any = None  # greenlet
        self._check: Any = None  # libev watcher
        self._wake = Event()
        self._quiet = QuietLog(LOG)

    # life

    def start(self) -> None:
        """Begin to look at the clock and to call ``step``."""
        self._check = gevent.get_hub().loop.check(priority=FIRST)
        self._check.start(self._look_at_clock)
        self._stepping = gevent.spawn(self._run)
        self._stepping.name = "cluster: in-sync set"

    def serve(self, gate: Any, alarms: Any, leader: Any, holds: Any) -> None:
        """Steer the hub's Gate and the broker's Alarms from now on. ``leader``: the cluster.leader.Leader,
        which knows the followers. ``holds``: the PublisherHolds. Must be called before doors open. Does not
        switch.
        """
        self._gate, self._alarms, self._leader, self._holds = gate, alarms, leader, holds
        if self.is_fenced:
            gate.shut()
        self._apply()

    def renew(self, lease: Lease, in_sync: InSync) -> None:
        """Go on with a new election: it was won while nobody else was elected."""
        self._lease, self.in_sync = lease, in_sync
        self._wake.set()
        self._apply()

    def know(self, leads: bool) -> None:
        """Tell whether etcd says that this node leads. While it does not, the leader is fenced."""
        self._leads = leads
        self._apply()

    def refresh(self) -> None:
        """Look again at the lease, which has been renewed or lost."""
        self._apply()

    def end(self) -> None:
        """Deliver and promise nothing any more, for ever: all promises are refused. Does not switch."""
        self._has_ended = True
        self._apply()
        self.promises.refuse(ClusterError(DEPOSED))
        self.stop()

    def stop(self) -> None:
        """End the greenlet and the watcher, and leave everything as it is."""
        if self._check is not None:
            self._check.stop()
            self._check.close()
            self._check = None
        if self._stepping is not None and self._stepping is not gevent.getcurrent():
            self._stepping.kill(block=False)

    @property
    def lease_left_s(self) -> float:
        """Seconds until the deadline of the lease; below 0: seconds since then."""
        return max(-MOST_S, min(MOST_S, self._lease.deadline_s - self._clock()))

    # the in-sync set

    def _run(self) -> None:
        while True:
            try:
                self.step()
            except Exception:
                LOG.exception("the in-sync set could not be looked at; it is tried again")
            self._wake.wait(STEP_S / 2)
            self._wake.clear()

    def step(self) -> None:
        """Change ``isr`` where followers have come, gone or stopped. Does not wait for the change."""
        in_sync = self.in_sync
        if self._leader is not None:
            for node in self._leader.take_leavers():
                in_sync.leave(node)
        progress = {} if self._leader is None else self._leader.progress
        transaction = in_sync.step(self._clock(), progress, self.promises.wanted, self.promises.promised)
        self._apply()
        if transaction is not None:
            gevent.spawn(self._change, in_sync, transaction).name = "cluster: changes the in-sync set"

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
        """Shut or open the gate, hold or keep promises, by what is known now. Does not switch."""
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
        if knows:
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
