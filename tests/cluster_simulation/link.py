"""Link between a leader and a follower, and what a follower does: sync, apply, flush, acknowledge."""
from typing import NamedTuple

from tests.cluster_simulation.folder import BARRIER

HEARTBEAT_S = 0.5
SILENT_S = 2.0
HEARING_S = 1.0


class Hello(NamedTuple):
    """``place``: operations that the follower has of the run ``run``."""

    node_id: str
    cluster: str
    epoch: int
    run: int
    place: int


class Link:
    """A connection. ``place``: how many operations the follower has; None: it needs a sync. ``flushed``,
    ``noted``, ``is_synced``: as the leader knows them.
    """

    def __init__(self, leader, follower, node_id, epoch, place):
        self.leader, self.follower, self.node_id, self.epoch = leader, follower, node_id, epoch
        self.needs_sync = place is None
        self.is_synced, self.flushed, self.noted = False, 0, 0
        self.is_ended = False
        self._is_begun = self._is_broken = False
        self._sent = 0 if place is None else place
        self._sync_until = len(leader.folder.operations) if place is None else 0
        self._sent_s = self._heard_s = leader.world.now_s
        self._arrives_s = {}  # process -> when the last message arrives there

    def begin(self):
        """The follower is ready."""
        self._deliver(self.follower.program, self.leader, setattr, self, "_is_begun", True)

    def send(self, operations):
        """Send what is new."""
        now_s = self.leader.world.now_s
        if self.is_ended:
            return
        if now_s - self._heard_s > SILENT_S:
            self.end()
            return
        if not self._is_begun:
            return
        end = len(operations)
        if self._sent < self._sync_until:
            end = min(self._sync_until, self._sent + max(1, self._sync_until // 4))
        if end > self._sent or now_s - self._sent_s >= HEARTBEAT_S:
            part, self._sent, self._sent_s = operations[self._sent:end], end, now_s
            self._deliver(
                self.leader, self.follower.program, self.follower.received, self, part,
                self.needs_sync and end >= self._sync_until)

    def acknowledge(self, flushed, noted):
        """The follower has flushed so many operations, and noted a position; None: it is alive."""
        self._deliver(self.follower.program, self.leader, self._acknowledged, flushed, noted)

    def _acknowledged(self, flushed, noted):
        self._heard_s = self.leader.world.now_s
        if not self.is_ended and flushed is not None and self.epoch == self.leader.leads.epoch:
            self.noted = noted
            self.leader.acknowledged(self, flushed)

    def end(self):
        """Either side ends it; the other one hears of it, unless they are cut off."""
        if not self.is_ended:
            self.is_ended = True
            self._deliver(self.leader, self.follower.program, self.follower.link_ended, self)

    def _deliver(self, source, target, function, *arguments):
        world = source.world
        if world.is_cut(source.node.name, target.node.name):
            self._is_broken = True  # what was lost comes no more, nor anything behind it
        if not self._is_broken:
            arrives_s = max(world.now_s + world.delay_s(), self._arrives_s.get(target, 0))
            self._arrives_s[target] = arrives_s
            target.after(arrives_s - world.now_s, function, *arguments)


class Follower:
    """The follower's side, for the life of a program."""

    def __init__(self, program):
        self.program = program
        self.world, self.folder = program.world, program.folder
        self._address = None
        self._link = None
        self._attempt = 0
        self._run = 0  # of the leader whose operations the folder has
        self._heard_s = -100.0
        self._staging = None
        self._is_whole = False  # the staging is
        self._may_acknowledge = False
        self._noted_s = self.world.now_s

    def hears_leader(self):
        """Whether the leader was heard within a second."""
        return self.world.now_s - self._heard_s < HEARING_S

    def follow(self, address):
        """Follow the leader at an address; None: end the link."""
        if address != self._address:
            self._address = address
            self._end()

    def _end(self):
        link, self._link = self._link, None
        self._staging = None
        self._attempt += 1
        if link is not None:
            link.end()
        if self._address is not None:
            self.program.spawn(self._connect(self._attempt))

    def link_ended(self, link):
        """The leader has ended it."""
        if link is self._link:
            self._end()

    def _connect(self, attempt):
        name = self.program.node.name
        while attempt == self._attempt:
            yield self.world.random.uniform(0.02, 0.3)
            leader = self.world.reached(self._address)
            if leader is None or self.world.is_cut(name, leader.node.name) or self.world.is_cut(
                    leader.node.name, name):
                continue
            folder = self.folder
            hello = Hello(
                folder.node_id, folder.cluster, folder.epoch, self._run, len(folder.operations))

            def log_in(done, leader=leader, hello=hello):
                self.program.after(1.0, done)
                leader.after(self.world.delay_s(), lambda: answer(leader.log_in(self, hello)))

                def answer(link):
                    self.program.after(self.world.delay_s(), done, link)

            answered = []

            def once(done, begin=log_in, answered=answered):
                def first(value=None):
                    if not answered:
                        answered.append(True)
                        done(value)
                begin(first)

            link = yield once
            if link is not None and attempt == self._attempt:
                if self.takes(link):
                    yield from self._begin(link, attempt)
                    return
                link.end()

    def takes(self, link):
        """Whether the leader is one to follow."""
        return link.epoch >= self.folder.epoch and not link.is_ended

    def _begin(self, link, attempt):
        self.world.note("%s follows %s in %d%s", self.program.node, link.leader.node, link.epoch,
                        " with a sync" if link.needs_sync else "")
        self._link = link
        self._heard_s = self.world.now_s
        self._may_acknowledge = not link.needs_sync
        link.begin()
        if link.needs_sync:
            self._staging, self._is_whole = [], False
            self._run = 0
        elif link.epoch > self.folder.epoch:
            self._may_acknowledge = False
            yield self.world.flush_s()
            if attempt == self._attempt:
                self._raise(link.epoch)
                self._may_acknowledge = True

    def _raise(self, epoch):
        self.folder.raise_epoch(epoch)
        self.program.told()

    def received(self, link, operations, is_whole):
        """Operations have come."""
        if link is not self._link:
            return
        self._heard_s = self.world.now_s
        if self._staging is not None:
            self._stage(operations)
            self._is_whole = self._is_whole or is_whole
        else:
            for operation in operations:
                self._apply(operation)

    def _stage(self, operations):
        self._staging += operations

    def _apply(self, operation):
        if operation == BARRIER:
            self.folder.flush_all()
        self.folder.operations.append(operation)

    def flushes(self):
        """The task that flushes and acknowledges."""
        while True:
            yield self.world.random.uniform(0.02, 0.06)
            link = self._link
            if link is None:
                continue
            if self.world.now_s - self._heard_s > SILENT_S:
                self._end()
                continue
            if self._staging is not None:
                if self._is_whole:
                    yield from self._swap(link)
            elif self.folder.flushed < len(self.folder.operations):
                yield from self._flush(link)
            if self._may_acknowledge and self.world.now_s - self._noted_s > self.world.note_s:
                yield from self._note(link)
            if link is self._link:
                link.acknowledge(
                    self._acknowledges() if self._may_acknowledge else None, self.folder.position)

    def _acknowledges(self):
        return self.folder.flushed

    def _swap(self, link):
        flushed = len(self._staging)
        yield self.world.flush_s()
        if link is self._link:
            staged, self._staging = self._staging, None
            self.folder.swap(staged[:flushed], link.leader.folder.cluster, link.epoch)
            for operation in staged[flushed:]:
                self._apply(operation)
            self._run = link.leader.run
            self._may_acknowledge = True
            self.program.told()
            self.world.judge.has_other_state(self.program.node)
            self.world.note("%s has synced with %s", self.program.node, link.leader.node)

    def _note(self, link):
        position, self._noted_s = self.folder.flushed, self.world.now_s
        yield self.world.flush_s()
        if self._staging is None and link is self._link:
            self.folder.position = position
            self.program.told()

    def _flush(self, link):
        end = len(self.folder.operations)
        yield self.world.flush_s()
        if self.program.node.is_disk_ill and self._staging is None and link is self._link:
            self.folder.fail_flush()
            self.program.told()
            self._run = 0  # the next link begins with a sync
            self._end()
            return
        if self._staging is None and link is self._link:
            self.folder.flushed = max(self.folder.flushed, end)
