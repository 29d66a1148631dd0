"""Mutants of what is on the disk, and of when that is told: see mutants. Some are put into the files of the
simulation, through which all of the broker's calls go.
"""
import os
from functools import partial

import gevent

from gomq_py.storage.flush.durability import Durability
from gomq_py.storage.flush import group_commit
from gomq_py.storage.flush.batch import FlushFailures
from gomq_py.storage.flush.group_commit import GroupCommit
from gomq_py.storage.flush.batch import NameChanges
from gomq_py.storage.stores.stream_store import StreamStore
from tests.simulation.disk import ProcessFiles
from tests.simulation.follower import Follower


def read_at_boot_is_not_written_again():
    """What a flush that failed has lost is still in the cache, and the next boot builds upon it."""
    ProcessFiles.write_again = lambda files, file, start, end: None


def names_not_flushed():
    """Of new files and folders."""
    GroupCommit.mark_folder = lambda commit, path: None


def segment_named_late():
    """A new segment has its name some time after what is in it was confirmed."""
    change = NameChanges.change

    def late(names, changes, done=None, soon=False):
        if getattr(done, "__name__", "") == "named":
            gevent.spawn_later(0.1, change, names, changes, done, soon)
        else:
            change(names, changes, done, soon)

    NameChanges.change = late


def stream_read_before_its_segment_has_its_name():
    """Readers are shown what a kill takes away."""
    StreamStore.has_name = lambda store, segment: True


def barrier_early():
    """What is changed while a flush runs is answered with that one."""
    when_safe = Durability.when_safe

    def early(durability, callback, *arguments, **options):
        if not durability.disk._is_syncing:
            return when_safe(durability, callback, *arguments, **options)
        durability.disk._in_flight.append(callback)
        return None

    Durability.when_safe = early


def acks_not_flushed():
    """But where somebody waits for them."""
    GroupCommit.mark_acks = lambda commit, store: None


def failed_flush_is_forgotten():
    """The next one of the same file succeeds, and says nothing of what the first one has lost."""
    FlushFailures.error_of_logs = lambda failures: None
    group_commit.tell = lambda store, failures: store.synced()


def log_not_flushed():
    """Definitions are answered when they are written."""
    sync = ProcessFiles.sync
    ProcessFiles.sync = lambda files, file, *more: sync(files, file, *more) if file.room is None else None


def part_of_a_write_counts_as_all():
    """The system took less than it was given."""
    ProcessFiles._write = lambda files, file, at, octets: files._write_once(file, at, memoryview(octets))


def message_told_behind_the_question():
    """A follower says that it has what it was told of, and is told of the message next."""
    _told_late("msgs.")


def definitions_told_behind_the_question():
    """The same, of what is written behind the log."""
    _told_late("definitions")


def _told_late(prefix, for_s=0.05):
    """Writes into files with such names are told some time later, or before the next other change."""
    told, begin, held = Follower._told, Follower.begin, []

    def release(follower):
        while held:
            told(follower, *held.pop(0))

    def begin_anew(follower, process):
        held.clear()
        begin(follower, process)

    def late(follower, what, *arguments):
        if what == "written" and os.path.basename(arguments[0]).startswith(prefix):
            held.append((what, *arguments))
            told(follower, "flushed")  # counts as the event that it was asked for
            follower._process.after(for_s, partial(release, follower))
            return
        release(follower)
        told(follower, what, *arguments)

    Follower._told, Follower.begin = late, begin_anew
