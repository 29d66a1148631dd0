cimport cython

@cython.final
cdef class Coming:
    cdef public bint has_begun
    cdef readonly Py_ssize_t joined
    cdef Gathering _gathering
    cpdef join(self)

@cython.final
cdef class Gathering:
    cdef readonly Coming coming
    cdef double _may_begin_s, _due_s
    cdef bint _is_steady
    cdef object _pausing
    cpdef begin(self)
    cpdef flushed(self, double began_s, bint overlaps, Py_ssize_t answered)
    @cython.locals(due=double, left=double)
    cpdef hold_up(self, flusher)
    @cython.locals(late=double)
    cpdef asked(self)
