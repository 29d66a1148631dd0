cimport cython
from libc.stdint cimport uint32_t, uint64_t

from gomq_py cimport octets
from gomq_py.storage.format cimport record
from gomq_py.storage.message cimport Message

ctypedef unsigned char* octets_pointer

cdef Py_ssize_t LOOK_BYTES, FETCHED_BYTES

@cython.final
cdef class Segment:
    cdef readonly Py_ssize_t number, capacity, end, cached, last_at, entries, entry_capacity
    cdef public Segment next
    cdef readonly object msgs, acks
    cdef unsigned char* p
    cdef unsigned char* ack_p
    cdef readonly uint32_t seed, ack_seed, ordinal, next_ordinal
    cdef readonly uint64_t generation, body_bytes, taken_bytes, acked_bytes
    cdef readonly Py_ssize_t count, taken, acked, delivered, announced, announced_entries, syncing, flushed
    cdef public unsigned int unsynced
    cdef readonly unsigned long long named_in
    cdef readonly bint is_open, is_direct, patchy, synced_once, written_here, sealed
    cdef uint64_t[::1] runs
    cdef Py_ssize_t run_at, checked_at
    cdef readonly Py_ssize_t delivered_before
    cdef readonly Py_ssize_t run_count
    cdef readonly Py_ssize_t damaged_at, damaged_end
    cdef readonly dict counts, dues
    cdef Py_ssize_t sealed_entries
    cdef readonly Py_ssize_t proven, looked_at, wanted_at, wanted_end
    cdef readonly Py_ssize_t synced
    cdef readonly tuple timestamps
    cdef readonly uint64_t first_offset
    cdef public Py_ssize_t readers
    cdef readonly bytearray picked
    cdef readonly Py_ssize_t picked_count

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
    @cython.locals(p=octets_pointer, routing_length=Py_ssize_t, properties_length=Py_ssize_t,
        body_length=Py_ssize_t)
    cdef Py_ssize_t fill(self, Py_ssize_t at, Message message) except -1
    @cython.locals(size=Py_ssize_t)
    cdef Py_ssize_t size_at(self, Py_ssize_t at) except -1
    cdef Py_ssize_t head_end(self, Py_ssize_t at) except -1
    cdef Py_ssize_t size_of(self, Py_ssize_t at) except -1
    cdef bint is_whole(self, Py_ssize_t at, uint64_t came_ms) except -1
    cdef Py_ssize_t body_length_at(self, Py_ssize_t at) except -1
    cpdef uint64_t timestamp_at(self, Py_ssize_t at) except? 0
    @cython.locals(slot=Py_ssize_t)
    cpdef bint is_picked(self, Py_ssize_t at) except -1
    cdef int pick(self, Py_ssize_t at) except -1
    cdef int unpick(self, Py_ssize_t at) except -1
    @cython.locals(size=Py_ssize_t)
    cdef Py_ssize_t skip_picked(self, Py_ssize_t at) except -1
    cdef int take_waiting(self, Py_ssize_t at) except -1
    cdef int forget_picked(self) except -1
    @cython.locals(slot=Py_ssize_t, body_length=Py_ssize_t)
    cdef int _turn_pick(self, Py_ssize_t at, int count) except -1
    @cython.locals(slot=Py_ssize_t)
    cdef int _clear_pick(self, Py_ssize_t at) except -1
    cdef int put_ack(self, Py_ssize_t position) except -1
    cpdef int put_run(self, Py_ssize_t start, Py_ssize_t end) except -1
    cdef int put_delivered(self, Py_ssize_t position) except -1
    cdef Py_ssize_t put_count(self, Py_ssize_t position, Py_ssize_t count, Py_ssize_t entry) except -1
    cdef Py_ssize_t put_due(self, Py_ssize_t position, Py_ssize_t count, Py_ssize_t entry,
            Py_ssize_t due) except -1
    @cython.locals(to_come=Py_ssize_t)
    cpdef Py_ssize_t spare_entries(self) except? -1
    @cython.locals(free=Py_ssize_t)
    cdef int _find_room(self, Py_ssize_t count) except -1
    cdef int _put(self, uint32_t word) except -1
    @cython.locals(size=Py_ssize_t, gone=Py_ssize_t, sound=bint)
    cdef Py_ssize_t find_ready(self, Py_ssize_t at) except -2
    cdef Py_ssize_t _want(self, Py_ssize_t start, Py_ssize_t end) except -2
    cpdef int prove(self, Py_ssize_t end) except -1
    cdef int write_off(self, Py_ssize_t lost_count, uint64_t lost_bytes) except -1
    cdef Py_ssize_t _gone_until(self, Py_ssize_t at)
    @cython.locals(found=Py_ssize_t)
    cdef int _find_damage_end(self, Py_ssize_t at) except -1
    cpdef int put_synced(self, Py_ssize_t position) except -1
