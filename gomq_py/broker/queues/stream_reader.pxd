cimport cython
from libc.stdint cimport uint64_t

from gomq_py.broker.queues.stream_filter cimport StreamFilter
from gomq_py.broker.queues.stream_flight cimport StreamFlight
from gomq_py.storage.message cimport Message
from gomq_py.storage.stores.stream_cursor cimport StreamCursor

cdef uint64_t OFFSET_MASK
cdef Py_ssize_t PASSED_OVER, PASSED_OVER_OCTETS

cdef class StreamReader:
    cdef readonly StreamCursor cursor
    cdef readonly uint64_t slot
    cdef readonly Py_ssize_t outstanding, passed
    cdef public bint attached, moved
    cdef readonly object tag
    cdef readonly StreamFlight flight
    cdef readonly StreamFilter wanted
    cpdef bint next(self, Message message) except -1
    cpdef pass_over(self)
    @cython.locals(offset=uint64_t)
    cpdef uint64_t take(self, Py_ssize_t body_length) except 0
    cpdef bint settle(self, uint64_t location, bint is_done) except -1
    @cython.locals(cost=Py_ssize_t)
    cpdef Py_ssize_t forget_passed(self) except -1
    cpdef bint is_behind(self)
    cpdef uint64_t position(self)
    cdef uint64_t octets_in_flight(self)
