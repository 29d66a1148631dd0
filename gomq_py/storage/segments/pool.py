"""Segment pool: pairs of segment files waiting to be used, emptied ones and new ones that were made ahead of
need, one pool per broker.

Fresh pages cost more than all else an append does (1.6x at 16-octet messages, 2.3x at 1 KiB), so segments go
round: fd and mapping kept, file renamed into place. What makes that safe: a new generation in the head seeds
every checksum; a pair that ever held something durable is used again only after the names of both its files
were flushed where they left from; only pairs made in this run go round; nobody holds them.

Making a pair and giving one's room back to the disk take milliseconds, tens of them while the disk is busy:
both are done aside, in a thread. A writer says in time that it will roll (``expect``), and the roll takes
what is there. Emptied ones lose their names in the committer's threads, too, before its next flush. Between
message_store and files; never flushes by itself.
"""
import errno
import os
import time
from collections import Counter, deque
from itertools import islice, takewhile

import gevent

from gomq_py.observability.log import logger
from gomq_py.storage.disk.data_dir import POWER_LOST
from gomq_py.storage.format.acks import capacity_for
from gomq_py.storage.format.head import HEAD_BYTES
from gomq_py.storage.segments.damage import DamageNotes
from gomq_py.storage.segments.idle import Resting
from gomq_py.storage.segments.opening import Openings
from gomq_py.storage.segments.stage import Stage

LOG = logger("storage")

SEGMENT_BYTES = 8 * 1024 * 1024

# A queue's first segment, and how much larger each next one is until segment_bytes:
# many queues hold only a few messages.
FIRST_SEGMENT_BYTES = 65536
SEGMENT_GROWTH = 8

# 8 pairs are about 75 MiB of disk and kept one busy queue from ever waiting for a fresh segment.
KEPT_PAIRS = 8
# Of each smaller size, some 10 MiB in all: a queue needs each of them once.
KEPT_SMALL_PAIRS = 2
# A pair is made ahead where the disk has room for this many more: nobody else's last room is taken.
ROOM_FOR_PAIRS = 8

# Of those who wait for files of one size so many have theirs made in one trip to a thread, of at most so many
# octets; a pair takes 1 to 3 ms. A trip takes a turn of the hub each way, 10 to 20 ms under load: one by one,
# a thousand new queues that are published to at once waited for 16 s.
TOGETHER = 32
TOGETHER_BYTES = 8 * 1024 * 1024
# On a slow disk a trip ends after this time, for whoever waits for files of another size or kind.
TOGETHER_S = 0.1

# Which files of the pool a writer takes: None for pairs, the folder of files without names, or one of these:
# those of streams, which have no acks; pairs that are written with calls, so that new ones need no pages in
# the system's cache. Pairs are one stock, of which whoever comes first takes one: how those that are made
# ahead are made, most of those who expect them say.
ALONE = "alone"
UNCACHED = "uncached"


