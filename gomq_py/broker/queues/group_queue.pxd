cimport cython
from gomq_py.broker.queues cimport queue as _queue
from gomq_py.storage.message cimport Message
from gomq_py.storage.stores.group_store cimport GroupStore

cdef class GroupQueue(_queue.Queue):
    cdef readonly GroupStore groups
    cdef bint _is_peeking
    cpdef bint peek(self, Message message) except -1
    cpdef bint head(self, Message message) except -1
    cpdef shift_head(self)
    cdef Py_ssize_t waiting(self) except -1
    @cython.locals(octets=Py_ssize_t)
    cpdef Py_ssize_t turn(self) except -1
    cdef int _hand_over(self, Message message) except -1
