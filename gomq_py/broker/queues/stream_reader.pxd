cimport cython
from libc.stdint cimport uint64_t

from gomq_py.storage.message cimport Message
from gomq_py.storage.stream_cursor cimport StreamCursor

cdef class StreamReader:
    cdef readonly StreamCursor cursor
    cdef readonly uint64_t slot
    cdef public Py_ssize_t outstanding
    cdef public bint attached
    cdef readonly object wanted
    cpdef bint next(self, Message message) except -1
    @cython.locals(location=uint64_t)
    cdef uint64_t take(self) except 0
    cdef bint is_behind(self)
    cpdef uint64_t offset(self)
