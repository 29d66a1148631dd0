cimport cython

from gomq_py.storage.segment cimport Segment

cdef Py_ssize_t SMALLEST_RUN

@cython.final
cdef class AckRun:
    cdef readonly Segment segment
    cdef readonly Py_ssize_t start, last, end, count

    cdef int begin(self, Py_ssize_t at, Py_ssize_t size) except -1
    cdef int write(self) except -1
    cdef int turn_to(self, Segment segment) except -1
