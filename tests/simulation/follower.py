"""Follower: a machine that has a copy of the data folder of another one, the leader's, and takes its place
when that is lost; in a share of the seeds.

It copies the folder when a process of the leader boots. From then on it knows what the file seam tells its
listeners, nothing else: each event is on its way for a while, and they come in order. The broker asks it as
an acknowledger: an answer leaves when the events up to the position that it was asked for have come.

Its disk keeps all that has come, and its power is not cut. It follows names, not identifiers of files.
"""
import os
import shutil
from collections import deque

from gomq_py.storage.disk.data_dir import LAST_RUN, LOCK, SEGMENTS
from gomq_py.storage.disk.replication import Replicator
from tests.simulation.threads import this_thread
from tests.simulation.world import without_places
from tests.support.mirror import Mirror

SHARE = 0.1  # of seeds
# Seconds until something more comes, how many events that is, and how long nothing may come.
COMES_S = (0.0, 50e-6, 500e-6, 5e-3)
EVENTS = (1, 3, 20, None)
PAUSE_SHARE, PAUSE_S = 0.01, 0.2
OFTEN_SHARE = 0.3  # of pauses, where a run is about them
# What was told so long ago has come: a ledger counts on it (ledger.ACK_FLUSH_S).
LATE_S = 0.2
# What is about one machine, and written around the seam.
OWN = LAST_RUN, f"{LAST_RUN}.next", LOCK, SEGMENTS


class Follower(Replicator):
    """Of a Machine. ``when_answered()``: called behind the next answer to the process that leads, or None."""

    when_answered = None
    pause_share = PAUSE_SHARE

    def __init__(self, world, folder):
        self._world = world
        self._random = world.random("follower's way")
        self._folder = folder
        self._process = self._mirror = None
        self._copies = 0
        self._on_its_way = deque()  # (when it was told, method of the mirror, its arguments)
        self._questions = deque()  # (position, callback)
        self._answers = deque()
        self._told_count = self._come_count = 0
        self._is_coming = False

    def __str__(self):
        return "follower"

    # what it is told, by the process that leads

    def created(self, file_id, path, size):
        self._told("created", file_id, path, size)

    def folder_created(self, path):
        self._told("folder_created", path)

    def appended(self, file_id, file, start, end):
        octets = file.read(start, end)
        if len(octets) != end - start:
            self._world.find(f"the follower is told of {start}..{end}, {len(octets)} are there: {file.path}")
        self._told("written", file.path, start, octets)

    overwritten = appended

    def resized(self, file_id, path, size):
        self._told("resized", file_id, path, size)

    def renamed(self, file_id, source, target):
        self._told("renamed", file_id, source, target)

    def unlinked(self, file_id, path):
        self._told("unlinked", file_id, path)

    def folder_removed(self, path):
        self._told("folder_removed", path)

    def diverged(self):
        self._told("diverged")

    def flushed(self):
        self._told("flushed")

    def when_safe(self, position, callback):
        """As an acknowledger."""
        if position > self._told_count:
            self._world.find(f"the follower is asked for event {position} of {self._told_count}")
        self._questions.append((position, callback))
        self._look_at_questions()

    # what the world does with it

    def begin(self, process):
        """A process of the leader boots, over a folder that may be behind what was told, or ahead of it."""
        self._process = process
        self.when_answered = None
        self._on_its_way.clear()
        self._questions.clear()
        self._answers.clear()
        self._told_count = self._come_count = 0
        self._copy()

    def take_over(self, root):
        """The leader is lost: have this folder hold what has come. Of what is on its way some still comes."""
        there = len(self._on_its_way)
        count = self._random.choice((0, there, self._random.randrange(there + 1)))
        self._world.say("follower", f"takes over without {there - count} events")
        self._comes(count)
        shutil.move(self._mirror.copy, root)
        self._mirror = None
        self._on_its_way.clear()

    def differences(self):
        """In which files its copy is not like the leader's folder, once everything has come."""
        self._comes(len(self._on_its_way))
        return self._mirror.differences()

    # helpers

    def _copy(self):
        if self._mirror is not None:
            shutil.rmtree(self._mirror.copy)
        self._copies += 1
        source, copy = self._process.machine.disk.root, os.path.join(self._folder, f"copy{self._copies}")
        shutil.copytree(source, copy, ignore=lambda folder, _: OWN if folder == source else ())
        self._mirror = Mirror(source, copy)

    def _told(self, what, *arguments):
        if this_thread() is not None:
            self._world.find(f"the follower is told in a thread: {what} {arguments[:1]}")
        self._told_count += 1
        self._on_its_way.append((self._world.now_s, what, arguments))
        self._go_on()

    def _go_on(self):
        if self._on_its_way and not self._is_coming:
            self._is_coming = True
            is_pause = self._random.random() < self.pause_share
            self._world.after(PAUSE_S if is_pause else self._random.choice(COMES_S), self._some_come)

    def _some_come(self):
        self._is_coming = False
        count = self._random.choice(EVENTS) or len(self._on_its_way)
        late_s = self._world.now_s - LATE_S
        late = sum(told_s < late_s for told_s, _, _ in self._on_its_way)
        self._comes(max(count, late))
        self._go_on()

    def _comes(self, count):
        for _ in range(min(count, len(self._on_its_way))):
            _, what, arguments = self._on_its_way.popleft()
            self._come_count += 1
            try:
                getattr(self._mirror, what)(*arguments)
            except (OSError, AssertionError) as error:
                self._cannot_repeat(f"{what} {arguments[:2]}: {error!r}")
                self._look_at_questions()
                return
            self._look_at_questions()

    def _look_at_questions(self):
        """Have those answers leave that the events which have come suffice for."""
        while self._questions and self._questions[0][0] <= self._come_count:
            self._answers.append(self._questions.popleft()[1])
            self._process.after(self._random.choice(COMES_S), self._answer)

    def _answer(self):
        """One more: they come back in order."""
        if self._answers:
            self._answers.popleft()(None)
            when_answered, self.when_answered = self.when_answered, None
            if when_answered is not None:
                when_answered()

    def _cannot_repeat(self, what):
        """Begin anew with another copy, or go without the rest if the leader is lost."""
        if not self._process.has_failed_disk:
            self._world.find(f"the follower cannot repeat what it is told: {what}")
            return
        # Two things that the seam does not promise where a disk fails: nobody is told of a change of a name
        # that was made and reported as failed (a folder: seed 252), and a log that was given up may lose its
        # name in one thread while another one makes a new log: "created" is told before "unlinked" (328).
        self._world.say("follower", without_places(f"begins anew, because it cannot repeat {what}"))
        self._world.counts["copied anew"] += 1
        if self._process.is_alive:
            self._copy()
            self._come_count = self._told_count
        self._on_its_way.clear()
