cimport cython
from libc.stdint cimport uint64_t

cdef class DueHeap:
    cdef readonly Py_ssize_t count
    cdef Py_ssize_t _room
    cdef uint64_t[::1] _due, _locations
    cpdef uint64_t first_due_ms(self) except? 0
    @cython.locals(at=Py_ssize_t, child=Py_ssize_t)
    cpdef list first(self, Py_ssize_t count)
    @cython.locals(at=Py_ssize_t, parent=Py_ssize_t)
    cpdef push(self, uint64_t due_ms, uint64_t location)
    @cython.locals(first=uint64_t)
    cpdef uint64_t pop(self) except? 0
    @cython.locals(at=Py_ssize_t, child=Py_ssize_t)
    cdef int _sift_down(self, uint64_t due_ms, uint64_t location) except -1
    cdef bint _before(self, Py_ssize_t one, Py_ssize_t other) noexcept
    cdef int _resize(self, Py_ssize_t room) except -1

cdef class DueTimer:
    cdef object _timers, _on_due, _timer
    cdef DueHeap _heap
    cdef long long _timer_ms, _now_ms
    cdef bint _stopped, _hastened
    cpdef first(self, Py_ssize_t count)
    cpdef push(self, uint64_t due_ms, uint64_t location)
    cpdef take(self)
    @cython.locals(due_ms="long long")
    cpdef bint has_due(self) except -1
    @cython.locals(due_ms="long long")
    cpdef arm(self)
