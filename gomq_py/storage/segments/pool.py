"""Segment pool: keeps spare pairs of segment files, emptied or made ahead; one pool per broker.

Writing fresh pages costs more than all other work of an append: a message of 1 KiB takes 1.5 us in and out on
fresh pages, and 0.4 us on used pages. So a segment is recycled: its files are renamed into the folder of
another queue, and keep their mapping. Old content is not valid in the recycled files, because a new
generation in the head seeds every checksum. A pair that held something durable is reused only after the
removal of both names was flushed.

Creating a pair and freeing its disk space take milliseconds, tens of them on a busy disk. A thread does both.
A writer announces that it will soon need a new segment (``expect``), and then finds files that are ready.
Emptied pairs are renamed in threads before the next flush. Never flushes.
"""
import errno
import os
import time
from collections import Counter, deque
from itertools import islice, takewhile

import gevent

from gomq_py.observability.log import logger
from gomq_py.storage.disk.data_dir import POWER_LOST
from gomq_py.storage.format.head import HEAD_BYTES
from gomq_py.storage.format.record import capacity_for
from gomq_py.storage.segments.boot_notes import BootNotes
from gomq_py.storage.segments.damage import DamageNotes
from gomq_py.storage.segments.idle import Resting
from gomq_py.storage.segments.opening import Openings
from gomq_py.storage.segments.segment import Stage

LOG = logger("storage")

SEGMENT_BYTES = 8 * 1024 * 1024

# Size of a queue's first segment, and growth of the next ones up to segment_bytes: many queues hold only a
# few messages.
FIRST_SEGMENT_BYTES = 65536
SEGMENT_GROWTH = 8

# 8 pairs are about 75 MiB of disk and kept one busy queue from ever waiting for a fresh segment.
KEPT_PAIRS = 8
# Pairs kept of each smaller size, some 10 MiB in all: a queue needs each size once.
KEPT_SMALL_PAIRS = 2
# A pair is made ahead only if the disk has room for this many more, so as not to take the last room.
ROOM_FOR_PAIRS = 8

# Most waiting writers of one size that get files in one trip to a thread, and most bytes; a pair takes 1 to 3
# ms. A trip takes a turn of the hub each way, 10 to 20 ms under load: one by one, a thousand new queues with
# messages waited for 16 s.
TOGETHER = 32
TOGETHER_BYTES = 8 * 1024 * 1024
# On a slow disk a trip ends after this time, so that writers waiting for other sizes get their turn.
TOGETHER_S = 0.1

# Kinds of files ("shelf") that a writer takes: None for pairs, the folder of files without names, or one of
# these: files of streams, which have no acks; pairs that are written with calls, so that new ones need no
# pages in the system's cache. Pairs are one stock; the majority of expected writers decides how pairs are
# made ahead.
ALONE = "alone"
UNCACHED = "uncached"


