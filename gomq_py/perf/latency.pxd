cimport cython
from libc.stdint cimport uint64_t

cdef class LatencyHistogram:
    cdef uint64_t[::1] buckets
    @cython.locals(shift=uint64_t)
    cpdef add(self, uint64_t value)
