cimport cython
from libc.stdint cimport uint64_t

from gomq_py.storage.format cimport record
from gomq_py.storage.message cimport Message
from gomq_py.storage.segments cimport segment as _segment
from gomq_py.storage.segments.recovered cimport Recovered
from gomq_py.storage.segments.segment cimport AckRun, Segment
from gomq_py.storage.stores cimport segment_log
from gomq_py.storage.stores.requeued cimport Requeued

cdef int _FROM_CURSOR, _FROM_REQUEUED
cdef unsigned int MSGS

cdef class MessageStore(segment_log.SegmentLog):
    cdef readonly Py_ssize_t level
    cdef uint64_t _level_bits
    cdef readonly Segment read_segment
    cdef readonly Py_ssize_t read_at
    cdef Py_ssize_t _ahead_at
    cdef readonly Requeued requeued
    cdef AckRun _run
    cdef bint _noted
    cdef int _peeked
    cdef uint64_t _peeked_location, _peeked_count, _peeked_entry
    cdef Py_ssize_t _peeked_size, _peeked_body

    @cython.locals(size=Py_ssize_t, at=Py_ssize_t, segment=Segment)
    cpdef int append(self, Message message) except -1
    @cython.locals(segment=Segment)
    cpdef bint peek(self, Message message) except -1
    cpdef int shift(self) except -1
    cpdef bint shows_recovered(self) except -1
    @cython.locals(count=uint64_t, entry=uint64_t)
    cpdef int postpone(self) except -1
    @cython.locals(recovered=Recovered)
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
    cpdef int write_out(self) except -1

    @cython.locals(segment=Segment)
    cdef Segment _roll(self, Py_ssize_t size, bint may_wait, uint64_t came_ms)
    cdef int _finish(self, Segment segment) except -1
    @cython.locals(segment=Segment)
    cdef Segment _find(self, uint64_t location)
    @cython.locals(segment=Segment)
    cdef bint _advance(self) except -1
    @cython.locals(recovered=Recovered)
    cpdef bint is_waiting(self) except -1
    @cython.locals(recovered=Recovered)
    cdef int _look_ahead(self, Segment segment) except -1
    cdef bint _try_to_open(self, Segment segment, bint can_wait) except -1
    @cython.locals(at=Py_ssize_t, recovered=Recovered)
    cdef bint _find_recovered(self, Segment segment) except -1
    cpdef adopt(self, Segment segment)
    cpdef int write_off(self, Segment segment, Py_ssize_t lost_count, uint64_t lost_bytes) except -1
    cdef int _pass(self, Segment segment) except -1
    cdef int _put_delivered(self, Segment segment) except -1
    @cython.locals(location=uint64_t, segment=Segment)
    cdef bint _peek_requeued(self, Message message) except -1
    @cython.locals(segment=Segment)
    cdef int _remember_count(self) except -1
    cdef Requeued _have_requeued(self)
    cdef int _turn_run_to(self, Segment segment) except -1
    @cython.locals(at=Py_ssize_t, body_length=Py_ssize_t, segment=Segment, recovered=Recovered)
    cpdef bint pick(self, uint64_t location) except -1
    @cython.locals(at=Py_ssize_t, segment=Segment)
    cpdef int unpick(self, uint64_t location) except -1
    @cython.locals(number=Py_ssize_t, segment=Segment)
    cdef Segment _before_cursor(self, uint64_t location)
    cdef int _count_taken(self, int count, uint64_t body_length) except -1
    @cython.locals(before=Segment)
    cdef int _unlink(self, Segment segment) except -1
    @cython.locals(segment=Segment)
    cpdef Segment browsable(self, Py_ssize_t number)
    @cython.locals(oldest=uint64_t, at_cursor=uint64_t, location=uint64_t, segment=Segment,
        at=Py_ssize_t)
    cpdef uint64_t oldest_ready_ms(self) except? 0
    @cython.locals(segment=Segment, beside=Py_ssize_t, count=Py_ssize_t)
    cpdef Py_ssize_t ready_octets(self) except -1
    @cython.locals(segment=Segment)
    cpdef int wait_until(self, uint64_t location, Py_ssize_t count, uint64_t due_s) except -1
    @cython.locals(segment=Segment)
    cpdef Py_ssize_t excuse(self, uint64_t location, Py_ssize_t more) except -1
    @cython.locals(segment=Segment, following=Segment)
    cpdef Py_ssize_t purge(self) except -1
    @cython.locals(location=uint64_t, segment=Segment, count=Py_ssize_t)
    cdef int _purge_requeued(self) except -1
    @cython.locals(at=Py_ssize_t)
    cdef int _delete_few(self, Segment segment) except -1
    @cython.locals(has_new_acks=bint)
    cdef int _drop_ready(self, Segment segment, Py_ssize_t start, Py_ssize_t count) except -1
    @cython.locals(segment=Segment)
    cpdef uint64_t resting_at(self) except? 0
    cdef int _note(self) except -1
