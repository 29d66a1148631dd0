from libc.stdint cimport uint64_t
from gomq_py.broker.queues cimport consumers as _consumers
from gomq_py.broker.queues.consumers cimport Consumer, ConsumerRing, QueueGuard
from gomq_py.broker.routing cimport route as routes
from gomq_py.hub.scheduler cimport Scheduler
from gomq_py.storage.message cimport Message
from gomq_py.storage.stores.message_store cimport MessageStore
from gomq_py.storage.stores.store cimport Store
cimport cython

cdef Py_ssize_t TURN_OCTETS, QUORUM_PRIORITY
cdef int LOST

cdef class Queue(routes.Destination):
    cdef readonly object vhost, arguments, type
    cdef readonly bint auto_delete, closed
    cdef public bint paused, is_state
    cdef public object exclusive_owner, on_unused, on_expiring, in_force, on_turn
    cdef public QueueGuard limits
    cdef readonly Store store
    cdef readonly Scheduler scheduler
    cdef readonly ConsumerRing ring
    cdef readonly uint64_t published, delivered, auto_delivered, acked, requeued, got, auto_got, got_none
    cdef readonly uint64_t complained_ms
    cdef readonly int holds
    cdef bint behind, turning
    cdef public uint64_t consumer_timeout_ms
    cdef public Py_ssize_t dead_letter_count
    cdef readonly object aside
    cdef readonly list _waiting_for_files
    cdef object __weakref__
    @cython.locals(consumer=Consumer)
    cdef int _hand_over(self, Message message) except -1
    @cython.locals(consumer=Consumer)
    cpdef next_store(self)
    cpdef bint outlives_kill(self) except -1
    cpdef bint peek(self, Message message) except -1
    cpdef turn_to(self, taker)
    cpdef bint head(self, Message message) except -1
    cpdef shift_head(self)
    cpdef bint may_go(self, Message message) except -1
    cpdef bint spare(self, Message message) except -1
    cpdef Py_ssize_t counted_bytes(self, Message message) except -1
    cpdef bint read(self, uint64_t location, Message message) except -1
    cpdef bint get(self, Message message, bint no_ack) except -1
    cdef bint _show_readable(self, Message message) except -1
    cpdef body_file(self, Message message)
    cpdef take(self, Message message, bint no_ack)
    cpdef bint is_opening(self) except -1
    cpdef ack(self, uint64_t location)
    cpdef requeue(self, uint64_t location)
    cpdef give_back(self, uint64_t location, int how)
    cpdef ready_again(self, uint64_t location)
    cdef bint _waits(self, uint64_t location, int how) except -1
    cpdef bint drop(self, uint64_t location) except -1
    cpdef reject(self, uint64_t location, bint requeue)
    cpdef serve(self)
    cpdef add_consumer(self, Consumer consumer)
    cpdef remove_consumer(self, Consumer consumer)
    cpdef check_exclusive(self, bint exclusive)
    cpdef offer(self, Consumer consumer)
    @cython.locals(ready=Py_ssize_t, quantum=Py_ssize_t, octets=Py_ssize_t, rivals=Py_ssize_t,
        before=Py_ssize_t, taken=Py_ssize_t, asked=Py_ssize_t, consumer=Consumer)
    cdef Py_ssize_t _deliver(self) except -1
    cdef Py_ssize_t _serve(self, Consumer consumer, Py_ssize_t quantum) except -1
    @cython.locals(ready=Py_ssize_t)
    cpdef bint is_outrun(self) except -1
    cdef Py_ssize_t waiting(self) except -1
    @cython.locals(consumer=Consumer, ring=ConsumerRing)
    cdef _let_go(self, reason)

cdef class QuorumQueue(Queue):
    cpdef int publish(self, Message message) except -1
