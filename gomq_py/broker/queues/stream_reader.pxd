cimport cython
from libc.stdint cimport uint64_t

from gomq_py cimport octets
from gomq_py.content cimport fields, properties
from gomq_py.storage.message cimport Message
from gomq_py.storage.stores.stream_cursor cimport StreamCursor

cdef uint64_t OFFSET_MASK
cdef Py_ssize_t PASSED_OVER, PASSED_OVER_OCTETS
cdef uint64_t SETTLED, RETURNED
cdef const unsigned char* VALUE_KEY
cdef Py_ssize_t VALUE_KEY_BYTES
cdef unsigned int HEADERS
cdef unsigned char BASIC

cdef class StreamFlight:
    cdef readonly uint64_t octets
    cdef uint64_t _done
    cdef readonly Py_ssize_t count
    cdef uint64_t[::1] _items
    cdef Py_ssize_t _room, _first
    @cython.locals(at=Py_ssize_t)
    cpdef int add(self, uint64_t offset, uint64_t size) except -1
    @cython.locals(at=Py_ssize_t, place=Py_ssize_t, size=uint64_t, before=Py_ssize_t)
    cpdef bint settle(self, uint64_t offset, bint is_done=*) except -1
    cpdef uint64_t oldest(self) except? 0
    cdef Py_ssize_t _place(self, Py_ssize_t index)
    @cython.locals(low=Py_ssize_t, high=Py_ssize_t, middle=Py_ssize_t)
    cdef Py_ssize_t _find(self, uint64_t offset) except -2
    @cython.locals(index=Py_ssize_t, at=Py_ssize_t)
    cdef int _grow(self) except -1

cdef class StreamFilter:
    cdef readonly frozenset values
    cdef readonly tuple conditions
    cdef readonly bint match_unfiltered, all_values, any_part
    @cython.locals(properties=bytes)
    cpdef bint matches(self, Message message) except -1
    cdef bint _matches(self, Message message, const unsigned char* p, Py_ssize_t at) except -1
    @cython.locals(found=Py_ssize_t, table=Py_ssize_t, value=bytes)
    cdef bint _matches_value(self, const unsigned char* p, Py_ssize_t at) except -1
    cdef bint _matches_conditions(self, Message message) except -1

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
