cimport cython

from libc.stdint cimport uint64_t

from gomq_py.storage.format cimport record
from gomq_py.storage.message cimport Message
from gomq_py.storage.segments.segment cimport Segment, Stage
from gomq_py.storage.stores cimport store as _store

cdef Py_ssize_t WRITTEN_OCTETS

cdef class SegmentLog(_store.Store):
    cdef object _shelf, _expected_shelf, _outer
    cdef Stage _stage
    cdef Py_ssize_t _staged, _last_staged
    cdef readonly dict _segments
    cdef Segment _write, _last
    cdef Py_ssize_t _next_number, _next_bytes, _expect_at, _expected_bytes
    cdef bint _marked, _closing, _fenced
    cdef list _unsynced, _syncing
    cdef readonly object opener
    cdef bint _is_unawaited

    @cython.locals(segment=Segment)
    cpdef uint64_t place_of(self, Py_ssize_t size) except? 0
    @cython.locals(number=Py_ssize_t, position=Py_ssize_t, segment=Segment)
    cpdef bint has_record(self, uint64_t place, uint64_t came_ms) except -1
    @cython.locals(was_open=bint)
    cdef bint _is_whole(self, Segment segment, Py_ssize_t at, uint64_t came_ms) except -1
    cpdef int mark(self) except -1
    @cython.locals(segment=Segment, unsynced=list, what=cython.uint)
    cpdef list sync_files(self, bint acks_too)
    @cython.locals(segment=Segment)
    cpdef synced(self)
    cdef bint _has_unsynced(self)
    @cython.locals(flushed=Py_ssize_t, is_whole=bint)
    cdef int _note_synced(self, Segment segment) except -1
    cdef bint _has_stage(self, Py_ssize_t size) except -1
    cdef bint _append_uncached(self, Segment segment, Message message, Py_ssize_t size) except -1
    cdef bint _write_body(self, Segment segment, Message message) except -1
    cdef int _put_on_stage(self, Segment segment, Message message) except -1
    @cython.locals(segment=Segment, count=Py_ssize_t)
    cdef bint _write_staged(self) except -1
    cdef int _end_stage(self) except -1
    @cython.locals(before=Segment, segment=Segment)
    cdef Segment _roll(self, Py_ssize_t size, bint may_wait, uint64_t came_ms)
    cdef int _begin_small(self) except -1
    cdef int _expect_next(self) except -1
    cdef _next_shelf(self)
    cdef int _unexpect(self) except -1
    cdef Py_ssize_t _capacity_for(self, Py_ssize_t size) except -1
    cdef int _check_ready(self, Py_ssize_t capacity) except -1
    @cython.locals(segment=Segment)
    cdef Segment _create_segment(self, Py_ssize_t capacity, uint64_t came_ms)
    cdef _leave_behind(self, Segment segment)
    cdef bint has_name(self, Segment segment) except -1
    cdef bint _come_to(self, Segment segment, bint can_wait) except -1
    cpdef bint may_open_aside(self) except -1
    @cython.locals(following=Segment)
    cdef int _open_next(self, Segment segment) except -1
    cdef _close_segment(self, Segment segment)
    @cython.locals(segment=Segment)
    cdef _close_files(self)
    cdef _discard(self, Segment segment)
    cdef int announce(self, Segment segment=*) except -1
    cdef int entries_changed(self, Segment segment, Py_ssize_t start, Py_ssize_t end) except -1
    cpdef int announce_acks(self, Segment segment) except -1
    cdef int _mark_messages(self, Segment segment) except -1
    cdef int _mark_acks(self, Segment segment) except -1
    cdef int _mark_unsynced(self, Segment segment, unsigned int what) except -1
    cdef int _stop(self, failure) except -1
    cdef bint _is_idle(self, Segment segment) except -1
