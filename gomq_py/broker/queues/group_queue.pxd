cimport cython
from gomq_py.broker.queues cimport queue as _queue
from gomq_py.broker.queues.consumers cimport Consumer
from gomq_py.storage.message cimport Message
from gomq_py.storage.stores.group_store cimport GroupStore
from gomq_py.storage.stores.groups cimport Line, Lines

cdef class GroupQueue(_queue.Queue):
    cdef readonly GroupStore groups
    cdef bint _is_peeking
    cpdef bint peek(self, Message message) except -1
    cpdef bint head(self, Message message) except -1
    cpdef shift_head(self)
    cpdef turn_to(self, taker)
    cpdef offer(self, Consumer consumer)
    cdef Py_ssize_t waiting(self) except -1
    @cython.locals(octets=Py_ssize_t)
    cpdef Py_ssize_t turn(self) except -1
    cdef int _hand_over(self, Message message) except -1
    @cython.locals(octets=Py_ssize_t)
    cdef Py_ssize_t _deliver(self) except -1
    @cython.locals(lines=Lines, line=Line, consumer=Consumer, written=Py_ssize_t)
    cdef Py_ssize_t _deliver_bound(self, Py_ssize_t octets) except -1
    @cython.locals(lines=Lines, octets=Py_ssize_t)
    cdef Py_ssize_t _serve(self, Consumer consumer, Py_ssize_t quantum) except -1
