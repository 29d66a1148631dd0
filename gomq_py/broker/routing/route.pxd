from libc.stdint cimport uint64_t
from gomq_py.broker.exchanges.state cimport ExchangeState
cimport cython

@cython.final
cdef class Route:
    cdef readonly tuple queues
    cdef readonly ExchangeState exchange, permission
    cdef readonly uint64_t revision, permission_revision
    cdef readonly bint durable, needs_headers
    cdef bytes routing
    cdef readonly bytes watched
    cdef readonly Route delayed
    cpdef bint is_current(self)
    @cython.locals(count=Py_ssize_t)
    cpdef int count(self) except -1
