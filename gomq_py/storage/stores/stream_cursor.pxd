cimport cython
from libc.stdint cimport uint64_t

from gomq_py.storage.format cimport record
from gomq_py.storage.message cimport Message
from gomq_py.storage.segments.segment cimport Segment
from gomq_py.storage.stores.stream_store cimport StreamStore

cdef class StreamCursor:
    cdef readonly StreamStore store
    cdef readonly uint64_t offset
    cdef Segment _segment
    cdef Py_ssize_t _at, _size, _skipped
    cdef bint _can_wait

    @cython.locals(segment=Segment)
    cpdef seek(self, uint64_t offset)
    @cython.locals(segment=Segment)
    cpdef bint peek(self, Message message) except -1
    cpdef int step(self) except -1
    @cython.locals(segment=Segment)
    cpdef uint64_t skip_before(self, uint64_t timestamp_ms) except? 0
    @cython.locals(segment=Segment, at=Py_ssize_t)
    cdef _skip_unnamed(self, uint64_t timestamp_ms)
    @cython.locals(skipped=Py_ssize_t)
    cpdef Py_ssize_t forget_skipped(self) except? 0
    cpdef int close(self) except -1
    @cython.locals(segment=Segment)
    cdef bint _advance(self) except -1
    @cython.locals(segment=Segment)
    cdef bint _arrive(self) except -1
    cdef uint64_t _ordinal_in(self, Segment segment)
    cdef bint _enter(self, Segment segment, Py_ssize_t at) except -1
    @cython.locals(segment=Segment)
    cdef int _leave(self) except -1
    @cython.locals(at=Py_ssize_t, size=Py_ssize_t, found=Py_ssize_t, damaged_at=Py_ssize_t,
        damaged_count=Py_ssize_t, lost=Py_ssize_t, expected=Py_ssize_t, behind=Py_ssize_t, is_sound=bint)
    cdef bint _find_record(self, Segment segment, uint64_t ordinal) except -1
    @cython.locals(at=Py_ssize_t)
    cdef bint _find_written(self, Segment segment, uint64_t ordinal) except -1
    cdef int _skip_damage(self, Segment segment, Py_ssize_t start, Py_ssize_t end, Py_ssize_t count) except -1
