cimport cython
from libc.stdint cimport uint64_t

from gomq_py.storage.message cimport Message
from gomq_py.storage.stores.message_store cimport MessageStore

cdef class Shelf:
    cdef readonly MessageStore store
    cdef Message shown
    cdef readonly uint64_t expires_at_ms
    cdef readonly Py_ssize_t octets

    cpdef uint64_t add(self, Message message) except? 0
    cpdef bint look(self, uint64_t location) except -1
    cpdef bint take_next(self, Message message) except -1
    cpdef bint is_tombstone(self, Message message)
    @cython.locals(message=Message)
    cpdef uint64_t again(self, uint64_t location) except? 0