class SegmentPool:
    """Hands out pairs of files for new segments and takes back emptied ones.

    ``folder`` is the pool's own and holds nothing else.

    ``in_threads=False``: nothing is made ahead, and what is given back goes at once, for whoever compares
    folders between two steps. ``start_timer`` as in Resting. ``stage``: the broker's.
    """

    def __init__(
        self, folder, files, committer=None, segment_bytes=SEGMENT_BYTES, kept_pairs=KEPT_PAIRS,
        in_threads=True, start_timer=None,
    ):
        self.folder = os.fspath(folder)
        self.files = files
        self.committer = committer
        self.segment_bytes = segment_bytes
        self.resting = Resting(start_timer)
        self._aside = committer.aside if committer is not None and in_threads else None
        self.openings = Openings(
            None if self._aside is None else getattr(committer, "aside_for_readers", None), start_timer
        )
        self._kept = {size: KEPT_SMALL_PAIRS for size in growth(segment_bytes)} | {segment_bytes: kept_pairs}
        self._pairs = {size: [] for size in self._kept}
        self._unnamed = {size: [] for size in self._kept}
        self._alone = {size: [] for size in self._kept}
        self._expected = {}  # (msgs_bytes, shelf) -> how many writers will need such files soon
        self._uncached = Counter()  # msgs_bytes -> how many of these will write them with calls
        # the same -> (folders, callback) of writers who wait for them, each for one and for its folders
        self._waiting = {}
        self._in_making = set()  # of these
        self._naming = {}  # folder -> files for it that were taken and have not got their names yet
        self._at_once = set()  # folders whose files get their names when they are taken
        # pairs of which the msgs file is on its way here, or has come before the acks file
        self._coming = dict.fromkeys(self._kept, 0)
        # queue folder -> its Retiring pairs, whose msgs file is about to leave,
        # or has left and that is to be flushed
        self._retiring = {}
        self.stage = Stage()
        self._closed = False
        # How the last run ended, for recovery at boot: what only a loss of power
        # explains is no fault after one.
        self.last_end = POWER_LOST
        # queue folder -> segment_list.Listed of what the last run left there, for recovery at boot
        self.listed = {}
        # queue folder -> {number of a segment that boot found emptied: see recovery.Recovery};
        # None: the boot is over
        self.settled = {}
        self.damage = DamageNotes()
        self._numbers = 0
        self._generation = int.from_bytes(os.urandom(7), "little")
        self._clear_folder()

    def next_generation(self):
        """A number that no segment had before."""
        self._generation += 1
        return self._generation

    def take(self, msgs_path, acks_path, msgs_bytes, failed=None):
        """Two mapped files for a segment of this size, which have these names, or get them before the next
        sync flushes. Raises OSError, leaving neither. ``failed(error)`` is called if they cannot get their
        names, and what is in them is lost with them.

        The acks file gets its name first: a process that is killed in between must not leave messages without
        the acks that it has seen.
        """
        return self._take(self._pairs, (msgs_path, acks_path), msgs_bytes, failed)

    def name_at_once(self, folder):
        """What is taken for this folder has its names when ``take`` returns, which blocks for that: a process
        that is killed keeps what is in it. Those that were taken before come first.
        """
        self._at_once.add(folder)

    @property
    def has_unnamed(self):
        """Whether ``is_naming`` is true of any folder."""
        return bool(self._naming)

    def is_naming(self, folder):
        """Whether files were taken for this folder, or for one in it, that have not got their names yet: a
        process that is killed now loses what is in them.
        """
        return any(each == folder or each.startswith(folder + os.sep) for each in self._naming)

    def take_alone(self, msgs_path, msgs_bytes, store):
        """As ``take``, for a segment of a stream: one file. ``store.named()`` is called when it has got its
        name, unless it has it already; ``store.fence(error)`` if it cannot get it.
        """
        return self._take(
            self._alone, (msgs_path,), msgs_bytes, lambda error: store.fence(error), lambda: store.named()
        )[0]

    def take_unnamed(self, folder, msgs_bytes):
        """One mapped file without a name, for a segment of a transient queue."""
        if self._unnamed.get(msgs_bytes):
            return self._unnamed[msgs_bytes].pop()
        return self._with_spares_given_up(self.files.create_unnamed, folder, msgs_bytes)

    def _take(self, ready, paths, msgs_bytes, failed, told=None):
        folder = os.path.dirname(paths[0])
        at_once = folder in self._at_once and folder not in self._naming
        if ready.get(msgs_bytes):
            files = ready[msgs_bytes].pop()
        elif self._naming and not at_once:
            # No name before those of earlier segments, or a kill would leave a hole between them.
            files = self._with_spares_given_up(self._create, self._new_paths()[:len(paths)], msgs_bytes)
        else:
            return self._with_spares_given_up(self._create, paths, msgs_bytes)
        if at_once:
            self._name_at_once(files, paths)
        else:
            self._name(files, paths, failed, told)
        return files

    def _name_at_once(self, files, paths):
        try:
            for file, path in reversed(list(zip(files, paths))):
                self.files.rename(file.path, path, file)
        except OSError:
            for file in files:
                self._uncreate(file)
            raise

    def _name(self, files, paths, failed, told):
        folder = os.path.dirname(paths[0])

        def named(error):
            self._naming[folder] -= 1
            if not self._naming[folder]:
                del self._naming[folder]
            if error is not None:
                self._name_failed(files, failed, error)
            elif told is not None:
                told()

        self._naming[folder] = self._naming.get(folder, 0) + 1
        names = [self.files.renaming(file.path, path, file, True) for file, path in zip(files, paths)]
        self._change(names[::-1], named, soon=True)

    def _with_spares_given_up(self, create, *arguments):
        try:
            return create(*arguments)
        except OSError as error:
            if not is_full(error) or not self._give_up_spares():
                raise
        return create(*arguments)

    # ahead of need

    def keeps(self, msgs_bytes):
        """Whether segments of this size are used again when they are emptied. Others, of a message that is
        larger than usual segments, are not.
        """
        return msgs_bytes in self._kept

    def has(self, msgs_bytes, shelf=None, folders=()):
        """Whether a writer need not wait for such files and these folders: they are there, or no thread makes
        any.
        """
        if self._aside is None or self._closed:
            return True
        return bool(self._ready(shelf).get(msgs_bytes)) and not any(map(self.files.lacks_folder, folders))

    def wait_for(self, msgs_bytes, shelf, folders, callback, store=None):
        """Have a thread make such files, and those of the ``folders`` that are not there, the outer one
        first. ``callback(error or None)`` is called when that is done, or has failed. It must neither switch
        nor raise; files that it does not take are for the next writer. Nothing is made for a ``store`` that
        has ended before its turn comes.
        """
        key = (msgs_bytes, shelf)
        self._waiting.setdefault(key, deque()).append((folders, callback, store))
        self._make_ahead(key)

    def expect(self, msgs_bytes, shelf=None):
        """Have such files made, because a writer will soon take them."""
        key = self._expected_key(msgs_bytes, shelf, 1)
        self._expected[key] = self._expected.get(key, 0) + 1
        self._make_ahead(key)

    def unexpect(self, msgs_bytes, shelf=None):
        """Make none for a writer that was expected: it has taken its files, or is gone."""
        key = self._expected_key(msgs_bytes, shelf, -1)
        self._expected[key] -= 1
        if self._expected[key]:
            self._make_ahead(key)
        else:
            del self._expected[key]

    def _expected_key(self, msgs_bytes, shelf, count):
        if shelf != UNCACHED:
            return msgs_bytes, shelf
        self._uncached[msgs_bytes] += count
        return msgs_bytes, None

    def retire(self, msgs, acks, msgs_path, acks_path, synced):
        """Take the files of an emptied segment: keep the pair, or unlink it.

        ``msgs`` and ``acks`` are None where a file is not open, ``msgs_path`` where there is none.

        If anything of it may be on the disk (``synced``: its octets or its name were flushed), the msgs
        file's name is gone for good before the acks file is touched: a power cut that brought back the one
        without the other would bring back what was acked.
        """
        pair = Retiring(msgs, acks, acks_path)
        folder = os.path.dirname(acks_path)
        self._retiring.setdefault(folder, []).append(pair)
        leaving = [self._leaving(pair, msgs_path)] if msgs_path is not None else []
        if not synced:
            self._finish_retiring(folder, pair, leaving)
            return
        if leaving:
            self._change(leaving, lambda error: self._msgs_left(pair, error))
        self.committer.mark_folder(folder)
        self.committer.after_sync(
            lambda error: self._names_flushed(folder, pair, error), hurry=False, about_logs=False
        )

    def retire_unnamed(self, msgs):
        """Take the file of a transient queue's segment."""
        if (
            msgs.map is not None and not msgs.held
            and len(self._unnamed.get(msgs.size, ())) < self._kept.get(msgs.size, 0)
        ):
            self._unnamed[msgs.size].append(msgs)
        else:
            self.files.close(msgs, self._aside)

    def let_go(self, file):
        """Close a segment's file. Its name stays, or the caller sees to it."""
        self.files.close(file, self._aside)

    def forget(self, folder):
        """The folder is removed with everything in it: forget its pairs."""
        self._at_once.discard(folder)
        for pair in self._retiring.pop(folder, ()):
            for path in (pair.pool_path, pair.acks_path):
                if path is not None and os.path.dirname(path) == self.folder:
                    self._change([self.files.unlinking(path)], _nothing)
            self._keep_out(pair)
            self._close(pair)

    def describe(self):
        """What it holds, for people."""
        pairs, unnamed, alone = (
            sum(len(files) for files in kept.values()) for kept in (self._pairs, self._unnamed, self._alone)
        )
        retiring = sum(len(waiting) for waiting in self._retiring.values())
        return (
            f"{pairs} pairs, {alone} for streams and {unnamed} without names wait to be used, {retiring} for "
            f"their names to be flushed; {len(self._in_making)} are being made, "
            f"{sum(map(len, self._waiting.values()))} publishers wait for them"
        )

    def close(self):
        """Let go of all kept files; what is being made goes when it is there."""
        self._closed = True
        self.resting.stop()
        self.openings.stop()
        while self._waiting:
            self._tell_waiting(next(iter(self._waiting)), OSError(errno.ECANCELED, "the broker stops"))
        self._drop_spares(self._aside)

    # made ahead

    def _ready(self, shelf):
        return self._pairs if shelf is None else self._alone if shelf == ALONE else self._unnamed

    def _make_ahead(self, key):
        msgs_bytes, shelf = key
        # One at a time of each kind: the next is begun when that is there, if it is still wanted.
        if self._aside is None or self._closed or key in self._in_making:
            return
        self._let_go_of_ended(key)
        if self._closed or key in self._in_making:  # for one who was let go, and went on
            return
        waiting, ready = self._waiting.get(key), self._ready(shelf).get(msgs_bytes, ())
        if waiting is None and len(ready) >= min(self._expected.get(key, 0), self._kept.get(msgs_bytes, 0)):
            return
        self._in_making.add(key)
        how = shelf
        if waiting is None and shelf is None and 2 * self._uncached[msgs_bytes] >= self._expected[key]:
            how = UNCACHED
        jobs = [
            ([self.files.having_folder(path) for path in folders if self.files.lacks_folder(path)],
             self._paths_for(shelf))
            for folders in self._next_waiting(key)
        ]
        self._aside(
            self._make_each, jobs, how, msgs_bytes, waiting is not None,
            first=0 if waiting is None else sum(1 if paths is None else len(paths) for _, paths in jobs),
            done=lambda made, error: self._made(key, jobs, made or [(None, error)], waiting is not None),
        )

    def _next_waiting(self, key):
        """The folders of those whose files are made in one trip; one without folders where nobody waits."""
        count = max(1, min(TOGETHER, TOGETHER_BYTES // key[0]))
        return [
            folders for folders, _, store in takewhile(_goes_on, islice(self._waiting.get(key, ()), count))
        ] or [()]

    def _paths_for(self, shelf):
        if shelf is None or shelf == ALONE:
            return self._new_paths()[:2 if shelf is None else 1]
        return None

    def _make_each(self, jobs, shelf, msgs_bytes, is_awaited):
        """In a thread: the (folders, paths) of each of ``jobs``, up to one for which the disk has no room, or
        as far as there is time. [(files or None, what they failed with or None)]. Blocks.
        """
        made: list = []
        until = time.monotonic() + TOGETHER_S
        for folders, paths in jobs:
            try:
                made.append((self._make(folders, shelf, paths, msgs_bytes, is_awaited), None))
            except Exception as error:  # it concerns this one alone
                made.append((None, error))
                if is_full(error):
                    break
            if time.monotonic() >= until:
                break
        return made

    def _make(self, folders, shelf, paths, msgs_bytes, is_awaited):
        """Folders, and files as ``_create`` and ``take_unnamed`` do, nobody being told.

        Blocks. Raises OSError.
        """
        for folder in folders:
            folder.act()
        if not is_awaited:
            self._check_room(shelf if paths is None else self.folder, msgs_bytes)
        if paths is None:
            return self.files.make_unnamed(shelf, msgs_bytes, self.keeps(msgs_bytes))
        # A busy stream writes with calls, and so does a queue that grows; so is a large message: their files
        # need not be in the cache.
        fetched = shelf is None and self.keeps(msgs_bytes)
        return self._create_each(
            lambda path, size: self.files.make(path, size, fetched), self.files.unmake, paths, msgs_bytes
        )

    def _check_room(self, folder, msgs_bytes):
        figures = os.statvfs(folder)
        if figures.f_bavail * figures.f_frsize < (1 + ROOM_FOR_PAIRS) * (
            msgs_bytes + capacity_for(msgs_bytes)
        ):
            raise OSError(errno.ENOSPC, "the disk has too little room to make segments ahead", folder)

    def _made(self, key, jobs, made, is_awaited):
        """Files are there that a thread has made, or could not be made:
        then whoever needs them will hear why. Those for whom there was no room, or no time, wait on.
        """
        msgs_bytes, shelf = key
        for folders, _ in jobs:
            for folder in folders:
                folder.told()
        for (folders, _), (files, error) in zip(jobs, made):
            if error is None:
                self._add_made(key, folders, files)  # for one: who is told may take all that are there
            elif (
                is_awaited and is_full(error) and not self._closed
                and (spare := self._take_largest_spare())
            ):
                self._drop_aside(spare, lambda: self._make_again(key))
                return
            if error is None or is_awaited:
                self._tell_waiting(key, error)
        if self._closed:
            self.close()
        self._in_making.discard(key)  # none is begun while some of these have not been told
        if error is None or key in self._waiting:
            self._make_ahead(key)
        self._drop_surplus(msgs_bytes, shelf)

    def _add_made(self, key, folders, files):
        msgs_bytes, shelf = key
        for folder in folders:
            self.committer.mark_folder(os.path.dirname(folder.path))
        if isinstance(files, tuple):
            for file in files:
                self.files.made(file)
        self._ready(shelf).setdefault(msgs_bytes, []).append(files)

    def _make_again(self, key):
        """Make files anew, after a spare pair has given its room back."""
        self._in_making.discard(key)
        self._make_ahead(key)

    def _tell_waiting(self, key, error):
        """Tell the first of those who wait: it takes the files at once, or hears the error, which may come
        from its own folder and need not concern the next one.
        """
        if key in self._waiting:
            self._tell(self._take_waiting(key), error)

    def _take_waiting(self, key):
        """The callback of the first of those who wait, who waits no more."""
        waiting = self._waiting[key]
        _, callback, _ = waiting.popleft()
        if not waiting:
            del self._waiting[key]
        return callback

    def _tell(self, callback, error):
        try:
            callback(error)
        except Exception:  # a fault of ours: the others are told, and files are made still
            LOG.exception("one who waited for the files of a new segment")

    def _let_go_of_ended(self, key):
        """Make nothing for those who wait for a store that has ended meanwhile: its folder may be removed
        already, and would be made again. They hear it soon: a store may call this within its append.
        """
        while key in self._waiting and not _goes_on(self._waiting[key][0]):
            gevent.get_hub().loop.run_callback(self._tell, self._take_waiting(key), None)

    def _drop_surplus(self, msgs_bytes, shelf):
        """Give back files that somebody waited for and has not taken, where enough are kept, or none of their
        size.
        """
        ready, kept = self._ready(shelf), self._kept.get(msgs_bytes, 0)
        if len(ready.get(msgs_bytes, ())) > kept:
            surplus, ready[msgs_bytes] = ready[msgs_bytes][kept:], ready[msgs_bytes][:kept]
            self._drop_aside(_each_file(surplus))

    def _give_up_spares(self):
        """The disk is full: give up, at once, the pairs that wait to be used. False: there were none. Blocks.
        """
        return self._drop_spares(None)

    def _drop_spares(self, aside):
        """Give up the pairs that wait to be used. Returns whether there were any."""
        spares = self._take_spares()
        for file in spares:
            if file.named:
                self.files.unlink(file.path)
            self.files.close(file, aside)
        return bool(spares)

    def _take_spares(self):
        """The files that wait to be used, which are the caller's from here on."""
        spares = []
        while spare := self._take_largest_spare():
            spares += spare
        return spares

    def _take_largest_spare(self):
        """Take one spare, the largest: whoever waits for its removal waits no longer than necessary."""
        kept = [
            (size, files)
            for ready in (self._pairs, self._alone, self._unnamed) for size, files in ready.items() if files
        ]
        return _each_file([max(kept, key=lambda spares: spares[0])[1].pop()]) if kept else []

    def _drop_aside(self, files, done=None):
        """Have a thread take the names of files that nobody holds, and give their room back.

        Then ``done()``.
        """
        names, parts = [self.files.unlinking(file.path) for file in files if file.named], []
        for file in files:
            self.files.close(file, lambda *part: parts.append(part))

        def dropped(outcomes, _):
            for name, error in outcomes or ():
                if error is None:
                    name.told()
                else:
                    LOG.warning("a spare segment file stays until the next boot: %s", error)
            if done is not None:
                done()

        self._aside(_drop_each, names, parts, first=done is not None, done=dropped)

    # emptied pairs on their way into the pool

    def _change(self, changes, done, soon=False):
        if self._aside is not None:
            self.committer.change(changes, done, soon)
            return
        for change in changes:
            change.make()
        done(None)

    def _leaving(self, pair, path):
        """The change that moves the msgs file into the pool, or unlinks it.

        The sync that is running may still hold it.
        """
        msgs = pair.msgs
        if (
            msgs is not None
            and len(self._pairs.get(msgs.size, ())) + self._coming.get(msgs.size, 0)
            < self._kept.get(msgs.size, 0)
        ):
            pair.pool_path = self._new_paths()[0]
            self._coming[msgs.size] += 1
            return self.files.renaming(path, pair.pool_path, msgs)
        return self.files.unlinking(path, self._aside if msgs is None else None)

    def _msgs_left(self, pair, error):
        if pair.pool_path is not None and error is None:
            return
        self._keep_out(pair)
        msgs, pair.msgs = pair.msgs, None
        if msgs is not None:
            self.files.close(msgs, self._aside)

    def _names_flushed(self, folder, pair, error):
        """The removal of the msgs file from the queue's folder is flushed. If the sync failed, the acks stay
        where they are.
        """
        if pair not in self._retiring.get(folder, ()):
            return  # the folder was removed meanwhile
        if error is None:
            self._finish_retiring(folder, pair, [])
        else:
            self._retired(folder, pair)
            self._keep_out(pair)
            self._close(pair)

    def _finish_retiring(self, folder, pair, leaving):
        """The acks file follows, behind the changes ``leaving``."""
        if self._is_usable(pair):
            pair.acks_path, path = (
                os.path.join(self.folder, f"acks.{os.path.basename(pair.pool_path)[5:]}"), pair.acks_path
            )
            changes = [*leaving, self.files.renaming(path, pair.acks_path, pair.acks)]
            self._change(
                changes, lambda error: self._retired(folder, pair) and self._keep(pair, error), soon=True
            )
            return
        changes = [*leaving, self.files.unlinking(pair.acks_path, self._aside if pair.acks is None else None)]
        if pair.pool_path is not None:
            changes.append(self.files.unlinking(pair.pool_path))
            self._keep_out(pair)
        self._change(changes, lambda error: self._retired(folder, pair) and self._close(pair), soon=True)

    def _keep(self, pair, error):
        """Both files are in the pool now. With an error they stay where they are until the next boot."""
        self._keep_out(pair)
        if error is not None:
            self._close(pair)
            return
        # nobody's from here on: a killed process must not leave them in another queue
        # with a head that is whole
        for file in (pair.msgs, pair.acks):
            # all of it: what is left of a head would look like a damaged one
            file.map[:HEAD_BYTES] = bytes(HEAD_BYTES)
            self.files.overwritten(file, 0, HEAD_BYTES)
        self._pairs[pair.msgs.size].append((pair.msgs, pair.acks))
        if self._closed:
            self.close()

    def _keep_out(self, pair):
        """Forget that the pair is on its way into the pool: it has arrived, or will not."""
        if pair.pool_path is not None:
            pair.pool_path = None
            self._coming[pair.msgs.size] -= 1

    def _close(self, pair):
        for file in (pair.msgs, pair.acks):
            if file is not None:
                self.files.close(file, self._aside)

    def _is_usable(self, pair):
        msgs, acks = pair.msgs, pair.acks
        return (
            pair.pool_path is not None and acks is not None and not msgs.held and not acks.held
            and acks.size == capacity_for(msgs.size)
        )

    def _retired(self, folder, pair):
        """Note that the pair has left its folder. False: the folder was removed meanwhile, and the pair with
        it.
        """
        pairs = self._retiring.get(folder, [])
        if pair not in pairs:
            return False
        pairs.remove(pair)
        if not pairs:
            del self._retiring[folder]
        return True

    # making pairs

    def _create(self, paths, msgs_bytes):
        return self._create_each(self.files.create, self._uncreate, paths, msgs_bytes)

    def _create_each(self, create, undo, paths, msgs_bytes):
        """The msgs file, and the acks file if there is a second path. Raises OSError, leaving neither."""
        msgs = create(paths[0], msgs_bytes)
        try:
            return (msgs, *(create(path, capacity_for(msgs_bytes)) for path in paths[1:]))
        except OSError:
            undo(msgs)
            raise

    def _uncreate(self, file):
        self.files.close(file)
        self.files.unlink(file.path)

    def _name_failed(self, files, failed, error):
        """Tell the writer why files that it took did not get their names, and give back what is still here.
        """
        if failed is not None:
            failed(error)
        for file in files:
            if os.path.dirname(file.path) == self.folder:
                self._change([self.files.unlinking(file.path)], _nothing)

    def _new_paths(self):
        self._numbers += 1
        return [os.path.join(self.folder, f"{kind}.{self._numbers:010d}") for kind in ("msgs", "acks")]

    def _clear_folder(self):
        """Remove the files of an earlier run. They are not used again, because nobody knows what their pages
        on the disk hold.
        """
        if not os.path.isdir(self.folder):
            self.files.make_folder(self.folder)
        for name in sorted(os.listdir(self.folder)):
            path = os.path.join(self.folder, name)
            if os.path.isdir(path) and not os.path.islink(path):  # not from us, but in the way
                self.files.remove_tree(path)
            else:
                self.files.unlink(path)


class Retiring:
    """A pair of files on its way out of a queue's folder.

    ``pool_path``: where its msgs file goes, unless that is unlinked.
    """

    __slots__ = ("msgs", "acks", "acks_path", "pool_path")

    def __init__(self, msgs, acks, acks_path):
        self.msgs = msgs
        self.acks = acks
        self.acks_path = acks_path
        self.pool_path = None


def _goes_on(waiting):
    """Whether the store of one who waits has not ended."""
    _, _, store = waiting
    return store is None or store.failure is None


def _each_file(spares):
    """Of pairs, of streams' files and of those without names."""
    return [file for spare in spares for file in (spare if isinstance(spare, tuple) else (spare,))]


def _drop_each(names, parts):
    """In a thread, which logs nothing: (name, error or None) of each. What keeps its name goes at the next
    boot. Blocks.
    """
    outcomes = []
    for name in names:
        try:
            name.act()
        except OSError as error:
            outcomes.append((name, error))
        else:
            outcomes.append((name, None))
    for close, *part in parts:
        close(*part)
    return outcomes


def _nothing(error):
    """The committer has said why."""


def growth(segment_bytes):
    """The sizes that a queue's segments take, one after the other."""
    size = min(FIRST_SEGMENT_BYTES, segment_bytes)
    while size < segment_bytes:
        yield size
        size = min(size * SEGMENT_GROWTH, segment_bytes)
    yield segment_bytes


def is_full(error):
    """Whether the disk had no room."""
    return isinstance(error, OSError) and error.errno == errno.ENOSPC
