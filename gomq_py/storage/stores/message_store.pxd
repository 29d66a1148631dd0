cimport cython
from libc.stdint cimport uint64_t

from gomq_py.storage.format cimport record
from gomq_py.storage.message cimport Message
from gomq_py.storage.segments.segment cimport Segment
from gomq_py.storage.stores cimport segment_log
from gomq_py.storage.stores.requeued cimport DeliveryCounts, LocationHeap

cdef int _FROM_CURSOR, _FROM_REQUEUED
cdef unsigned int MSGS
cdef Py_ssize_t SMALLEST_RUN, WRITTEN_OCTETS

@cython.final
cdef class AckRun:
    cdef readonly Segment segment
    cdef readonly Py_ssize_t start, last, end, count

    cdef int begin(self, Py_ssize_t at, Py_ssize_t size) except -1
    cdef int write(self) except -1
    cdef int turn_to(self, Segment segment) except -1

cdef class MessageStore(segment_log.SegmentLog):
    cdef readonly Py_ssize_t level
    cdef uint64_t _level_bits
    cdef Segment _read
    cdef Py_ssize_t _read_at, _ahead_at
    cdef object _proof
    cdef LocationHeap _requeued
    cdef DeliveryCounts _counts
    cdef AckRun _run
    cdef bint _noted
    cdef int _peeked
    cdef uint64_t _peeked_location, _peeked_count, _peeked_entry
    cdef Py_ssize_t _peeked_size, _peeked_body

    @cython.locals(size=Py_ssize_t, at=Py_ssize_t, segment=Segment)
    cpdef int append(self, Message message) except -1
    cdef bint _append_uncached(self, Segment segment, Message message, Py_ssize_t size) except -1
    cdef bint _write_body(self, Segment segment, Message message) except -1
    @cython.locals(segment=Segment)
    cpdef bint peek(self, Message message) except -1
    cpdef int shift(self) except -1
    cpdef bint shows_recovered(self) except -1
    @cython.locals(count=uint64_t, entry=uint64_t)
    cpdef int postpone(self) except -1
    cpdef uint64_t peeked_due_s(self, uint64_t now_s) except? 0
    @cython.locals(at=Py_ssize_t, size=Py_ssize_t, body_length=Py_ssize_t, segment=Segment)
    cpdef int delete(self, uint64_t location) except -1
    @cython.locals(at=Py_ssize_t, body_length=Py_ssize_t, segment=Segment)
    cpdef int requeue(self, uint64_t location) except -1
    @cython.locals(at=Py_ssize_t, segment=Segment)
    cpdef bint read(self, uint64_t location, Message message) except -1
    @cython.locals(segment=Segment)
    cpdef body_file(self, Message message)
    @cython.locals(segment=Segment)
    cpdef int flush(self) except -1
    @cython.locals(first=uint64_t)
    cpdef adopt(self, Segment segment)

    @cython.locals(segment=Segment)
    cdef Segment _roll(self, Py_ssize_t size, bint may_wait)
    cdef int _finish(self, Segment segment) except -1
    @cython.locals(segment=Segment)
    cdef Segment _find(self, uint64_t location)
    @cython.locals(segment=Segment)
    cdef bint _advance(self) except -1
    cpdef bint is_waiting(self) except -1
    cdef int _look_ahead(self, Segment segment) except -1
    @cython.locals(proven=Py_ssize_t, due=Py_ssize_t)
    cdef Py_ssize_t _prove_ahead(self, Segment segment) except -1
    cdef int _begin_proof(self, Segment segment, Py_ssize_t start, Py_ssize_t end) except -1
    @cython.locals(start=Py_ssize_t, end=Py_ssize_t)
    cdef bint _prove_wanted(self, Segment segment) except -1
    cdef bint _try_to_open(self, Segment segment, bint can_wait) except -1
    cdef bint _find_readable(self, Segment segment) except -1
    cdef int _prove(self, Segment segment, Py_ssize_t start, Py_ssize_t end) except -1
    @cython.locals(at=Py_ssize_t)
    cdef bint _find_recovered(self, Segment segment) except -1
    cdef Py_ssize_t _step_over_damage(self, Segment segment) except -1
    cdef int _write_off(self, Segment segment, Py_ssize_t lost_count, uint64_t lost_bytes) except -1
    cdef int _pass(self, Segment segment) except -1
    cdef int _put_delivered(self, Segment segment) except -1
    @cython.locals(location=uint64_t, segment=Segment)
    cdef bint _peek_requeued(self, Message message) except -1
    cdef int _take_requeued(self) except -1
    @cython.locals(location=uint64_t, entry=uint64_t, written=uint64_t, segment=Segment)
    cdef int _remember_count(self) except -1
    @cython.locals(segment=Segment)
    cdef Segment _turn_to(self, uint64_t location)
    @cython.locals(segment=Segment)
    cdef int _end_run(self) except -1
    @cython.locals(at=Py_ssize_t, body_length=Py_ssize_t, segment=Segment)
    cpdef bint pick(self, uint64_t location) except -1
    @cython.locals(at=Py_ssize_t, segment=Segment)
    cpdef int unpick(self, uint64_t location) except -1
    @cython.locals(number=Py_ssize_t, segment=Segment)
    cdef Segment _before_cursor(self, uint64_t location)
    cdef bint _prove_all(self, Segment segment) except -1
    cdef int _remember_failures(self, Segment segment, uint64_t location) except -1
    cdef int _count_taken(self, int count, uint64_t body_length) except -1
    @cython.locals(before=Segment)
    cdef int _unlink(self, Segment segment) except -1
    cpdef requeued_locations(self)
    cpdef end_of_log(self)
    cpdef Segment read_segment(self)
    cpdef Py_ssize_t read_position(self)
    cpdef uint64_t location_of(self, uint64_t number, uint64_t at)
    @cython.locals(segment=Segment)
    cpdef Segment browsable(self, Py_ssize_t number)
    cpdef bint read_back(self, uint64_t location, Message message) except -1
    @cython.locals(oldest=uint64_t, at_cursor=uint64_t, location=uint64_t, segment=Segment)
    cpdef uint64_t oldest_ready_ms(self) except? 0
    @cython.locals(segment=Segment, beside=Py_ssize_t, count=Py_ssize_t)
    cpdef Py_ssize_t ready_octets(self) except -1
    cpdef list failed_deliveries(self, tuple bounds)
    @cython.locals(segment=Segment, entry=Py_ssize_t, written=Py_ssize_t)
    cpdef int wait_until(self, uint64_t location, Py_ssize_t count, uint64_t due_s) except -1
    cdef int _grow_acks(self, Segment segment) except -1
    cpdef int announce_acks(self, Segment segment) except -1
    @cython.locals(segment=Segment, following=Segment)
    cpdef Py_ssize_t purge(self) except -1
    @cython.locals(requeued=LocationHeap, location=uint64_t)
    cdef int _purge_requeued(self) except -1
    cdef bint _is_only(self, Segment segment, Py_ssize_t count) except -1
    cdef int _forget_all(self, Segment segment) except -1
    @cython.locals(segment=Segment)
    cdef _purge_one(self, uint64_t location)
    @cython.locals(count=Py_ssize_t)
    cdef _purge_segment(self, Segment segment)
    @cython.locals(at=Py_ssize_t, size=Py_ssize_t)
    cdef int _purge_between_picks(self, Segment segment) except -1
    @cython.locals(segment=Segment)
    cpdef uint64_t resting_at(self) except? 0
    cpdef forgotten(self)
    @cython.locals(segment=Segment)
    cpdef give_segment_back(self)
    cdef int _note(self) except -1
