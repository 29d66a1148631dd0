cimport cython
from libc.stdint cimport uint64_t
from gomq_py.broker.queues cimport due_heap as _due_heap

cdef class DueTimer:
    cdef object _timers, _on_due, _timer
    cdef _due_heap.DueHeap _heap
    cdef long long _timer_ms, _now_ms
    cdef bint _stopped, _hastened
    cpdef first(self, Py_ssize_t count)
    cpdef push(self, uint64_t due_ms, uint64_t location)
    cpdef take(self)
    @cython.locals(due_ms="long long")
    cpdef bint has_due(self) except -1
    @cython.locals(due_ms="long long")
    cpdef arm(self)
