"""Opening: a thread opens and reads the files of a closed segment, while a reader waits for them or before it
comes to them.

Between segment_log, which says what a segment's files are and what becomes of them, and
storage.flush.group_commit's threads. Parts of open segments that a power cut may have damaged are read here,
too, before anybody touches their mapping. If no reader comes to what was opened ahead, it is closed again: a
backlog that nobody reads holds no mapping. Never blocks, never switches.
"""

# What was opened ahead and not come to is closed after this time, or after up to twice as long.
UNWANTED_MS = 10_000
# So many at once, some 20 us each, before the next pause.
CLOSED_AT_ONCE = 100
PAUSE_MS = 25


class Opening:
    """The files of one segment of a store.

    ``files``: (msgs, acks or None) once they are open. ``awaited``: a reader waits for them.
    """

    __slots__ = ("store", "segment", "files", "awaited")

    def __init__(self, store, segment):
        self.store = store
        self.segment = segment
        self.files = None
        self.awaited = False


class Proof:
    """Octets of an open segment of an earlier run, up to ``end``, that a thread reads before anybody touches
    their mapping.
    """

    __slots__ = ("store", "segment", "file", "end", "awaited")

    def __init__(self, store, segment, end):
        self.store = store
        self.segment = segment
        self.file = segment.msgs
        self.end = end
        self.awaited = False

    def ended(self, _result, error):
        """The thread has read them, or could not."""
        self.file.release()
        self.store.proven(self, error)


class Openings:
    """One per broker.

    ``aside``: the committer's lane for readers, or None: there are no threads. ``start_timer`` as in Resting.
    """

    def __init__(self, aside, start_timer):
        self._aside = aside
        self._start = start_timer
        self._timer = None
        self._ready = {}  # Opening -> whether it was there at the last look

    @property
    def in_threads(self):
        """Whether anything can be opened here."""
        return self._aside is not None

    @property
    def count(self):
        """Segments whose files are open and that no reader has come to."""
        return len(self._ready)

    def begin(self, opening, *what):
        """Have ``store.open_files(*what)`` called in a thread; then ``store.opened(opening, files, error)``
        is called in the hub.
        """
        self._aside(
            opening.store.open_files, *what,
            done=lambda files, error: opening.store.opened(opening, files, error),
        )

    def prove(self, proof, start):
        """Have the octets of a Proof read from ``start`` on in a thread; then ``store.proven(proof, error)``
        is called in the hub.
        """
        proof.file.retain()
        self._aside(proof.store.files.read_through, proof.file, start, proof.end, done=proof.ended)

    def keep(self, opening):
        """The files of this Opening are open, and wait for a reader."""
        self._ready[opening] = False
        if self._timer is None and self._start is not None:
            self._timer = self._start(UNWANTED_MS, self._look)

    def forget(self, opening):
        """A reader has come to it, or the store has given it up."""
        self._ready.pop(opening, None)

    def stop(self):
        """From now on nothing is closed because its time is over."""
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
