cimport cython

cdef class DenseFlood:
    cdef readonly Py_ssize_t ticks
    cdef Py_ssize_t _waited, _octets, _segments, _pause, _pauses_left
    cdef double _began, _rate_before

    cdef bint is_due(self) except -1
    cdef int ends(self) except -1
    @cython.locals(
        now=double, elapsed_s=double, rate=double, came=Py_ssize_t, before=Py_ssize_t, segments=Py_ssize_t)
    cdef look(self, socket, Py_ssize_t octets, Py_ssize_t smallest_octets)
