"""Program: a run of a node, which does with the cluster's core what the broker's runtime does.

Tasks: one reads what etcd has and does what the Elector says, one keeps the lease, one changes ``isr``, one
follows the leader, one flushes, and where the doors are open one is a client.
"""
from functools import partial

from gomq_py.cluster.core import elector as electors
from gomq_py.cluster.core.elector import Elector
from gomq_py.cluster.core.in_sync import InSync, Progress
from gomq_py.cluster.core.lease import Lease
from gomq_py.cluster.core.promises import Promises
from gomq_py.cluster.core.transactions import CoordinatorError, Unanswered
from tests.cluster_simulation.folder import BARRIER
from tests.cluster_simulation.link import Follower, Link
from tests.cluster_simulation.world import Event, Process

POLL_S = 2.0
STEP_S = 0.2
SEND_S = 0.04
NO_ANSWER = Unanswered, CoordinatorError


class Program(Process):
    """``run``: number of this run, unlike any other. ``world.judge`` is told what is promised."""

    def __init__(self, world, node, run):
        super().__init__(world, node)
        self.run = run
        self.folder = node.folder
        self.follower = Follower(self)
        self.elector = Elector(
            self.folder.node_id, self.folder.cluster, self.folder.epoch, node.address,
            not self.folder.is_torn, world.random.random() < 0.1, self.folder.position)
        self.lease = Lease(world.lease_ttl_s)
        self.leads = None  # the elector's Lead that is acted upon
        self.was_elected = False  # and not deposed since
        self.is_leading_now = False  # the last view was one of a leader that has nothing to wait for
        self.in_sync = None
        self.promises = Promises()
        self.links = {}  # node id -> Link
        self.base = 0  # operations before the first position of this run
        self.has_booted = self.are_doors_open = False
        self._wake = Event(self)
        self._appended = Event(self)
        self._unflushed = []  # records
        self._movable = []  # records that were promised
        self._watch = world.etcd.watch(self._changed)
        for task in (self._decide(), self._keep_lease(), self._change_set(), self.follower.flushes()):
            self.spawn(task)

    def clock_s(self):
        """What the node takes for the time."""
        return self.world.now_s + self.node.clock_offset_s

    def end(self):
        """The process is killed."""
        self.is_alive = False
        self._watch.close()
        self.world.listening.pop(self.node.address, None)

    def _changed(self):
        if self.world.random.random() < 0.9 and not self.world.is_cut("etcd", self.node.name):
            self.after(self.world.delay_s(), self._wake.set)

    def told(self):
        """Tell the elector how the folder is now."""
        folder = self.folder
        self.elector.folder(
            folder.cluster, folder.epoch, not folder.is_torn, self.elector.is_damaged,
            position=folder.position)

    # what the elector decides

    def _decide(self):
        while True:
            since = self.elector.revision
            again_s = None
            try:
                view = yield self.world.ask_etcd(self, self.world.etcd.read)
                decision = self._viewed(view, since)
                while decision is not None:
                    if isinstance(decision, electors.Wait):
                        again_s = decision.again_s
                    decision = yield from self._act(decision)
            except NO_ANSWER:
                again_s = 0.2
            yield self._wake.wait(POLL_S if again_s is None else min(again_s + 0.001, POLL_S))

    def _viewed(self, view, since):
        before = self.was_elected
        decision = self.elector.viewed(view, self.clock_s(), since, self.follower.hears_leader())
        self.was_elected = isinstance(decision, electors.Lead) or (
            before and not isinstance(decision, electors.Deposed))
        self.is_leading_now = isinstance(decision, electors.Lead) and (
            self.leads is not None and decision.revision == self.leads.revision)
        if before:
            self._hold()
        return decision

    def _act(self, decision):
        """Do it. Returns the next decision, or None."""
        if isinstance(decision, electors.Follow):
            self.follower.follow(decision.address)
        elif isinstance(decision, electors.Campaign):
            return (yield from self._campaign(decision))
        elif isinstance(decision, electors.Clear):
            return (yield from self._transact(decision.transaction))
        elif isinstance(decision, electors.Lead):
            if self.leads is None or decision.revision != self.leads.revision:
                yield from self._lead(decision)
            elif decision.mend is not None:
                return (yield from self._transact(decision.mend))
        elif isinstance(decision, electors.Deposed):
            self.world.note("%s is deposed: %s", self.node, decision.reason)
            self.promises.refuse(RuntimeError("deposed"))
            self.node.restart()
        return None

    def _campaign(self, campaign):
        self.world.note("%s: %s for %d %s", self.node, type(campaign).__name__, campaign.record.epoch,
                        dict(campaign.record.members))
        if self.leads is None:
            self.follower.follow(None)
            yield from self._flush_all()
        if not self.elector.lease:
            ttl_s = self.world.lease_ttl_s
            lease, sent_s = Lease(ttl_s), self.clock_s()
            lease.sent(sent_s)
            granted = yield self.world.ask_etcd(self, self.world.etcd.grant, ttl_s)
            lease.answered(sent_s, True)
            self.lease, self.elector.lease = lease, granted
        extra = {"new_cluster_id": self.world.new_id()} if isinstance(campaign, electors.Bootstrap) else {}
        return (yield from self._transact(campaign.transaction(self.elector.lease, **extra)))

    def _transact(self, transaction):
        since = self.elector.revision
        outcome = yield self.world.ask_etcd(self, self.world.etcd.transact, transaction)
        return self._viewed(outcome.view, since)

    def _flush_all(self):
        yield self.world.flush_s()
        self.folder.flush_all()

    # a leader

    def _lead(self, leads):
        is_first = self.leads is None
        self.world.note("%s: %s", self.node, leads)
        self.promises.hold(True)
        self.in_sync = None
        if is_first:
            self.follower.follow(None)
            yield from self._flush_all()
        yield self.world.flush_s()
        self.folder.raise_epoch(leads.epoch, leads.cluster)
        self.told()
        if not self.was_elected:  # meanwhile deposed
            return
        if is_first:
            self.base = len(self.folder.operations)
        for link in list(self.links.values()):
            link.end()
        self.leads, self.is_leading_now = leads, True
        self.in_sync = InSync(
            self.elector.node, leads.epoch, leads.revision, leads.record, leads.mod_revision,
            self.world.min_isr, self.world.ack_timeout_s, leads.former)
        self._require()
        if is_first:
            self.spawn(self._boot())

    def _boot(self):
        yield self.world.boot_s()
        self.has_booted = True
        self.world.listening[self.node.address] = self
        for task in (self._send(), self._flush(), self._client(), self._fence(), self._note()):
            self.spawn(task)

    def _require(self):
        if self.in_sync is not None:
            self.promises.require(self.in_sync.required)
            self._hold()

    def _hold(self):
        self.promises.hold(
            self.in_sync is None or not self.is_leading_now or self.lease.is_past(self.clock_s())
            or not self.in_sync.may_promise)

    def _fence(self):
        while True:
            self._hold()
            yield 0.1

    def _keep_lease(self):
        while True:
            lease, lease_id = self.lease, self.elector.lease
            if lease_id and lease.is_due(self.clock_s()):
                sent_s = self.clock_s()
                lease.sent(sent_s)
                try:
                    is_alive = yield self.world.ask_etcd(self, self.world.etcd.keep_alive, lease_id)
                except NO_ANSWER:
                    is_alive = None
                if is_alive is not None:
                    lease.answered(sent_s, is_alive)
                if is_alive is False and lease_id == self.elector.lease:
                    self.elector.lease = 0
                    self._wake.set()
            yield self.world.lease_ttl_s / 10

    def _change_set(self):
        while True:
            yield STEP_S
            in_sync = self.in_sync
            if in_sync is None or not self.has_booted:
                continue
            transaction = in_sync.step(
                self.clock_s(), self._progress(), self.promises.asked, self.promises.promised)
            self._require()
            if transaction is not None:
                try:
                    outcome = yield self.world.ask_etcd(self, self.world.etcd.transact, transaction)
                except Unanswered:
                    in_sync.unanswered()
                except CoordinatorError:
                    in_sync.not_done()
                else:
                    in_sync.done(outcome)
                    self.world.note("%s: isr %s", self.node, dict(in_sync.members))
            self._require()
            if in_sync.is_deposed:
                self._wake.set()
            elif (
                in_sync is self.in_sync and in_sync.is_open and not self.are_doors_open
                and not self.lease.is_past(self.clock_s())
            ):
                self.are_doors_open = True
                self.world.judge.opened(self)

    def _progress(self):
        epoch = self.leads.epoch
        return {
            node: Progress(
                link.flushed, link.is_synced and link.epoch == epoch, not link.is_ended, link.noted)
            for node, link in self.links.items()
        }

    def _note(self):
        while True:
            yield self.world.note_s
            in_sync, position = self.in_sync, self.base + self.promises.promised
            yield self.world.flush_s()
            if in_sync is self.in_sync and in_sync is not None and position > self.folder.position:
                self.folder.position = in_sync.noted = position
                self.told()

    # a leader's data

    def _client(self):
        random = self.world.random
        while True:
            yield random.uniform(0.05, 0.3)
            if self.are_doors_open:
                for _ in range(random.choice((1, 1, 3))):
                    self._publish(self.world.new_record())

    def _publish(self, record):
        self.folder.operations.append(record)
        self._unflushed.append(record)
        self._appended.set()

    def _flush(self):
        folder, random = self.folder, self.world.random
        while True:
            yield self._appended.wait(POLL_S)
            end = len(folder.operations)
            if end == folder.flushed:
                continue
            records, self._unflushed = self._unflushed, []
            moved = self._movable.pop() if self._movable and random.random() < 0.3 else None
            if moved is not None:
                folder.operations.append(("copy", moved))
                end += 1
            yield self.world.flush_s()
            folder.flush(self.base, end)
            if moved is not None:
                folder.operations += [BARRIER, ("drop", moved)]
            if records:
                self.promises.ask(end - self.base, partial(self._promised, records))

    def _promised(self, records, error):
        if error is None:
            self._movable.append(records[-1])
            self.world.judge.promised(self, records)

    def log_in(self, follower, hello):
        """A follower's login. Returns its Link; None: it is refused."""
        if self.in_sync is None or hello.cluster not in ("", self.folder.cluster):
            return None
        if hello.epoch > self.leads.epoch:
            return None
        if hello.node_id in self.links:
            self.links[hello.node_id].end()
        place = hello.place if hello.run == self.run and hello.place <= len(self.folder.operations) else None
        link = self.links[hello.node_id] = Link(self, follower, hello.node_id, self.leads.epoch, place)
        return link

    def acknowledged(self, link, flushed):
        """A follower has flushed so many operations."""
        position = max(0, flushed - self.base)
        link.is_synced = True
        link.flushed = position
        self.promises.acknowledged(link.node_id, position)

    def _send(self):
        while True:
            for link in self.links.values():
                link.send(self.folder.operations)
            yield SEND_S
