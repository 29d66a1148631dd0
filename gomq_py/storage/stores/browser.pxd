cimport cython
from libc.stdint cimport uint32_t, uint64_t

from gomq_py cimport octets
from gomq_py.storage.format cimport record
from gomq_py.storage.message cimport Message
from gomq_py.storage.segments cimport segment as _segment
from gomq_py.storage.segments.segment cimport Segment
from gomq_py.storage.stores.message_store cimport MessageStore

ctypedef unsigned char* octets_pointer

cdef class Browser:
    cdef readonly MessageStore store
    cdef object _requeued, _own, _own_acks
    cdef Py_ssize_t _number, _at, _last, _last_end, _run_at
    cdef Segment _segment
    cdef bint _is_proven
    cdef uint64_t[::1] _runs
    cdef unsigned char* _p

    @cython.locals(location=uint64_t, at=Py_ssize_t, segment=Segment)
    cpdef bint next(self, Message message) except -1
    @cython.locals(waiting=Py_ssize_t, passed=Py_ssize_t, segment=Segment)
    cpdef Py_ssize_t skip(self, Py_ssize_t count, Py_ssize_t limit) except -1
    cpdef close(self)
    @cython.locals(segment=Segment)
    cdef bint _come_to_segment(self) except -1
    cdef _enter(self, Segment segment)
    cdef _leave_segment(self)
    cdef _let_go(self)
    cdef bint _point(self, Segment segment) except -1
    @cython.locals(p=octets_pointer, seed=uint32_t, at=Py_ssize_t, end=Py_ssize_t, size=Py_ssize_t)
    cdef Py_ssize_t _next_ready(self, Segment segment) except -2
    cdef bint _is_gone(self, Py_ssize_t at) except -1
    @cython.locals(failed=Py_ssize_t)
    cdef int _show(self, Segment segment, Py_ssize_t at, Message message) except -1
