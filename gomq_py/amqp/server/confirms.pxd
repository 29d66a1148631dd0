cimport cython
from libc.stdint cimport uint64_t

from gomq_py.broker.verbs.pending_confirms cimport Answer, PendingConfirms

cdef class Confirms:
    cdef object _channel_id, _write
    cdef PendingConfirms _pending
    cdef readonly uint64_t confirmed
    cdef uint64_t _seen
    @cython.locals(tail=_Batch)
    cpdef published(self, uint64_t last, list refused, tuple unsynced)
    cpdef close(self)
    @cython.locals(frame=bytes, frames=list, number=uint64_t)
    cdef bytes _answers(self, uint64_t last, list refused)
    cdef bytes _ack(self, uint64_t number)
    @cython.locals(multiple=bint)
    cdef bytes _nack_all(self, uint64_t last)
    cdef bytes _frame(self, method_id, uint64_t number, bint multiple)


cdef class _Batch(Answer):
    cdef Confirms confirms
    cdef uint64_t last
    cdef list refused
    cpdef kept(self)
    cpdef lost(self)
