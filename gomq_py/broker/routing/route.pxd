from libc.stdint cimport uint64_t
from gomq_py cimport octets
from gomq_py.hub cimport scheduler as _scheduler
from gomq_py.storage.message cimport Message
cimport cython

cdef Py_ssize_t ALL, SOME_REFUSED, LOOK_AFTER, ROUTES

cdef class ExchangeState:
    cdef public uint64_t revision, publish_in, publish_out, unroutable, returned

cdef class Destination(_scheduler.TurnTaker):
    cdef public bint durable, unable, failed
    cdef public object declared_by
    cpdef int publish(self, Message message) except -1
    cpdef next_store(self)
    cpdef bint outlives_kill(self) except -1
    cpdef bint is_outrun(self) except -1

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

@cython.final
cdef class RememberedRoutes:
    cdef Route last
    cdef bytes last_key
    cdef object ask
    cdef dict routes
    cdef Py_ssize_t most
    cpdef forget(self)
    cdef Route find(self, unsigned char* at, Py_ssize_t start, Py_ssize_t length)
    @cython.locals(route=Route)
    cdef Route find_key(self, bytes key)

@cython.locals(destination=Destination, answer=int, number=Py_ssize_t, refused=Py_ssize_t)
cpdef Py_ssize_t to_all(Message message, Route route) except -1
