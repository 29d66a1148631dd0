"""Opening: opens and reads the files of closed segments in threads, before or while a reader needs them.

Used by segment_log, which decides what is opened; the threads belong to storage.flush.group_commit. Threads
also read parts of open segments that a power failure may have damaged, before the mapping is touched. Files
that were opened ahead and not used are closed again, so that a backlog without readers holds no mapping.
Never blocks, never switches greenlets.
"""
import errno

# Unused files are closed after this time, or up to twice as long.
UNWANTED_MS = 10_000
# Files closed before the next pause, some 20 us each.
CLOSED_AT_ONCE = 100
PAUSE_MS = 25


class Opening:
    """A closed segment whose files a thread opens, or has opened for a reader that does not need them yet.
    ``files``: (msgs, acks or None) once both are open, else None. ``awaited``: True if a reader waits for the
    files.
    """

    __slots__ = ("store", "segment", "files", "awaited")

    def __init__(self, store, segment):
        self.store = store
        self.segment = segment
        self.files = None
        self.awaited = False


def open_files(store, number, end, acks_bytes, written_here, read_to):
    """Open and map a segment's files. Returns (msgs, acks or None). Blocks; may run in a thread. Raises
    OSError.

    The msgs file must have ``end`` bytes; its first ``read_to`` are read into the page cache. ``acks_bytes``:
    least size of the acks file, 0 if there is none. ``written_here``: True for a segment of this run.
    """
    msgs = open_whole(store, "msgs", number, end)
    acks = None
    try:
        if read_to:
            store.files.read_through(msgs, 0, read_to)
        if acks_bytes:
            acks = open_whole(store, "acks", number, acks_bytes)
            if not written_here:
                # a restored copy may have holes, and writing to one on a full disk kills the process
                store.files.allocate(acks)
            store.files.read_through(acks)
    except BaseException:
        for file in (msgs, acks):
            if file is not None:
                store.files.close(file)
        raise
    return msgs, acks


def open_whole(store, kind, number, end):
    """Open a segment's "msgs" or "acks" file. Raises OSError, also if it ends before ``end``."""
    # Touching a mapping behind the end of its file kills the process.
    file = store.files.open(store.path_of(kind, number))
    if file.size < end:
        store.files.close(file)
        raise OSError(errno.EIO, f"the file has {file.size} bytes, and had at least {end}", file.path)
    return file


class Opener:
    """Opens closed segments of one store in threads, and keeps the files until a reader needs them."""

    __slots__ = ("_openings",)

    def __init__(self):
        self._openings = {}

    def is_awaited(self, segment):
        """Return whether a reader waits for a thread that opens this segment."""
        opening = self._openings.get(segment.number)
        return opening is not None and opening.awaited and opening.files is None

    def has(self, segment):
        """Return whether a thread opens this segment, or has opened it and no reader has used it yet."""
        return segment.number in self._openings

    def begin(self, store, segment):
        """Have a thread open a closed segment. Returns the Opening."""
        opening = self._openings[segment.number] = Opening(store, segment)
        store.pool.openings.begin(
            opening, segment.number, segment.end, store.acks_bytes(segment), segment.recovered is None,
            store.read_when_opened(segment))
        return opening

    def come_to(self, store, segment, can_wait):
        """Attach the files of a closed segment, for a reader. Returns True; False if a thread opens them,
        which happens only with ``can_wait``. The listener's ``segment_opened`` then follows. Raises OSError.
        """
        opening = self._openings.get(segment.number)
        if opening is None and can_wait and store.may_open_aside():
            opening = self.begin(store, segment)
        if opening is not None and opening.files is not None:
            self._forget(opening)
            segment.attach(*opening.files)
            if segment.recovered is not None:
                segment.recovered.prove(store.read_when_opened(segment))
        elif opening is not None and can_wait:
            opening.awaited = True
            return False
        else:
            store.open_now(segment)
            self.drop(store, segment)
        return True

    def opened(self, opening, files, error):
        """Keep the opened files, and wake a waiting reader. If one waits, an ``error`` stops the store."""
        store = opening.store
        if self._openings.get(opening.segment.number) is not opening:
            if error is None:  # no longer wanted
                _close(store, files)
        elif error is None:
            opening.files = files
            store.pool.openings.keep(opening)
            if opening.awaited and store.listener is not None:
                store.listener.segment_opened(store)
        else:
            self._forget(opening)
            if opening.awaited:  # otherwise the next reader tries again
                store.fence(error)

    def close_unwanted(self, opening):
        """Close the files of an Opening that no reader has used."""
        self._forget(opening)
        _close(opening.store, opening.files)

    def drop(self, store, segment):
        """Close the files of a segment that no reader needs any longer, even if a thread is opening them."""
        opening = self._openings.get(segment.number)
        if opening is not None:
            self._forget(opening)
            if opening.files is not None:
                _close(store, opening.files)
            elif opening.awaited and store.listener is not None:
                store.listener.segment_opened(store)

    def drop_all(self, store):
        """Close all files opened for this store that no reader has used, also those being opened now."""
        for opening in list(self._openings.values()):
            self.drop(store, opening.segment)

    def _forget(self, opening):
        opening.store.pool.openings.forget(opening)
        del self._openings[opening.segment.number]


