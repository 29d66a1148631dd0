from libc.stdint cimport int64_t, uint32_t, uint64_t
from gomq_py cimport octets
from gomq_py.broker.queues.queue cimport Queue
cimport cython

cdef int ENTRY, ASIDE, FIRST_CAPACITY, KEPT_CAPACITY, LONG, ACK, LOST, REJECT, TAKE

cdef class Holder:
    cdef readonly Queue queue
    cdef readonly object consumer
    cdef readonly Py_ssize_t unacked_count
    cdef readonly uint32_t slot
    cdef readonly bint gone
    cdef public int64_t own_timeout_ms
    cpdef settle(self, uint64_t location, int how)
    cpdef uint64_t timeout_ms(self) except? 0

@cython.final
cdef class Unacked:
    cdef readonly uint64_t next_tag
    cdef readonly Py_ssize_t count, consumer_count
    cdef readonly uint64_t body_octets, acked_count, returned_count
    cdef public uint64_t redelivered_count
    cdef uint64_t first_tag
    cdef Py_ssize_t first, capacity, aside_first, aside_end, aside_count
    cdef bytearray ring, aside
    cdef unsigned char* at
    cdef list holders, free_slots
    cdef uint64_t found_ms
    cdef uint32_t found_slot
    cdef object taker
    @cython.locals(holder=Holder, slot=Py_ssize_t)
    cpdef Holder make_holder(self, Queue queue, consumer)
    cpdef let_go(self, Holder holder)
    @cython.locals(tag=uint64_t)
    cpdef uint64_t skip(self) except 0
    @cython.locals(tag=uint64_t, offset=Py_ssize_t)
    cpdef uint64_t add(self, Holder holder, uint64_t location, uint32_t size, uint32_t now_s) except 0
    cpdef bint is_outstanding(self, uint64_t tag) except -1
    @cython.locals(offset=Py_ssize_t, location=uint64_t)
    cpdef bint settle(self, uint64_t tag, bint multiple) except -1
    cpdef bint reject(self, uint64_t tag, bint multiple, int requeue) except -1
    cpdef bint take(self, uint64_t tag, taker) except -1
    cpdef bint take_some(self, uint64_t tag, taker, Py_ssize_t limit) except -1
    @cython.locals(row=Py_ssize_t)
    cpdef uint64_t next_outstanding(self, uint64_t tag) except? 0
    cpdef bint is_long(self, uint64_t tag) except -1
    cpdef bint settle_some(self, uint64_t tag, int how, Py_ssize_t limit) except -1
    @cython.locals(row=Py_ssize_t, tag=uint64_t)
    cpdef list entries(self, Py_ssize_t limit)
    @cython.locals(holder=Holder)
    cpdef list holding(self)
    cpdef queue_of(self, uint64_t tag)
    @cython.locals(holder=Holder)
    cpdef dict queues(self)
    cpdef uint64_t due_ms(self) except? 0
    cpdef Holder overdue(self, uint64_t now_ms)
    @cython.locals(holder=Holder, shortest_ms=uint64_t, timeout_ms=uint64_t, row=Py_ssize_t, tag=uint64_t,
        offset=Py_ssize_t)
    cdef _find_due(self)
    @cython.locals(holder=Holder, since_ms=uint64_t, timeout_ms=uint64_t, slot=uint32_t)
    cdef bint _note_due(self, unsigned char* at, Py_ssize_t offset, uint64_t shortest_ms) except -1
    cpdef Py_ssize_t memory_octets(self) except -1
    cdef tuple _describe(self, unsigned char* at, Py_ssize_t offset)
    @cython.locals(index=Py_ssize_t)
    cdef Py_ssize_t _offset(self, uint64_t tag) noexcept
    cdef _advance(self)
    @cython.locals(offset=Py_ssize_t, location=uint64_t)
    cdef _settle_ring(self, uint64_t tag, int how)
    @cython.locals(holder=Holder)
    cdef _release(self, unsigned char* at, Py_ssize_t offset, uint64_t location, int how)
    @cython.locals(capacity=Py_ssize_t, head=Py_ssize_t, ring=bytearray)
    cdef _make_room(self)
    cdef _move_aside(self, Py_ssize_t entries)
    @cython.locals(at=cython.p_uchar)
    cdef uint64_t _aside_tag(self, Py_ssize_t row) except? 0
    @cython.locals(row=Py_ssize_t)
    cdef Py_ssize_t _find_aside(self, uint64_t tag) except -2
    @cython.locals(low=Py_ssize_t, high=Py_ssize_t, middle=Py_ssize_t)
    cdef Py_ssize_t _aside_from(self, uint64_t tag) except -2
    @cython.locals(offset=Py_ssize_t, location=uint64_t)
    cdef _settle_aside(self, Py_ssize_t row, int how)
    @cython.locals(row=Py_ssize_t, kept=bytearray)
    cdef _tidy_aside(self)
    @cython.locals(row=Py_ssize_t)
    cdef bint _settle_slow(self, uint64_t tag, bint multiple, int how) except -1
    cdef _free(self, Holder holder)
