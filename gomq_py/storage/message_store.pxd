cimport cython
from libc.stdint cimport uint64_t

from gomq_py.storage cimport emptying, locations
from gomq_py.storage.format cimport sizes
from gomq_py.storage.message cimport Message
from gomq_py.storage.requeued cimport DeliveryCounts, LocationHeap
from gomq_py.storage.segment cimport Segment

cdef int _FROM_CURSOR, _FROM_REQUEUED
cdef unsigned int MSGS

cdef class MessageStore(emptying.EmptyingLog):
    cdef Segment _acking
    cdef uint64_t _peeked_location, _peeked_count, _peeked_entry
    cdef Py_ssize_t _peeked_size, _peeked_body
    cdef Py_ssize_t _run_start, _run_last, _run_end, _run_count
    cdef Py_ssize_t _ahead_at
    cdef object _proof

    @cython.locals(size=Py_ssize_t, at=Py_ssize_t, segment=Segment)
    cpdef int append(self, Message message) except -1
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
    cpdef int flush(self) except -1
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
    cdef int _end_run(self) except -1
    cdef int _write_run(self) except -1
