cimport cython
from libc.stdint cimport uint32_t, uint64_t

from gomq_py cimport octets
from gomq_py.storage.format cimport acks as acks_format
from gomq_py.storage.format cimport record
from gomq_py.storage.message cimport Message

ctypedef unsigned char* octets_pointer

cdef class Segment:
    cdef readonly Py_ssize_t number, capacity, end, entries, entry_capacity
    cdef readonly object msgs, acks, loaded
    cdef readonly Segment next
    cdef unsigned char* p
    cdef unsigned char* ack_p
    cdef readonly Py_ssize_t count, taken, acked, delivered, announced, announced_entries, syncing
    cdef readonly uint64_t body_bytes, taken_bytes, first_timestamp_ms, last_timestamp_ms, generation
    cdef readonly uint32_t ordinal, seed, ack_seed
    cdef readonly unsigned int unsynced
    cdef readonly bint written_here, persistent, sealed, patchy, synced_once
    cpdef int attach(self, msgs, acks) except -1
    cpdef detach(self)
    cpdef bint is_open(self)
    @cython.locals(at=Py_ssize_t)
    cdef Py_ssize_t append(self, Message message) except -1
    @cython.locals(p=octets_pointer, routing_length=Py_ssize_t, properties_length=Py_ssize_t, body_length=Py_ssize_t)
    cdef Py_ssize_t fill(self, Py_ssize_t at, Message message) except -1
    @cython.locals(size=Py_ssize_t)
    cdef Py_ssize_t size_at(self, Py_ssize_t at) except -1
    cdef Py_ssize_t body_length_at(self, Py_ssize_t at) except -1
    cdef int put_ack(self, Py_ssize_t position) except -1
    cdef int put_run(self, Py_ssize_t start, Py_ssize_t end) except -1
    cdef int put_gone(self, Py_ssize_t start, Py_ssize_t end, Py_ssize_t count) except -1
    cdef int put_delivered(self, Py_ssize_t position) except -1
    cdef Py_ssize_t put_count(self, Py_ssize_t position, Py_ssize_t count, Py_ssize_t entry) except -1
    @cython.locals(to_come=Py_ssize_t)
    cdef Py_ssize_t spare_entries(self) except? -1
    @cython.locals(free=Py_ssize_t)
    cdef int _find_room(self, Py_ssize_t count) except -1
    cdef int _put(self, uint32_t word) except -1
