from libc.stdint cimport uint64_t
from gomq_py.storage.message cimport Message

cdef int REFUSED, ADMITTED, DUPLICATE, LOST, RETURNED, FAILED

cdef class QueueGuard:
    cpdef int admits(self, Message message) except -1
    cpdef appended(self)
    cpdef bint peek(self, Message message) except -1
    cpdef settle(self)
    cpdef bint returned(self, uint64_t location, int how) except -1
    cpdef came_back(self)
    cpdef rejected(self, uint64_t location)
    cpdef used(self)
    cpdef close(self)
