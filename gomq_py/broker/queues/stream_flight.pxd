cimport cython
from libc.stdint cimport uint64_t

cdef uint64_t SETTLED, RETURNED

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
