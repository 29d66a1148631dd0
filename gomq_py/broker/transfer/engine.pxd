cimport cython
from gomq_py cimport octets
from gomq_py.hub.scheduler cimport Job, SliceClock
from gomq_py.storage.message cimport Message

cdef class Source:
    cpdef take(self, Message message)
    cpdef bint show(self, item, Message message) except -1
    cpdef drop(self, item)
    cpdef keep(self, list items, error)
    cpdef int no_room(self, item, pending) except -1
    cpdef set_aside(self, item, error, bint was_sent)
    cpdef fail(self, item, error)
    cpdef bint broken(self, error) except -1
    cpdef try_again(self)
    cpdef paused(self, Py_ssize_t unsafe)

cdef class Target:
    cpdef send(self, item, Message message)
    cpdef slice_over(self)

cdef Py_ssize_t FIRST_OCTETS, MOST_OCTETS
cdef object NOTHING

cdef class CopyRoom:
    cdef unsigned char* p
    cdef object owner
    cdef Py_ssize_t _count
    cdef bint has(self, Py_ssize_t count) except -1
    cdef complete(self, Message copy, Message message, Py_ssize_t routing_length, Py_ssize_t length)
    cdef let_go(self)
    cdef bint _grow(self, Py_ssize_t count) except -1

cdef class Transfer(Job):
    cdef readonly str name
    cdef Source _source
    cdef Target _target
    cdef object _scheduler, _timers, _when_safe, _timer
    cdef Py_ssize_t _most, _most_octets, _sent_octets, _unsafe, _unsafe_octets
    cdef list _sent
    cdef bint _is_resting, _is_unsafe, _is_full, _closed
    cpdef start(self)
    cpdef try_again_later(self)
    @cython.locals(message=Message, clock=SliceClock, more=bint, left=int)
    cpdef bint step(self) except -1
    @cython.locals(octets=Py_ssize_t)
    cdef bint _next(self, Message message) except -1
    cdef bint _wait(self, int how) except -1
    cdef bint _has_too_much(self) noexcept
    cdef _make_safe(self)
    cdef _rest_until_safe(self)
    cdef _drop(self, list sent)
