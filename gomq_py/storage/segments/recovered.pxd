cimport cython
from libc.stdint cimport uint32_t, uint64_t

from gomq_py.storage.format cimport record
from gomq_py.storage.segments cimport segment as _segment
from gomq_py.storage.segments.segment cimport Segment

cdef class Recovered:
    cdef public Py_ssize_t delivered, sealed_entries
    cdef readonly Py_ssize_t proven, looked_at
    cdef readonly uint32_t next_ordinal
    cdef readonly dict counts, excused, dues
    cdef readonly bint patchy
    cdef readonly object proof
    cdef uint64_t[::1] _runs
    cdef Py_ssize_t _run_count, _run_at, _checked_at, _damaged_at, _damaged_end, _wanted_end

    @cython.locals(at=Py_ssize_t)
    cdef Py_ssize_t find(self, store, Segment segment, Py_ssize_t at) except -2
    @cython.locals(size=Py_ssize_t, gone=Py_ssize_t, behind=uint32_t, sound=bint)
    cdef Py_ssize_t _find_ready(self, Segment segment, Py_ssize_t at) except -2
    cdef Py_ssize_t _want(self, Segment segment, Py_ssize_t start, Py_ssize_t end) except -2
    cdef Py_ssize_t _gone_until(self, Py_ssize_t at)
    cdef tuple failed_before(self, Py_ssize_t at)
    cpdef tuple excused_before(self, Py_ssize_t at)
    cdef uint64_t due_before(self, Py_ssize_t at, Py_ssize_t count, uint64_t now_s) except? 0
    @cython.locals(proven=Py_ssize_t, due=Py_ssize_t)
    cdef Py_ssize_t look_ahead(self, store, Segment segment, Py_ssize_t at) except -1
    cpdef int prove(self, Py_ssize_t end) except -1
