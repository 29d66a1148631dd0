cimport cython
from libc.stdint cimport uint64_t

cdef class SliceClock:
    cdef double _seconds, _until
    cdef Py_ssize_t _every, _left
    cdef object _clock
    cpdef begin(self)
    cpdef bint is_over(self) except -1

cdef class Job:
    cdef public bint running
    cpdef bint step(self) except -1
    cpdef bint failed(self, error) except -1

cdef class TurnTaker:
    cdef public object name
    cdef public bint touched
    cdef public TurnTaker next
    cpdef write_out(self)
    cpdef Py_ssize_t turn(self) except -1

cdef class TakerList:
    cdef TurnTaker first, last
    cdef Py_ssize_t count
    cdef int append(self, TurnTaker taker) except -1
    @cython.locals(first=TurnTaker, last=TurnTaker, count=Py_ssize_t)
    cdef int extend(self, TakerList other) except -1
    cdef TurnTaker take_all(self)

cdef class Scheduler:
    cdef public uint64_t now_ms
    cdef public bint walking
    cdef readonly bint is_shut
    cdef TakerList touched, late
    cdef list resting
    cdef object jobs, budget, quiet, loop, clock, timer, turns_clock
    cdef readonly object failed_jobs
    cdef bint armed, closed
    cpdef touch(self, TurnTaker taker)
    cpdef later(self, TurnTaker taker)
    cpdef begin(self, uint64_t now_ms)
    cpdef finish(self)
    @cython.locals(budget=Py_ssize_t, taker=TurnTaker, following=TurnTaker, late=TakerList)
    cdef _finish(self)
    cdef _put_behind(self)
    cdef _arm(self)
    cdef _let_go(self)
    cpdef write_out(self)
    @cython.locals(taker=TurnTaker)
    cdef _write_out(self, TakerList takers)