class SegmentPool:
    """Provides pairs of files for new segments, and recycles emptied pairs.

    ``folder`` contains only the pool's files. ``start_timer``: see Resting and Openings. With
    ``in_threads=False``, for tools that compare folders, no files are made ahead. Files are then renamed and
    removed at once.
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
        self._aside = committer.background.short.add if committer is not None and in_threads else None
        self.openings = Openings(
            None if self._aside is None else committer.background.for_readers.add, start_timer)
        self._kept = {size: KEPT_SMALL_PAIRS for size in growth(segment_bytes)} | {segment_bytes: kept_pairs}
        self._pairs = {size: [] for size in self._kept}
        self._unnamed = {size: [] for size in self._kept}
        self._alone = {size: [] for size in self._kept}
        self._expected = Counter()  # (msgs_bytes, shelf) -> count of writers that will need them
        self._uncached = Counter()  # msgs_bytes -> count of expected writers that use calls
        # (msgs_bytes, shelf) -> (folders, callback) of waiting writers, one for each set of files
        self._waiting = {}
        self._in_making = set()  # keys being made
        self._naming = Counter()  # folder -> count of taken files without final names
        self._at_once = set()  # folders whose files are named when taken
        # msgs_bytes -> pairs being returned: the msgs file is moving here, or waits for the acks file
        self._coming = dict.fromkeys(self._kept, 0)
        # queue folder -> its Retiring pairs: the msgs file is leaving, or its removal is to be flushed
        self._retiring = {}
        self.stage = Stage()
        self._closed = False
        # How the last run ended, for recovery at boot: a loss of power explains some missing files.
        self.last_end = POWER_LOST
        # queue folder -> segment_list.Listed of the last run, for recovery at boot
        self.listed = {}
        self.boot = BootNotes()
        self.damage = DamageNotes()
        self._numbers = 0
        self._generation = int.from_bytes(os.urandom(7), "little")
        self._clear_folder()

    def next_generation(self):
        """Return a new generation number for a segment's head, unique among all segments."""
        self._generation += 1
        return self._generation

    def take(self, msgs_path, acks_path, msgs_bytes, failed=None):
        """Return (msgs, acks), two mapped files for a segment of ``msgs_bytes``.

        They have the names ``msgs_path`` and ``acks_path`` after the next flush at the latest. If the rename
        fails, ``failed(error)`` is called; a crash then loses the content. Raises OSError, leaving no file.
        """
        # The acks file is renamed first: a kill in between must not leave messages without their acks.
        return self._take(self._pairs, (msgs_path, acks_path), msgs_bytes, failed)

    def name_at_once(self, folder):
        """Have ``take`` rename files for this queue folder at once, so that their content survives a kill.
        ``take`` then blocks. While older files of the folder wait for their names, new ones wait, too.
        """
        self._at_once.add(folder)

    @property
    def has_unnamed(self):
        """Whether any taken files have not been renamed into their queue's folder yet."""
        return bool(self._naming)

    def is_naming(self, folder):
        """Return whether files for this folder or below still wait for their names. A kill loses them."""
        return any(each == folder or each.startswith(folder + os.sep) for each in self._naming)

    def take_alone(self, msgs_path, msgs_bytes, store):
        """Return a mapped msgs file for a stream's segment, which has no acks file. The file is renamed as by
        ``take``; then ``store.named()`` or, after an error, ``store.fence(error)`` is called.
        """
        return self._take(
            self._alone, (msgs_path,), msgs_bytes, lambda error: store.fence(error), lambda: store.named()
        )[0]

    def take_unnamed(self, folder, msgs_bytes):
        """Return a mapped msgs file without a name, for a segment of a transient queue."""
        if self._unnamed.get(msgs_bytes):
            return self._unnamed[msgs_bytes].pop()
        return self._with_spares_given_up(self.files.create_unnamed, folder, msgs_bytes)

    def _take(self, ready, paths, msgs_bytes, failed, told=None):
        folder = os.path.dirname(paths[0])
        at_once = folder in self._at_once and folder not in self._naming
        if ready.get(msgs_bytes):
            files = ready[msgs_bytes].pop()
        elif self._naming and not at_once:
            # Named in order: otherwise a kill would leave a hole between segments.
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

        self._naming[folder] += 1
        names = [self.files.renaming(file.path, path, file, True) for file, path in zip(files, paths)]
        self._change(names[::-1], named, soon=True)

    def _with_spares_given_up(self, create, *arguments):
        try:
            return create(*arguments)
        except OSError as error:
            if not is_full(error) or not self._drop_spares(None):
                raise
        return create(*arguments)

    # ahead of need

    def keeps(self, msgs_bytes):
        """Return whether segments of this size are recycled. Segments made for one large message are not."""
        return msgs_bytes in self._kept

    def has(self, msgs_bytes, shelf=None, folders=()):
        """Whether a writer can take such files at once, and all ``folders`` exist; True without threads.
        ``shelf``: their kind: None for pairs, ALONE for streams, or the folder of unnamed files.
        """
        if self._aside is None or self._closed:
            return True
        return bool(self._ready(shelf).get(msgs_bytes)) and not any(map(self.files.lacks_folder, folders))

    def wait_for(self, msgs_bytes, shelf, folders, callback, store=None):
        """Have a thread make files of this size and kind, then call ``callback(error or None)``.

        ``shelf``: see ``has``. Missing ``folders``, outermost first, are made, too. The callback may take the
        files, and must neither switch nor raise. If ``store`` has been stopped, nothing is made.
        """
        key = (msgs_bytes, shelf)
        self._waiting.setdefault(key, deque()).append((folders, callback, store))
        self._make_ahead(key)

    def expect(self, msgs_bytes, shelf=None):
        """Have a thread make files that a writer will soon take. ``shelf``: see ``has``, or UNCACHED."""
        self._count_expected(msgs_bytes, shelf, 1)

    def unexpect(self, msgs_bytes, shelf=None):
        """Withdraw an ``expect``, because the writer has its files or has ended."""
        self._count_expected(msgs_bytes, shelf, -1)

    def _count_expected(self, msgs_bytes, shelf, count):
        if shelf == UNCACHED:
            self._uncached[msgs_bytes] += count
            shelf = None
        key = msgs_bytes, shelf
        self._expected[key] += count
        if self._expected[key]:
            self._make_ahead(key)
        else:
            del self._expected[key]

    def retire(self, msgs, acks, msgs_path, acks_path, synced):
        """Recycle or delete the files of an emptied segment. ``msgs`` and ``acks`` are None if not open,
        ``msgs_path`` if it is missing. ``synced``: True if content or name may be on the disk.
        """
        # If synced, the removal of the msgs file's name is flushed before the acks file is renamed: a power
        # cut must not restore messages without acks.
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
        """Recycle or close the msgs file of a transient queue's segment."""
        if (
            msgs.map is not None and not msgs.is_retained
            and len(self._unnamed.get(msgs.size, ())) < self._kept.get(msgs.size, 0)
        ):
            self._unnamed[msgs.size].append(msgs)
        else:
            self.let_go(msgs)

    def let_go(self, file):
        """Close a segment's file in the background, without deleting it."""
        self.files.close(file, self._aside)

    def forget(self, folder):
        """Forget the pairs that are leaving this queue folder, which is being removed."""
        self._at_once.discard(folder)
        for pair in self._retiring.pop(folder, ()):
            for path in (pair.pool_path, pair.acks_path):
                if path is not None and os.path.dirname(path) == self.folder:
                    self._change([self.files.unlinking(path)])
            self._keep_out(pair)
            self._close(pair)

    def describe(self):
        """Return the numbers of the pool's files as one line of text for operators."""
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
        """Close and delete all spare files, and later those that threads are still making."""
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
        # One trip at a time for each key: the next begins after it, if still needed.
        if self._aside is None or self._closed or key in self._in_making:
            return
        self._let_go_of_ended(key)
        if self._closed or key in self._in_making:  # a callback may have begun another
            return
        waiting, ready = self._waiting.get(key), self._ready(shelf).get(msgs_bytes, ())
        if waiting is None and len(ready) >= min(self._expected[key], self._kept.get(msgs_bytes, 0)):
            return
        self._in_making.add(key)
        how = shelf
        if waiting is None and shelf is None and 2 * self._uncached[msgs_bytes] >= self._expected[key]:
            how = UNCACHED
        count = max(1, min(TOGETHER, TOGETHER_BYTES // msgs_bytes))
        served = [folders for folders, _, _ in takewhile(_goes_on, islice(waiting or (), count))] or [()]
        jobs = [
            ([self.files.having_folder(path) for path in folders if self.files.lacks_folder(path)],
             self._new_paths(shelf) if shelf is None or shelf == ALONE else None)
            for folders in served
        ]
        self._aside(
            self._make_each, jobs, how, msgs_bytes, waiting is not None,
            first=0 if waiting is None else sum(1 if paths is None else len(paths) for _, paths in jobs),
            done=lambda made, error: self._made(key, jobs, made or [(None, error)], waiting is not None),
        )

    def _make_each(self, jobs, shelf, msgs_bytes, is_awaited):
        """Make the files of each job, (folders, paths), until the disk is full or TOGETHER_S is over. Returns
        [(files or None, error or None)] of the jobs tried. ``is_awaited``: writers wait. Blocks, in a thread.
        """
        made: list = []
        until = time.monotonic() + TOGETHER_S
        for folders, paths in jobs:
            try:
                made.append((self._make(folders, shelf, paths, msgs_bytes, is_awaited), None))
            except Exception as error:  # only this job has failed
                made.append((None, error))
                if is_full(error):
                    break
            if time.monotonic() >= until:
                break
        return made

    def _make(self, folders, shelf, paths, msgs_bytes, is_awaited):
        """Make ``folders`` and return new files. Not ``is_awaited``: checks room. Blocks. Raises OSError."""
        for folder in folders:
            folder.act()
        if not is_awaited:
            self._check_room(shelf if paths is None else self.folder, msgs_bytes)
        if paths is None:
            return self.files.make_unnamed(shelf, msgs_bytes, self.keeps(msgs_bytes))
        # Busy streams, growing queues and large messages are written with calls: their files need not be
        # cached.
        fetched = shelf is None and self.keeps(msgs_bytes)
        return self._create_each(
            lambda path, size: self.files.make(path, size, fetched), self.files.unmake, paths, msgs_bytes
        )

    def _check_room(self, folder, msgs_bytes):
        figures = os.statvfs(folder)
        pair = msgs_bytes + capacity_for(msgs_bytes)
        if figures.f_bavail * figures.f_frsize < (1 + ROOM_FOR_PAIRS) * pair:
            raise OSError(errno.ENOSPC, "the disk has too little room to make segments ahead", folder)

    def _made(self, key, jobs, made, is_awaited):
        """Add made files to the spares; call waiting writers, also with errors. Runs in the event loop."""
        # Writers whose files were not made for lack of room or time wait on.
        def make_again():
            self._in_making.discard(key)
            self._make_ahead(key)

        msgs_bytes, shelf = key
        for folders, _ in jobs:
            for folder in folders:
                folder.told()
        for (folders, _), (files, error) in zip(jobs, made):
            if error is None:  # one at a time: a callback may take all files
                for folder in folders:
                    self.committer.mark_folder(os.path.dirname(folder.path))
                if isinstance(files, tuple):
                    for file in files:
                        self.files.made(file)
                self._ready(shelf).setdefault(msgs_bytes, []).append(files)
            elif (
                is_awaited and is_full(error) and not self._closed
                and (spare := self._take_largest_spare())
            ):
                self._drop_aside(spare, make_again)
                return
            if error is None or is_awaited:
                self._tell_waiting(key, error)
        if self._closed:
            self.close()
        self._in_making.discard(key)  # no new trip before all callbacks
        if error is None or key in self._waiting:
            self._make_ahead(key)
        self._drop_surplus(msgs_bytes, shelf)

    def _tell_waiting(self, key, error):
        if key in self._waiting:
            self._tell(self._take_waiting(key), error)

    def _take_waiting(self, key):
        waiting = self._waiting[key]
        _, callback, _ = waiting.popleft()
        if not waiting:
            del self._waiting[key]
        return callback

    def _tell(self, callback, error):
        try:
            callback(error)
        except Exception:  # a fault of ours must not stop the others
            LOG.exception("one who waited for the files of a new segment")

    def _let_go_of_ended(self, key):
        """Drop requests of stopped stores. The event loop's next iteration passes None to the callbacks."""
        # Making files would restore the removed folders of these stores. Not called back now, because a store
        # may be inside its append.
        while key in self._waiting and not _goes_on(self._waiting[key][0]):
            gevent.get_hub().loop.run_callback(self._tell, self._take_waiting(key), None)

    def _drop_surplus(self, msgs_bytes, shelf):
        ready, kept = self._ready(shelf), self._kept.get(msgs_bytes, 0)
        if len(ready.get(msgs_bytes, ())) > kept:
            surplus, ready[msgs_bytes] = ready[msgs_bytes][kept:], ready[msgs_bytes][:kept]
            self._drop_aside(_each_file(surplus))

    def _drop_spares(self, aside):
        """Remove all spare files, to free disk space. Returns whether any existed. Blocks.
        ``aside(function, *arguments)``, if given, frees the space in the background.
        """
        spares = []
        while spare := self._take_largest_spare():
            spares += spare
        for file in spares:
            if file.named:
                self.files.unlink(file.path)
            self.files.close(file, aside)
        return bool(spares)

    def _take_largest_spare(self):
        kept = [
            (size, files)
            for ready in (self._pairs, self._alone, self._unnamed) for size, files in ready.items() if files
        ]
        return _each_file([max(kept, key=lambda spares: spares[0])[1].pop()]) if kept else []

    def _drop_aside(self, files, done=None):
        """Have a thread delete unused files and free their disk space, then call ``done()``."""
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

    # emptied pairs being returned

    def _change(self, changes, done=None, soon=False):
        """Make Changes in a thread before the next flush; without threads, now. See NameChanges.change()."""
        if self._aside is not None:
            self.committer.names.change(changes, done, soon)
            return
        for change in changes:
            change.make()
        if done is not None:
            done(None)

    def _leaving(self, pair, path):
        """Return the Change that moves a pair's msgs file to the pool, or deletes it if the pool is full."""
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
        if pair.pool_path is None or error is not None:
            self._keep_out(pair)
            msgs, pair.msgs = pair.msgs, None
            if msgs is not None:
                self.let_go(msgs)

    def _names_flushed(self, folder, pair, error):
        if pair not in self._retiring.get(folder, ()):
            return  # the folder was removed meanwhile
        if error is None:
            self._finish_retiring(folder, pair, [])
        else:
            self._retired(folder, pair)
            self._keep_out(pair)
            self._close(pair)

    def _finish_retiring(self, folder, pair, leaving):
        """Make the Changes ``leaving``, then move the pair's acks file into the pool, or delete the pair."""
        msgs, acks = pair.msgs, pair.acks
        if (
            pair.pool_path is not None and acks is not None and not msgs.is_retained and not acks.is_retained
            and acks.size == capacity_for(msgs.size)
        ):
            pair.acks_path, path = (
                os.path.join(self.folder, f"acks.{os.path.basename(pair.pool_path)[5:]}"), pair.acks_path
            )
            changes = [*leaving, self.files.renaming(path, pair.acks_path, acks)]
            self._change(
                changes, lambda error: self._retired(folder, pair) and self._keep(pair, error), soon=True
            )
            return
        changes = [*leaving, self.files.unlinking(pair.acks_path, self._aside if acks is None else None)]
        if pair.pool_path is not None:
            changes.append(self.files.unlinking(pair.pool_path))
            self._keep_out(pair)
        self._change(changes, lambda error: self._retired(folder, pair) and self._close(pair), soon=True)

    def _keep(self, pair, error):
        """Add a pair whose files are both in the pool's folder to the spare pairs; on ``error`` close it."""
        self._keep_out(pair)
        if error is not None:
            self._close(pair)
            return
        # clear the heads: after a kill the files must not look like another queue's segment
        for file in (pair.msgs, pair.acks):
            # the whole head: a partly cleared one would look damaged
            file.map[:HEAD_BYTES] = bytes(HEAD_BYTES)
            self.files.overwritten(file, 0, HEAD_BYTES)
        self._pairs[pair.msgs.size].append((pair.msgs, pair.acks))
        if self._closed:
            self.close()

    def _keep_out(self, pair):
        """Stop counting this pair as one that will return to the pool."""
        if pair.pool_path is not None:
            pair.pool_path = None
            self._coming[pair.msgs.size] -= 1

    def _close(self, pair):
        for file in (pair.msgs, pair.acks):
            if file is not None:
                self.let_go(file)

    def _retired(self, folder, pair):
        """Remove a pair from the pairs leaving ``folder``. Returns False if forget() has done that."""
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
        """Return new msgs and, if ``paths`` has two, acks files. Raises OSError and then leaves no file."""
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
        """Report a failed rename by ``failed(error)``, and delete files still in the pool's folder."""
        if failed is not None:
            failed(error)
        for file in files:
            if os.path.dirname(file.path) == self.folder:
                self._change([self.files.unlinking(file.path)])

    def _new_paths(self, shelf=None):
        self._numbers += 1
        kinds = ("msgs",) if shelf == ALONE else ("msgs", "acks")
        return [os.path.join(self.folder, f"{kind}.{self._numbers:010d}") for kind in kinds]

    def _clear_folder(self):
        """Remove the files of an earlier run, because their content on the disk is unknown."""
        if not os.path.isdir(self.folder):
            self.files.make_folder(self.folder)
        for name in sorted(os.listdir(self.folder)):
            path = os.path.join(self.folder, name)
            if os.path.isdir(path) and not os.path.islink(path):  # not ours, but in the way
                self.files.remove_tree(path)
            else:
                self.files.unlink(path)


class Retiring:
    """A pair of files (msgs and acks) that leaves a queue's folder for the pool or for removal.
    ``pool_path``: new path of the msgs file, or None if it is deleted.
    """

    __slots__ = ("msgs", "acks", "acks_path", "pool_path")

    def __init__(self, msgs, acks, acks_path):
        self.msgs = msgs
        self.acks = acks
        self.acks_path = acks_path
        self.pool_path = None


def _goes_on(waiting):
    _, _, store = waiting
    return store is None or store.failure is None


def _each_file(spares):
    return [file for spare in spares for file in (spare if isinstance(spare, tuple) else (spare,))]


def _drop_each(names, parts):
    """Make the Changes ``names``, then call each (function, *arguments) of ``parts``, to free disk space.
    Returns [(Change, error or None)]. Runs in a thread. Logs nothing.
    """
    outcomes = []
    for name in names:
        error = None
        try:
            name.act()
        except OSError as refusal:
            error = refusal
        outcomes.append((name, error))
    for close, *part in parts:
        close(*part)
    return outcomes


def growth(segment_bytes):
    """Iterate over the msgs file sizes that a growing queue uses in turn, from small to ``segment_bytes``."""
    size = min(FIRST_SEGMENT_BYTES, segment_bytes)
    while size < segment_bytes:
        yield size
        size = min(size * SEGMENT_GROWTH, segment_bytes)
    yield segment_bytes


def is_full(error):
    return isinstance(error, OSError) and error.errno == errno.ENOSPC
