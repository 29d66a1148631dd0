"""Recovered: reads and checks the records of a segment that an earlier run left.

Used by segments.segment and stores.message_store. Records are checked when reading reaches them; damaged ones
are hidden and reported. A system call reads each part of the file before its mapping is touched, because a
bad sector below a mapping kills the process. A thread makes that system call if the reader can wait.
"""
from array import array

from gomq_py.storage.format import record
from gomq_py.storage.segments import damage
from gomq_py.storage.segments.opening import Proof

# Read-ahead of the cursor: about a millisecond of a cold disk.
PROVEN_BYTES = 262144

# A thread reads so much while the cursor is in the half before it.
AHEAD_BYTES = 1 << 20


class Recovered:
    """State of a segment of an earlier run.

        counts, excused, dues
                          values of the acks file (see record.Acks) while the segment is open
        patchy            True if the acks file has gaps between its entries, after a power failure
        sealed_entries    number of entries according to the acks file's seal (closing counts); -1: unknown
        delivered         records before this position were delivered in an earlier run
        proven            the msgs file was read up to this position, so its mapping is safe to touch
        proof             the Proof of the bytes that a thread reads now, or None
    """

    __slots__ = (
        "counts", "excused", "dues", "patchy", "sealed_entries", "delivered", "proven", "proof",
        "next_ordinal", "looked_at", "_runs", "_run_count", "_run_at", "_checked_at", "_damaged_at",
        "_damaged_end", "_wanted_end",
    )

    def __init__(self):
        self.delivered = self.proven = self.next_ordinal = self.looked_at = 0
        self.sealed_entries = -1
        self.patchy = False
        self.counts = self.excused = self.dues = self.proof = self._runs = None
        self._run_count = self._run_at = 0
        self._checked_at = self._damaged_at = self._damaged_end = self._wanted_end = 0

    # acks

    def load(self, buffer, seed):
        """Decode the acks file. Returns the index at which to look for space for new entries."""
        acks = record.load_acks(buffer, seed, self.sealed_entries)
        self._runs = acks.runs
        self._run_count = len(acks.runs)
        self._run_at = 0
        self.counts = acks.counts
        self.excused = acks.excused
        self.dues = acks.dues
        self.patchy = acks.holes > 0
        return 0 if self.patchy else acks.entries

    def forget(self):
        """Drop the data read from the segment's files, because the files are closed."""
        self._runs = self.counts = self.excused = self.dues = None
        self.proven = 0

    def runs(self):
        """Return positions [start, end, start, end...] of runs that load() found acked, in a new array."""
        return array("Q", self._runs) if self._runs is not None else array("Q")

    def failed_before(self, at):
        """Return (earlier failed deliveries of the record at ``at``, index + 1 of its COUNT entry or 0)."""
        kept = self.counts.get(at)
        if kept is not None:
            return kept[0], kept[1] + 1
        return (1 if at < self.delivered else 0), 0

    def excused_before(self, at):
        """Return (deliveries of the record at ``at`` without failure, its EXCUSED entry's index + 1 or 0)."""
        kept = self.excused.get(at)
        return (0, 0) if kept is None else (kept[0], kept[1] + 1)

    def due_before(self, at, count, now_s):
        """Return the Unix seconds until which an earlier run has postponed the record at ``at``; otherwise 0.
        Also 0 if the record's failed deliveries, ``count``, have changed since.
        """
        return record.due_of(self.dues[at], count, now_s) if at in self.dues else 0

    # records

    def find(self, store, segment, at):
        """Return the position of the next ready record from ``at`` on, or ``segment.end`` without one.
        Returns -1 if a thread must read bytes first; then search again from ``looked_at``. Raises OSError.
        """
        # Ready: neither acked, picked nor damaged. Damage on the way is reported and marked as acked.
        while True:
            at = self._find_ready(segment, at)
            if at == -3:
                at = self.looked_at
                if not self._prove_wanted(store, segment):
                    return -1
            elif at < 0:
                at = self._step_over_damage(store, segment)
            elif at < segment.end and segment.is_picked(at):
                at = segment.skip_picked(at)
            else:
                return at

    def _find_ready(self, segment, at):
        """Find the next record that is neither acked nor damaged. Returns its position, or ``segment.end``.
        Returns -1 for damage at [``_damaged_at``, ``_damaged_end``), and -3 if bytes up to ``_wanted_end``
        must be read first; then search again from ``looked_at``.
        """
        # looked_at is behind acked records whose ordinals have been seen: from before them they would count
        # as damaged.
        if at == self._checked_at:  # for repeated peeks
            return at
        while at < segment.end:
            if self.proven < segment.head_end(at):
                return self._want(segment, at, segment.head_end(at))
            size = segment.size_of(at)
            if self.proven < segment.end and at + size > self.proven:
                return self._want(segment, at, at + size)
            behind = 0
            sound = (
                size > 0 and record.ordinal_at(segment.p, at) >= self.next_ordinal
                and record.header_is_sound(segment.p, at, segment.seed)
            )
            if sound:
                self.next_ordinal = record.ordinal_at(segment.p, at) + 1
            elif self.proven < segment.end:
                return self._want(segment, at, segment.end)  # to search for the next sound record
            else:
                size = record.find(
                    segment.p, at + record.ALIGNMENT, segment.end, segment.seed, self.next_ordinal) - at
                behind = segment.ordinal if size < 0 else record.ordinal_at(segment.p, at + size)
                if size < 0:
                    size = segment.end - at
            gone = self._gone_until(at)
            # A run ends between two records; a single entry says only where its record begins.
            if gone and gone != at + record.ENTRY_BYTES:
                at = gone
                continue
            if gone and (sound or behind <= self.next_ordinal + 1):  # otherwise others are damaged with it
                at += size
                continue
            if sound and record.content_is_sound(segment.p, at, segment.seed):
                self._checked_at = at
                return at
            self._damaged_at = at
            self._damaged_end = at + size
            return -1
        return segment.end

    def _want(self, segment, start, end):
        self.looked_at = start
        self._wanted_end = min(end, segment.end)
        return -3

    def _gone_until(self, at):
        while self._run_at < self._run_count and self._runs[self._run_at + 1] <= at:
            self._run_at += 2
        if self._run_at < self._run_count and self._runs[self._run_at] <= at:
            return self._runs[self._run_at + 1]
        return 0

    def _step_over_damage(self, store, segment):
        """Report and ack the damage that _find_ready() found. Returns the position after it."""
        start, end = self._damaged_at, self._damaged_end
        if self.proven < segment.end:
            self._read(store, segment, self.proven, segment.end)  # to count the records left
        lost_count, lost_bytes = damage.count_lost(segment, end)
        damage.set_aside(store, segment, start, end, lost_count)
        store.write_off(segment, lost_count, lost_bytes)
        return end

    # reading through the system

    def prove(self, end):
        """Record that the file was read up to ``end``. This part of its mapping is then safe to touch."""
        self.proven = max(end, self.proven)

    def prove_all(self, store, segment):
        """Have the system read the whole file. After an I/O error, stops the store and returns False."""
        try:
            self._read(store, segment, self.proven, segment.end)
        except OSError as error:
            store.fence(error)
            return False
        return True

    def _read(self, store, segment, start, end):
        if start < end:
            store.files.read_through(segment.msgs, start, end)
            self.prove(end)

    def _prove_wanted(self, store, segment):
        """Read what _find_ready() needs. Returns False if a thread reads it, and the reader must wait."""
        start = max(self.looked_at, self.proven)
        end = min(max(self._wanted_end, start + PROVEN_BYTES), segment.end)
        if not store.may_open_aside():
            self._read(store, segment, start, end)
            return True
        if self.proof is None:
            self._begin_proof(store, segment, start, end)
        self.proof.awaited = True
        return False

    def look_ahead(self, store, segment, at):
        """Have a thread read the next part of the file if ``at`` is near the end of the part that was read.
        Returns the position from which on look_ahead() must be called again.
        """
        proven = self.proven if self.proof is None else self.proof.end
        due = max(proven - AHEAD_BYTES // 2, proven // 2)
        if at >= due and proven == self.proven and segment.is_open:
            self._begin_proof(store, segment, proven, min(proven + AHEAD_BYTES, segment.end))
            due = max(self.proof.end - AHEAD_BYTES // 2, at + 1)
        return due

    def _begin_proof(self, store, segment, start, end):
        self.proof = Proof(store, segment, end)
        store.pool.openings.prove(self.proof, start)

    def proof_ended(self, proof, error):
        """Let the waiting reader continue after a thread has read the bytes of ``proof``, or failed."""
        if self.proof is not proof:
            return
        self.proof = None
        store = proof.store
        if store.failure is not None:
            return
        if error is None:
            if proof.segment.is_open and proof.segment.msgs is proof.file:
                self.prove(proof.end)
            if proof.awaited and store.listener is not None:
                store.listener.segment_opened(store)
        elif proof.awaited:  # otherwise the next reader tries again
            store.fence(error)

    def drop_proof(self):
        """Ignore the result of a thread that is reading bytes. Returns whether a reader waited for it."""
        proof, self.proof = self.proof, None
        return proof is not None and proof.awaited
