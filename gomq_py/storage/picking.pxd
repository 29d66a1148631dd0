cimport cython
from libc.stdint cimport uint64_t

from gomq_py.storage cimport locations, segment_log
from gomq_py.storage.message cimport Message
from gomq_py.storage.requeued cimport DeliveryCounts, LocationHeap
from gomq_py.storage.segment cimport Segment

cdef class PickingLog(segment_log.SegmentLog):
    cdef readonly Py_ssize_t level
    cdef uint64_t _level_bits
    cdef Segment _read
    cdef Py_ssize_t _read_at
    cdef int _peeked
    cdef LocationHeap _requeued
    cdef DeliveryCounts _counts

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
    cpdef list failed_deliveries(self, tuple bounds)
    cdef Segment _find(self, uint64_t location)
    cdef bint _try_to_open(self, Segment segment, bint can_wait) except -1
    @cython.locals(segment=Segment, entry=Py_ssize_t, written=Py_ssize_t)
    cpdef int wait_until(self, uint64_t location, Py_ssize_t count, uint64_t due_s) except -1
    cdef int _grow_acks(self, Segment segment) except -1
    cpdef int announce_acks(self, Segment segment) except -1
