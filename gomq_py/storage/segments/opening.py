"""Opening: a thread opens and reads the files of a closed segment, ahead of a reader or while it waits.

Between segment_log, which decides what is opened, and storage.flush.group_commit's threads. Parts of open
segments that a power cut may have damaged are read here, too, before their mapping is touched. Files that
were opened ahead and not used are closed again: a backlog without readers holds no mapping. Never blocks,
never switches.
"""

# Unused files are closed after this time, or up to twice as long.
UNWANTED_MS = 10_000
# Files closed before the next pause, some 20 us each.
CLOSED_AT_ONCE = 100
PAUSE_MS = 25


class Opening:
    """The files of one segment of a store being opened.

    ``files``: (msgs, acks or None) once they are open. ``awaited``: a reader waits for them.
    """

    __slots__ = ("store", "segment", "files", "awaited")

    def __init__(self, store, segment):
        self.store = store
        self.segment = segment
        self.files = None
        self.awaited = False


class Proof:
    """Bytes of an open segment of an earlier run, up to ``end``, that a thread reads before their mapping is
    touched.
    """

    __slots__ = ("store", "segment", "file", "end", "awaited")

    def __init__(self, store, segment, end):
        self.store = store
        self.segment = segment
        self.file = segment.msgs
        self.end = end
        self.awaited = False

    def ended(self, _result, error):
        """The thread has read them, or failed."""
        self.file.release()
        self.store.proven(self, error)


class Openings:
    """The files being opened or opened ahead; one object per broker.

    ``aside`` adds work to the committer's background, for readers; None: there are no threads.
    ``start_timer`` as in Resting.
    """

    def __init__(self, aside, start_timer):
        self._aside = aside
        self._start = start_timer
        self._timer = None
        self._ready = {}  # Opening -> whether it was there at the last check

    @property
    def in_threads(self):
        """Whether there are threads to open files."""
        return self._aside is not None

    @property
    def count(self):
        """Count of segments opened ahead and not reached by a reader."""
        return len(self._ready)

    def begin(self, opening, *what):
        """Call ``store.open_files(*what)`` in a thread, then ``store.opened(opening, files, error)`` in the
        hub.
        """
        self._aside(
            opening.store.open_files, *what,
            done=lambda files, error: opening.store.opened(opening, files, error),
        )

    def prove(self, proof, start):
        """Read the bytes of a Proof from ``start`` on in a thread, then call ``store.proven(proof, error)``
        in the hub.
        """
        proof.file.retain()
        self._aside(proof.store.files.read_through, proof.file, start, proof.end, done=proof.ended)

    def keep(self, opening):
        """Note that the files of this Opening are open and wait for a reader."""
        self._ready[opening] = False
        if self._timer is None and self._start is not None:
            self._timer = self._start(UNWANTED_MS, self._look)

    def forget(self, opening):
        """Note that a reader has reached it, or the store has dropped it."""
        self._ready.pop(opening, None)

    def stop(self):
        """Stop closing unused files."""
        self._start = None
        if self._timer is not None:
            self._timer.stop()
            self._timer = None

    def _look(self):
        self._timer = None
        old = [opening for opening, is_old in self._ready.items() if is_old]
        for opening in old[:CLOSED_AT_ONCE]:
            opening.store.close_unwanted(opening)
        if len(old) <= CLOSED_AT_ONCE:
            self._ready = dict.fromkeys(self._ready, True)
        if self._ready and self._start is not None:
            self._timer = self._start(UNWANTED_MS if len(old) <= CLOSED_AT_ONCE else PAUSE_MS, self._look)
