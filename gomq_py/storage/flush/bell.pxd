cimport cython

@cython.final
cdef class Bell:
    cdef readonly bint is_rung
    cdef readonly double rings_at_s
    cdef object waiter, timer
    cpdef set(self)
    cpdef clear(self)
    cpdef wait(self, double until_s)
    cpdef close(self)
    cdef _set_timer(self, double until_s)
