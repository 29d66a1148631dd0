"""Recovered: reads and checks the records of a segment that an earlier run left.

Beside segment; the cursor of message_store reads with it. Records are checked as they are reached, damaged
ones set aside. A part of the file is read through the system before its mapping is touched, because a bad
sector below a mapping kills the process; a thread reads it if the reader can wait.
"""
from array import array

from gomq_py import octets
from gomq_py.storage.format import record
from gomq_py.storage.segments import damage
from gomq_py.storage.segments.opening import Proof

# Read-ahead of the cursor: about a millisecond of a cold disk.
PROVEN_BYTES = 262144

# A thread reads so much while the cursor is in the half before it.
AHEAD_BYTES = 1 << 20


class Recovered:
    """The state of a segment of an earlier run. While its acks file is open, ``counts`` and ``dues`` are that
    file's (record.Acks); ``patchy``: the file's entries have gaps, after a power cut; ``sealed_entries``:
    count of entries by the file's seal, or -1. ``delivered``: end of the records that were delivered in an
    earlier run.

    ``proven``: end of the bytes of the msgs file that were read since the opening, and are safe to touch.
    ``proof``: the Proof of the bytes that a thread reads now, or None.
    """

    __slots__ = (
        "counts", "dues", "patchy", "sealed_entries", "delivered", "proven", "proof", "next_ordinal",
        "looked_at", "_runs", "_run_count", "_run_at", "_checked_at", "_damaged_at", "_damaged_end",
        "_wanted_end",
    )

    def __init__(self):
        self.delivered = self.proven = self.next_ordinal = self.looked_at = 0
        self.sealed_entries = -1
        self.patchy = False
        self.counts = self.dues = self.proof = self._runs = None
        self._run_count = self._run_at = 0
        self._checked_at = self._damaged_at = self._damaged_end = self._wanted_end = 0

    # acks

    def load(self, buffer, seed):
        """Read the entries of the acks file. Returns their count; new entries are written behind them."""
        acks = record.load_acks(buffer, seed, self.sealed_entries)
        self._runs = acks.runs
        self._run_count = len(acks.runs)
        self._run_at = 0
        self.counts = acks.counts
        self.dues = acks.dues
        self.patchy = acks.holes > 0
        return 0 if self.patchy else acks.entries

    def forget(self):
        """Note that the segment's files are closed."""
        self._runs = self.counts = self.dues = None
        self.proven = 0

    def runs(self):
        """The runs of records that were acked when the acks were loaded (format.record)."""
        return array("Q", self._runs) if self._runs is not None else array("Q")

    def failed_before(self, at):
        """(count, entry): the record's failed deliveries before this run, and the index + 1 of their entry.
        """
        kept = self.counts.get(at)
        if kept is not None:
            return kept[0], kept[1] + 1
        return (1 if at < self.delivered else 0), 0

    def due_before(self, at, count, now_s):
        """Unix seconds until which the last run postponed the record; 0 if that run did not, or if that run
        delivered the record afterwards.
        """
        return record.due_of(self.dues[at], count, now_s) if at in self.dues else 0

    # records

    def find(self, store, segment, at):
        """Position of the next record from ``at`` on that is neither acked nor picked nor damaged; ``end`` if
        there is none. Sets damage aside.

        Returns -1 while a thread reads needed bytes; go on from ``looked_at`` then. Raises OSError.
        """
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
        """Do find(), ignoring picks. Returns -1 for damage at [``_damaged_at``, ``_damaged_end``), -3 if the
        bytes up to ``_wanted_end`` must be read first. Then the next call starts at ``looked_at``, behind
        acked records: starting at ``at``, it would take them for damage, because their ordinals have been
        seen.
        """
        if at == self._checked_at:  # for repeated peeks
            return at
        while at < segment.end:
            if self.proven < segment.head_end(at):
                return self._want(segment, at, segment.head_end(at))
            size = segment.size_of(at)
            if self.proven < segment.end and at + size > self.proven:
                return self._want(segment, at, at + size)
            sound = (
                size > 0 and octets.le32(segment.p, at + 16) >= self.next_ordinal
                and record.header_is_sound(segment.p, at, segment.seed)
            )
            if sound:
                self.next_ordinal = octets.le32(segment.p, at + 16) + 1
            elif self.proven < segment.end:
                return self._want(segment, at, segment.end)  # to search for the next sound record
            else:
                size = record.find(segment.p, at + 8, segment.end, segment.seed, self.next_ordinal) - at
                if size < 0:
                    size = segment.end - at
            gone = self._gone_until(at)
            if gone:
                # A run ends between two records; a single entry says only where its record begins.
                at = at + size if gone == at + record.ENTRY_BYTES else gone
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
        """End of the run of acked records at ``at``; 0 if the record there is not acked."""
        while self._run_at < self._run_count and self._runs[self._run_at + 1] <= at:
            self._run_at += 2
        if self._run_at < self._run_count and self._runs[self._run_at] <= at:
            return self._runs[self._run_at + 1]
        return 0

    def _step_over_damage(self, store, segment):
        """Report and quarantine the damage that was found, and mark it as acked.

        Returns the position behind it.
        """
        start, end = self._damaged_at, self._damaged_end
        if self.proven < segment.end:
            self._read(store, segment, self.proven, segment.end)  # to count the records left
        lost_count, lost_bytes = damage.count_lost(segment, end)
        damage.set_aside(store, segment, start, end, lost_count)
        store.write_off(segment, lost_count, lost_bytes)
        return end

    # reading through the system

    def prove(self, end):
        """Note that the file was read through the system up to ``end``: its mapping is safe to touch."""
        self.proven = max(end, self.proven)

    def prove_all(self, store, segment):
        """Read the whole file. Returns False if the disk cannot read it: then the store is fenced."""
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
        """Read the bytes that _find_ready() needs. Returns False if a thread reads them: the cursor waits."""
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
        """Have a thread read the next part of the file if a cursor at ``at`` is close to the end of the read
        part.

        Returns the cursor position from which this must be called again.
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
        """Note that a thread has read the bytes of a Proof, or failed."""
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
        """Forget the bytes that a thread is reading: no reader needs them any more. Returns whether a reader
        waited.
        """
        proof, self.proof = self.proof, None
        return proof is not None and proof.awaited
