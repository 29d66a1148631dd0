cimport cython

@cython.final
cdef class UnsyncedQueues:
    cdef readonly tuple last
    cdef dict before
    cpdef add(self, tuple queues)
    @cython.locals(queues=tuple, before=dict)
    cpdef tuple take(self)

cdef class Answer:
    cdef tuple queues
    cdef object flush
    cdef bint is_safe
    cdef object error
    cpdef kept(self)
    cpdef lost(self)
    cpdef bint must_wait(self, error, callback) except -1
    @cython.locals(queues=tuple)
    cpdef bint is_lost(self) except -1

@cython.final
cdef class PendingConfirms:
    cdef object _write, _when_safe, _waiting
    cpdef bint is_waiting(self) except -1
    cpdef last(self)
    @cython.locals(last=Answer)
    cpdef Answer last_for(self, tuple unsynced)
    cpdef done(self, Answer answer, tuple unsynced)
    cpdef close(self)
    @cython.locals(first=Answer, octets=list)
    cpdef _synced(self, Answer answer, error)
