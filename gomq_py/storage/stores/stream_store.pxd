cimport cython
from libc.stdint cimport uint64_t

from gomq_py.storage.format cimport record
from gomq_py.storage.message cimport Message
from gomq_py.storage.segments.segment cimport Segment
from gomq_py.storage.stores cimport segment_log

cdef unsigned int MSGS
cdef Py_ssize_t BUSY_OCTETS

cdef class StreamStore(segment_log.SegmentLog):
    cdef readonly uint64_t first_offset, next_offset, synced_offset
    cdef public bint rolled
    cdef readonly object offsets
    cdef list _order
    cdef bint _is_busy
    cdef Py_ssize_t _unstaged
    cdef set _reported, _dropped
    cdef uint64_t _sync_offset
    cdef Py_ssize_t _sync_number, _sync_end, _synced_number, _synced_end

    @cython.locals(size=Py_ssize_t, segment=Segment)
    cpdef int append(self, Message message) except -1
    cdef int _append_staged(self, Segment segment, Message message, Py_ssize_t size) except -1
    @cython.locals(segment=Segment, count=Py_ssize_t)
    cpdef int write_out(self) except -1
    @cython.locals(count=Py_ssize_t)
    cdef bint _write_staged(self) except -1
    @cython.locals(low=Py_ssize_t, high=Py_ssize_t, middle=Py_ssize_t, segment=Segment)
    cpdef Segment find(self, uint64_t offset)
    cdef bint enter(self, Segment segment, bint can_wait) except -1
    cdef int leave(self, Segment segment) except -1
    cdef int report_damage(self, Segment segment, Py_ssize_t start, Py_ssize_t end,
            Py_ssize_t count) except -1
    cpdef Segment last_segment(self)
    @cython.locals(segment=Segment)
    cpdef uint64_t offset_for_timestamp(self, uint64_t timestamp_ms) except? 0
    @cython.locals(segment=Segment)
    cpdef tuple open_for_reading(self, Py_ssize_t number)
    cdef Py_ssize_t _flushed_bytes(self, Segment segment)
    @cython.locals(segment=Segment)
    cpdef list describe(self)
    @cython.locals(segment=Segment)
    cpdef tuple oldest(self)
    @cython.locals(segment=Segment)
    cpdef drop_oldest(self)
    cdef bint _has_unsynced(self)
    @cython.locals(segment=Segment, before=Segment)
    cdef Segment _begin_segment(self, Py_ssize_t size, uint64_t came_ms, bint may_wait=*)
    @cython.locals(segment=Segment)
    cpdef drop_oldest_if_empty(self)
    cdef _forget(self, Segment segment)
    cdef _let_go(self, Segment segment)
