cimport cython
from libc.stdint cimport uint64_t

from gomq_py.storage.message cimport Message
from gomq_py.storage.requeued cimport DeliveryCounts, LocationHeap
from gomq_py.storage.segment cimport Segment

cdef class MessageStore:
    cdef readonly object folder, files, pool, committer, incarnation, failure
    cdef public object listener
    cdef readonly Py_ssize_t segment_bytes, level
    cdef readonly bint durable
    cdef readonly Py_ssize_t ready_count, unacked_count
    cdef readonly uint64_t ready_bytes, unacked_bytes
    cdef readonly dict _segments
    cdef Segment _read, _write, _last, _acking
    cdef Py_ssize_t _read_at, _next_number, _next_bytes
    cdef uint64_t _level_bits
    cdef bint _marked, _closing
    cdef list _unsynced, _syncing
    cdef int _peeked
    cdef uint64_t _peeked_location, _peeked_count
    cdef Py_ssize_t _peeked_size, _peeked_body
    cdef Py_ssize_t _run_start, _run_last, _run_end, _run_count
    cdef LocationHeap _requeued
    cdef DeliveryCounts _counts

    @cython.locals(size=Py_ssize_t, at=Py_ssize_t, segment=Segment)
    cpdef int append(self, Message message) except -1
    @cython.locals(segment=Segment)
    cpdef bint peek(self, Message message) except -1
    cpdef int shift(self) except -1
    @cython.locals(at=Py_ssize_t, size=Py_ssize_t, body_length=Py_ssize_t, segment=Segment)
    cpdef int delete(self, uint64_t location) except -1
    @cython.locals(at=Py_ssize_t, body_length=Py_ssize_t, segment=Segment)
    cpdef int requeue(self, uint64_t location) except -1
    @cython.locals(at=Py_ssize_t, segment=Segment)
    cpdef bint read(self, uint64_t location, Message message) except -1
    @cython.locals(segment=Segment)
    cpdef int flush(self) except -1
    @cython.locals(segment=Segment, following=Segment)
    cpdef Py_ssize_t purge(self) except -1
    @cython.locals(segment=Segment)
    cpdef close(self)
    @cython.locals(segment=Segment)
    cpdef delete_files(self)
    cpdef fence(self, error)
    @cython.locals(segment=Segment)
    cpdef list sync_files(self)
    @cython.locals(segment=Segment)
    cpdef synced(self)

    @cython.locals(before=Segment, segment=Segment)
    cdef Segment _roll(self, Py_ssize_t size)
    cdef Py_ssize_t _capacity_for(self, Py_ssize_t size) except -1
    @cython.locals(segment=Segment)
    cdef Segment _create_segment(self, Py_ssize_t capacity)
    cdef int _finish(self, Segment segment) except -1
    cdef _discard(self, Segment segment)
    @cython.locals(segment=Segment)
    cdef Segment _find(self, uint64_t location)
    cdef _leave_behind(self, Segment segment)
    cdef _open(self, Segment segment)
    cdef bint _find_recovered(self, Segment segment) except -1
    cdef int _note_synced(self, Segment segment) except -1
    cdef int _stop(self, failure) except -1
    @cython.locals(segment=Segment)
    cdef int _close_files(self) except -1
    @cython.locals(segment=Segment)
    cdef bint _advance(self) except -1
    cdef int _pass(self, Segment segment) except -1
    cdef int _put_delivered(self, Segment segment) except -1
    @cython.locals(location=uint64_t, segment=Segment)
    cdef bint _peek_requeued(self, Message message) except -1
    cdef int _take_requeued(self) except -1
    @cython.locals(location=uint64_t, entry=uint64_t, segment=Segment)
    cdef int _remember_count(self) except -1
    @cython.locals(segment=Segment)
    cdef Segment _turn_to(self, uint64_t location)
    cdef int _write_run(self) except -1
    cdef int _announce_acks(self, Segment segment) except -1
    @cython.locals(segment=Segment)
    cdef _purge_one(self, uint64_t location)
    cdef _purge_segment(self, Segment segment)
    cdef int _mark_messages(self, Segment segment) except -1
    cdef int _mark_unsynced(self, Segment segment, unsigned int what) except -1
