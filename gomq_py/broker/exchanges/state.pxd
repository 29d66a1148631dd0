from libc.stdint cimport uint64_t

cdef class ExchangeState:
    cdef public uint64_t revision, publish_in, publish_out, unroutable, returned
