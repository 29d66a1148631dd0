from libc.stdint cimport uint64_t
from gomq_py.amqp.server.unacked cimport Unacked
from gomq_py.broker.queues.consumers cimport Consumer
from gomq_py.broker.verbs.pending_confirms cimport UnsyncedQueues
from gomq_py.storage.message cimport Message
cimport cython

cdef class HotChannel:
    cdef readonly unsigned int id
    cdef public bint slow, confirming, watched, tracing
    cdef public uint64_t published, publishes
    cdef public list refused
    cdef readonly UnsyncedQueues unsynced
    cdef readonly Unacked unacked
    cdef public Py_ssize_t prefetch_count, global_prefetch, max_unacked
    cdef public dict consumers
    cdef public object confirms
    cdef bint in_confirming, in_settled
    cdef Py_ssize_t resume_at
    cdef object settling
    @cython.locals(consumer=Consumer)
    cpdef resume_consumers(self)
    @cython.locals(consumer=Consumer, consumers=list, first=Py_ssize_t, at=Py_ssize_t)
    cdef _resume_in_turns(self)
    @cython.locals(refused=list)
    cpdef send_confirms(self)
    cpdef watch_unacked(self)
    cpdef trace_delivery(self, Message message, queue_name, dict added)
    cpdef bint ack(self, uint64_t tag, bint multiple) except -1
    cpdef bint reject(self, uint64_t tag, bint multiple, int requeue) except -1
