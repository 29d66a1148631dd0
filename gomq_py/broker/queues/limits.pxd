cimport cython
from libc.stdint cimport int64_t, uint64_t
from gomq_py.broker.queues cimport consumers as guard
from gomq_py.broker.queues.queue cimport Queue
from gomq_py.storage.message cimport Message

cdef class QueueLimits(guard.QueueGuard):
    cdef readonly Queue queue
    cdef readonly object settings
    cdef object dead_letters, timers, on_idle, timer, idle_timer
    cdef int64_t ttl_ms, max_length, max_bytes, delivery_limit, timer_ms, used_ms
    cdef bint is_bounded, is_stuck, drops, has_exchange, slicing, counts_failures
    cdef Message message
    cdef readonly object seen, retries
    cdef int retried
    cdef int64_t _left_ms(self, Message message) except -1
    cdef object seen_id, seen_ttl_ms
    cdef bint _is_duplicate(self, Message message) except -1
    cpdef configure(self, settings)
    @cython.locals(queue=Queue)
    cpdef int admits(self, Message message) except -1
    cdef bint _lets_in(self, Message message) except -1
    @cython.locals(queue=Queue)
    cdef bint _overflows(self, Message message) except -1
    @cython.locals(queue=Queue, due_ms=int64_t, now_ms=int64_t, left=int, left_ms=int64_t, is_fresh=bint)
    cpdef bint peek(self, Message message) except -1
    @cython.locals(queue=Queue, due_ms=int64_t)
    cpdef enforce(self)
    @cython.locals(message=Message, failures=int64_t, is_failure=bint)
    cpdef bint returned(self, uint64_t location, int how) except -1
    @cython.locals(due_ms=int64_t, by_queue_ms=int64_t)
    cdef int64_t _due_ms(self, Message message) except -1
    cdef int64_t _failures(self, Message message) except -1
    @cython.locals(failures=int64_t)
    cdef _show_counts(self, Message message)
    @cython.locals(location=uint64_t)
    cdef _drop(self, Message message, str reason)
    cdef _let_go(self, uint64_t location, str reason)
    @cython.locals(queue=Queue, left=int)
    cdef _trim(self)
    cdef _go_on_later(self)
    cdef _wait_for(self, int64_t due_ms)
