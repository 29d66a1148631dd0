cimport cython
from libc.stdint cimport uint32_t, uint64_t

from gomq_py cimport octets
from gomq_py.storage.format cimport record
from gomq_py.storage.message cimport Message

cdef Py_ssize_t LOOK_BYTES, SMALLEST_RUN, FETCHED_BYTES, STAGE_OCTETS

@cython.final
cdef class Picked:
    cdef readonly Py_ssize_t count
    cdef bytearray _bits

    @cython.locals(slot=Py_ssize_t)
    cdef bint has(self, Py_ssize_t at) except -1
    @cython.locals(slot=Py_ssize_t)
    cdef int put(self, Py_ssize_t at) except -1
    @cython.locals(slot=Py_ssize_t)
    cdef int remove(self, Py_ssize_t at) except -1

@cython.final
cdef class Segment:
    cdef readonly Py_ssize_t number, capacity, end, cached, last_at, entries, entry_capacity
    cdef public Segment next
    cdef readonly object msgs, acks
    cdef unsigned char* p
    cdef unsigned char* ack_p
    cdef readonly uint32_t seed, ack_seed, ordinal
    cdef readonly uint64_t body_bytes, taken_bytes, acked_bytes
    cdef readonly Py_ssize_t count, taken, acked, delivered, announced, announced_entries, syncing, flushed
    cdef public unsigned int unsynced
    cdef readonly unsigned long long named_in
    cdef readonly bint is_open, is_direct, synced_once, sealed
    cdef readonly Py_ssize_t synced
    cdef readonly tuple timestamps
    cdef readonly uint64_t first_offset, begun_ms
    cdef public Py_ssize_t readers
    cdef readonly Picked picked
    cdef readonly object recovered

    cpdef int attach(self, msgs, acks) except -1
    cpdef int detach(self) except -1
    cpdef int unpoint(self) except -1
    @cython.locals(at=Py_ssize_t)
    cdef Py_ssize_t append(self, Message message) except -1
    @cython.locals(size=Py_ssize_t)
    cdef Py_ssize_t encode(
        self, unsigned char* p, Py_ssize_t at, Message message, bint body_is_there) except -1
    @cython.locals(at=Py_ssize_t)
    cdef Py_ssize_t append_around(self, Message message) except -1
    cdef Py_ssize_t body_place(self, Message message) except -1
    cdef int wrote(self, Py_ssize_t size, Py_ssize_t last) except -1
    cdef int _has_pages(self) except -1
    cdef int fetch_pages(self, Py_ssize_t end) except -1
    cdef Py_ssize_t fill(self, Py_ssize_t at, Message message) except -1
    @cython.locals(size=Py_ssize_t)
    cdef Py_ssize_t size_at(self, Py_ssize_t at) except -1
    cdef Py_ssize_t head_end(self, Py_ssize_t at) except -1
    cdef Py_ssize_t size_of(self, Py_ssize_t at) except -1
    cdef bint is_whole(self, Py_ssize_t at, uint64_t came_ms) except -1
    cdef Py_ssize_t body_length_at(self, Py_ssize_t at) except -1
    cpdef uint64_t timestamp_at(self, Py_ssize_t at) except? 0
    cpdef bint is_picked(self, Py_ssize_t at) except -1
    cdef int pick(self, Py_ssize_t at) except -1
    cdef int unpick(self, Py_ssize_t at) except -1
    cdef Py_ssize_t skip_picked(self, Py_ssize_t at) except -1
    cdef int take(self, Py_ssize_t at) except -1
    cdef int _remove_pick(self, Py_ssize_t at) except -1
    cdef int put_ack(self, Py_ssize_t position) except -1
    cpdef int put_run(self, Py_ssize_t start, Py_ssize_t end) except -1
    cdef int put_delivered(self, Py_ssize_t position) except -1
    cdef Py_ssize_t put_count(
        self, Py_ssize_t position, Py_ssize_t count, Py_ssize_t entry, Py_ssize_t due,
        unsigned int kind) except -1
    cdef bint _has_due(self, Py_ssize_t entry) except -1
    @cython.locals(to_come=Py_ssize_t)
    cpdef Py_ssize_t spare_entries(self) except? -1
    @cython.locals(free=Py_ssize_t)
    cdef int _find_room(self, Py_ssize_t count) except -1
    cdef int _put(self, uint32_t word) except -1
    cdef int ack_taken(self) except -1
    cdef int write_off(self, Py_ssize_t lost_count, uint64_t lost_bytes) except -1
    cpdef int put_synced(self, Py_ssize_t position) except -1

@cython.locals(routing_length=Py_ssize_t, properties_length=Py_ssize_t, body_length=Py_ssize_t)
cdef Py_ssize_t fill(unsigned char* p, Py_ssize_t at, uint64_t begun_ms, Message message) except -1

@cython.locals(start=Py_ssize_t, fields=uint64_t)
cdef Py_ssize_t _fill_small(unsigned char* p, Py_ssize_t at, uint64_t begun_ms, Message message) except -1

@cython.final
cdef class AckRun:
    cdef readonly Segment segment
    cdef readonly Py_ssize_t start, last, end, count

    cdef int begin(self, Py_ssize_t at, Py_ssize_t size) except -1
    cdef int write(self) except -1
    cdef int turn_to(self, Segment segment) except -1

cdef class Stage:
    cdef readonly object user
    cdef readonly Py_ssize_t capacity
    cdef unsigned char* p
    cdef bytearray _octets

    cpdef bint take(self, user) except -1
    cpdef content(self, Py_ssize_t count)
    cpdef int release(self) except -1
