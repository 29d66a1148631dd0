cimport cython
from libc.stdint cimport uint32_t, uint64_t

cdef Py_ssize_t FIRST_SLOTS, LARGE_SLOTS

@cython.final
cdef class Group:
    cdef readonly bytes key
    cdef uint32_t head, tail
    cdef readonly Py_ssize_t count
    cdef public uint64_t since, number
    cdef public bint is_out, is_ready

@cython.final
cdef class WaitingLists:
    cdef readonly Py_ssize_t count
    cdef uint64_t[::1] _locations
    cdef uint32_t[::1] _next
    cdef Py_ssize_t _room, _used
    cdef uint32_t _free
    cpdef uint64_t first(self, Group group) except? 0
    @cython.locals(slot=uint32_t)
    cpdef int push(self, Group group, uint64_t location) except -1
    @cython.locals(slot=uint32_t, location=uint64_t)
    cpdef uint64_t pop(self, Group group) except? 0
    @cython.locals(slot=uint32_t, before=uint32_t)
    cpdef int insert(self, Group group, uint64_t location) except -1
    @cython.locals(slot=uint32_t, before=uint32_t)
    cpdef bint remove(self, Group group, uint64_t location) except -1
    @cython.locals(slot=uint32_t)
    cpdef all(self, Group group)
    @cython.locals(slot=uint32_t, before=uint32_t)
    cdef uint32_t _before(self, Group group, uint64_t location)
    @cython.locals(slot=uint32_t)
    cdef uint32_t _slot(self, uint64_t location) except? 0
    cdef int _give_back(self, uint32_t slot) except -1
    cdef int _begin(self) except -1
    @cython.locals(room=Py_ssize_t)
    cdef int _grow(self) except -1
