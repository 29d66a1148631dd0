cimport cython
from gomq_py.net cimport ssl_calls

cdef class RecordReader:
    cdef object _read, _has_pending, _failure
    cdef bytearray _calls
    cdef bint _may_have_more, _is_over

    @cython.locals(count=Py_ssize_t, room=Py_ssize_t, got=Py_ssize_t, error=int, number=int,
        taken=Py_ssize_t)
    cpdef Py_ssize_t receive_into(self, view) except -1