def _close(store, files):
    for file in files:
        if file is not None:
            store.pool.let_go(file)


class Proof:
    """The work of a thread that reads an open segment of an earlier run up to the position ``end``."""

    # A bad sector raises in the thread; in a mapping it would kill the process.
    __slots__ = ("store", "segment", "file", "end", "awaited")

    def __init__(self, store, segment, end):
        self.store = store
        self.segment = segment
        self.file = segment.msgs
        self.end = end
        self.awaited = False

    def ended(self, _result, error):
        """Report to the segment that the thread has read the bytes, or failed."""
        self.file.release()
        self.segment.recovered.proof_ended(self, error)


class Openings:
    """Opens files in threads for all stores of a broker, and closes files that no reader uses.

    ``aside(function, *arguments, done=...)`` calls the function in a thread; None: no threads.
    ``start_timer(after_ms, callback)`` starts a timer; None: unused files stay open.
    """

    def __init__(self, aside, start_timer):
        self._aside = aside
        self._start = start_timer
        self._timer = None
        self._ready = {}  # Opening -> whether it was there at the last check

    @property
    def in_threads(self):
        """Whether threads exist to open files."""
        return self._aside is not None

    @property
    def count(self):
        """Number of Opening objects whose files are open and were not used by a reader yet."""
        return len(self._ready)

    def begin(self, opening, *what):
        """Call ``open_files(store, *what)`` in a thread, then Opener.opened() with its result or error."""
        self._aside(
            open_files, opening.store, *what,
            done=lambda files, error: opening.store.opener.opened(opening, files, error),
        )

    def prove(self, proof, start):
        """Read the bytes of ``proof`` from ``start`` on in a thread; then call Proof.ended()."""
        proof.file.retain()
        self._aside(proof.store.files.read_through, proof.file, start, proof.end, done=proof.ended)

    def keep(self, opening):
        """Close the files of an Opening if no reader uses them within UNWANTED_MS."""
        self._ready[opening] = False
        if self._timer is None and self._start is not None:
            self._timer = self._start(UNWANTED_MS, self._look)

    def forget(self, opening):
        """Stop watching this Opening, after a reader has used it or the store has dropped it."""
        self._ready.pop(opening, None)

    def stop(self):
        """Stop the timer. Unused files stay open."""
        self._start = None
        if self._timer is not None:
            self._timer.stop()
            self._timer = None

    def _look(self):
        self._timer = None
        old = [opening for opening, is_old in self._ready.items() if is_old]
        for opening in old[:CLOSED_AT_ONCE]:
            opening.store.opener.close_unwanted(opening)
        if len(old) <= CLOSED_AT_ONCE:
            self._ready = dict.fromkeys(self._ready, True)
        if self._ready and self._start is not None:
            self._timer = self._start(UNWANTED_MS if len(old) <= CLOSED_AT_ONCE else PAUSE_MS, self._look)
