cimport cython
from libc.stdint cimport uint64_t
from gomq_py.hub.backpressure cimport TakeRate
from gomq_py.storage.message cimport Message

cdef Py_ssize_t UNLIMITED
cdef int REFUSED, ADMITTED, DUPLICATE

cdef class Consumer:
    cdef readonly object queue, tag, arguments
    cdef readonly int priority
    cdef readonly bint no_ack, exclusive
    cdef bint ringed
    cpdef Py_ssize_t capacity(self) except -1
    cpdef Py_ssize_t deliver(self, Py_ssize_t limit) except -1
    cpdef bint hand_over(self, Message message) except -1
    cpdef wait_for(self, Message message, uint64_t now_ms)
    cpdef bint is_behind(self) except -1
    cpdef cancel(self, reason)

cdef class ConsumerRing:
    cdef readonly list consumers
    cdef readonly bint single_active
    cdef readonly Consumer active
    cdef list levels, priorities
    cdef readonly Py_ssize_t ready
    cdef Consumer handed
    cdef TakeRate take_rate
    cdef TakeRate rate(self)
    cpdef add(self, Consumer consumer)
    @cython.locals(index=Py_ssize_t)
    cpdef bint remove(self, Consumer consumer) except -1
    cpdef offer(self, Consumer consumer)
    @cython.locals(consumer=Consumer)
    cpdef Consumer take_next(self)
    @cython.locals(consumer=Consumer)
    cpdef Consumer show_next(self)
    cpdef pass_on(self, Consumer consumer)
    cdef unring(self, Consumer consumer)
    cdef Py_ssize_t ready_at_top(self) except -1

cdef class QueueGuard:
    cpdef int admits(self, Message message) except -1
    cpdef appended(self)
    cpdef bint peek(self, Message message) except -1
    cpdef enforce(self)
    cpdef bint returned(self, uint64_t location, int how) except -1
    cpdef came_back(self)
    cpdef rejected(self, uint64_t location)
    cpdef used(self)
    cpdef close(self)
