cimport cython
from libc.stdint cimport uint64_t
from gomq_py cimport octets
from gomq_py.mqtt.model.qos2_records cimport QoS2Records
from gomq_py.storage cimport locations
from gomq_py.storage.message cimport Message

cdef Py_ssize_t COUNT_AT, PAGE_OCTETS
cdef unsigned int PAGE_BITS, PAGE_MASK
cdef uint64_t NOT_KEPT
cdef bytearray NO_PAGE

@cython.final
cdef class Received:
    cdef readonly QoS2Records records
    cdef readonly uint64_t key
    cdef readonly Py_ssize_t count
    cdef dict pages, storing, partly
    cdef set earlier
    cdef bytearray page
    cdef unsigned char* at
    cdef Py_ssize_t number
    cdef uint64_t begun_at
    cdef readonly uint64_t added, kept_since
    cdef list unsafe
    cdef tuple latest
    cdef bint closed
    cpdef bint has(self, unsigned int identifier) except -1
    cpdef begin(self, unsigned int identifier, tuple destinations, Message message)
    cpdef postpone(
        self, unsigned int identifier, Message message, tuple destinations, tuple left, bint taken)
    @cython.locals(kept_at=uint64_t)
    cdef _wait(self, unsigned int identifier, tuple destinations, tuple left, bint taken)
    @cython.locals(kept_at=uint64_t)
    cdef _release(self, unsigned int identifier)
    cpdef bint is_partly(self, unsigned int identifier) except -1
    cpdef lacking(self, unsigned int identifier, destinations)
    cpdef give_up_partly(self, unsigned int identifier)
    @cython.locals(begun_at=uint64_t)
    cdef _dismiss(self)
    cpdef bint is_storing(self, unsigned int identifier) except -1
    cpdef not_stored(self, unsigned int identifier)
    cpdef refused_by_some(self, unsigned int identifier, tuple destinations)
    cdef bytes _had(self, unsigned int identifier)
    cdef bytes _held_by(self, unsigned int identifier, tuple destinations)
    @cython.locals(kept_at=uint64_t)
    cpdef lost_by_some(self, unsigned int identifier, list destinations)
    @cython.locals(kept_at=uint64_t)
    cdef _keep_partly(self, unsigned int identifier, bytes places)
    @cython.locals(kept_at=uint64_t)
    cpdef add(self, unsigned int identifier, tuple queues=*)
    @cython.locals(kept_at=uint64_t)
    cpdef bint discard(self, unsigned int identifier) except -1
    @cython.locals(kept_at=uint64_t)
    cpdef list awaited(self, unsigned int identifier)
    @cython.locals(unsafe=list)
    cpdef sure(self, uint64_t added, uint64_t mark)
    cpdef restore(self, unsigned int identifier, uint64_t kept_at)
    cpdef restore_partly(self, unsigned int identifier, uint64_t kept_at, bytes places)
    @cython.locals(identifier=cython.uint, kept_at=uint64_t)
    cpdef move(self, Py_ssize_t oldest)
    @cython.locals(identifier=cython.uint, kept_at=uint64_t, now=uint64_t, is_sure=bint, waits=bint,
                   outlives=bint, places=bytes)
    cpdef keep_in(self, QoS2Records records)
    @cython.locals(identifier=cython.uint, kept_at=uint64_t)
    cpdef close(self)
    @cython.locals(number=Py_ssize_t, identifier=Py_ssize_t)
    cdef list _identifiers(self)
    @cython.locals(page=bytearray)
    cdef uint64_t _value(self, unsigned int identifier) except? 0
    @cython.locals(number=Py_ssize_t, page=bytearray)
    cdef _put(self, unsigned int identifier, uint64_t kept_at)
    cdef _take_out(self, unsigned int identifier)
    cdef _look_at(self, Py_ssize_t number, bytearray page)
