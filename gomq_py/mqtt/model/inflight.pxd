cimport cython
from libc.stdint cimport uint64_t
from gomq_py cimport octets
from gomq_py.hub cimport turn_taker
from gomq_py.hub.scheduler cimport Scheduler
from gomq_py.storage cimport locations
from gomq_py.storage.message cimport Message
from gomq_py.storage.message_store cimport MessageStore

cdef int KIND, SENT, RECEIVED, SURE, SEGMENTS
cdef Py_ssize_t RECORD_OCTETS

cdef class Inflight(turn_taker.TurnTaker):
    cdef readonly object vhost
    cdef Scheduler scheduler
    cdef readonly MessageStore store
    cdef readonly uint64_t boot, last_received, sure_mark
    cdef public uint64_t sure_at
    cdef readonly bint failed
    cdef Message message, shown
    cdef bytearray record
    cdef unsigned char* at
    cdef Py_ssize_t segment
    cdef public object moving
    cdef readonly dict stored, outdated
    cdef readonly tuple together
    cdef object __weakref__
    cpdef uint64_t sent(
        self, uint64_t key, unsigned int identifier, uint64_t location, uint64_t stored_ms) except? 0
    cpdef uint64_t stored_ms(self, uint64_t kept_at) except? 0
    @cython.locals(kept_at=uint64_t)
    cpdef uint64_t received(self, uint64_t key, unsigned int identifier, tuple queues) except? 0
    cpdef uint64_t mark(self) except? 0
    @cython.locals(before=uint64_t)
    cdef _delete_outdated(self, uint64_t kept_at)
    cdef bint _opened(self) except -1
    cpdef await_flush(self)
    @cython.locals(kept_at=uint64_t, before=uint64_t)
    cpdef sure(self, uint64_t mark)
    cpdef done(self, uint64_t kept_at)
    @cython.locals(shown=Message, place=Py_ssize_t, kind=int, sure=int, now=uint64_t)
    cpdef uint64_t again(self, uint64_t kept_at) except? 0
    cpdef flush(self)
    @cython.locals(at=cython.p_uchar, place=Py_ssize_t, message=Message, kept_at=uint64_t)
    cdef uint64_t _keep(
        self, int kind, int sure, unsigned int identifier, uint64_t key, uint64_t location,
        uint64_t number) except? 0
    cdef _delete(self, uint64_t kept_at)
    @cython.locals(shown=Message, place=Py_ssize_t, location=uint64_t, kind=int, key=uint64_t)
    cdef _recover(self, by_key)
