cimport cython
from libc.stdint cimport uint64_t

from gomq_py cimport octets
from gomq_py.storage.format cimport record
from gomq_py.storage.message cimport Message
from gomq_py.storage.segment cimport Segment
from gomq_py.storage.stream_store cimport StreamStore

cdef class StreamCursor:
    cdef readonly StreamStore store
    cdef readonly uint64_t offset
    cdef Segment _segment
    cdef Py_ssize_t _at, _size

    @cython.locals(segment=Segment)
    cpdef seek(self, uint64_t offset)
    @cython.locals(segment=Segment)
    cpdef bint peek(self, Message message) except -1
    cpdef int step(self) except -1
    @cython.locals(segment=Segment)
    cpdef uint64_t skip_before(self, uint64_t timestamp_ms) except? 0
    cpdef int close(self) except -1
    @cython.locals(segment=Segment)
    cdef bint _advance(self) except -1
    @cython.locals(segment=Segment)
    cdef bint _arrive(self) except -1
    cdef bint _enter(self, Segment segment, Py_ssize_t at) except -1
    @cython.locals(segment=Segment)
    cdef int _leave(self) except -1
    @cython.locals(at=Py_ssize_t, size=Py_ssize_t)
    cdef bint _find_record(self, Segment segment, uint64_t ordinal) except -1
    @cython.locals(end=Py_ssize_t)
    cdef Py_ssize_t _sound_size(self, Segment segment, Py_ssize_t at, Py_ssize_t size) except? 0
