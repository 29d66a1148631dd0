cimport cython
from gomq_py cimport octets
from gomq_py.perf cimport bare_send
from libc.stdint cimport uint64_t

cdef class PublishBatch:
    cdef public bytearray buffer
    cdef public object starts
    cdef public Py_ssize_t count
    cdef long long[::1] bodies
    cdef Py_ssize_t timestamp_at, sequence_at, identifier_before
    @cython.locals(p="unsigned char*", i=cython.Py_ssize_t, at=cython.Py_ssize_t)
    cpdef stamp(self, Py_ssize_t first, Py_ssize_t last, uint64_t sequence, uint64_t timestamp_ns)
    @cython.locals(p="unsigned char*", i=cython.Py_ssize_t)
    cpdef identify(self, Py_ssize_t first, Py_ssize_t last, unsigned int identifier)
    @cython.locals(p="unsigned char*", i=cython.Py_ssize_t, start=cython.Py_ssize_t, end=cython.Py_ssize_t,
        written=cython.Py_ssize_t)
    cdef tuple _write_bare(self, int descriptor, Py_ssize_t first, Py_ssize_t last, int flags)
