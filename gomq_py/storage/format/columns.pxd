cimport cython
from libc.stdint cimport int64_t, uint32_t, uint64_t

from gomq_py cimport octets
from gomq_py.storage.format cimport record

ctypedef const unsigned char* const_octets

cdef unsigned char AMQP
cdef Py_ssize_t LARGEST_SMALL

cdef class Block:
    cdef public Py_ssize_t at
    cdef readonly Py_ssize_t capacity, limit_bytes, count, body_bytes, skipped, others
    cdef public uint64_t next_ordinal
    cdef readonly bytearray offsets, timestamps, starts, lengths, property_starts, property_lengths, kinds
    cdef readonly unsigned int property_flags
    cpdef int walk(
        self, object buffer, Py_ssize_t at, Py_ssize_t end, object head, uint64_t first,
        uint64_t until) except -1
    @cython.locals(routing_length=Py_ssize_t, properties_length=Py_ssize_t, body_length=Py_ssize_t,
        size=Py_ssize_t, content=Py_ssize_t, ordinal=uint64_t)
    cdef int _walk(
        self, const unsigned char* p, Py_ssize_t at, Py_ssize_t end, uint32_t seed, uint64_t begun_ms,
        uint64_t first_offset, uint64_t first, uint64_t until,
        unsigned char* offsets, unsigned char* timestamps, unsigned char* starts,
        unsigned char* lengths, unsigned char* kinds) except -1
    @cython.locals(exchange_length=Py_ssize_t, place=Py_ssize_t)
    cdef inline int _place(
        self, const unsigned char* p, Py_ssize_t routing, Py_ssize_t content, Py_ssize_t properties_length,
        Py_ssize_t body_length, unsigned char* starts, unsigned char* lengths) noexcept
    @cython.locals(exchange_at=Py_ssize_t, place=Py_ssize_t, at=Py_ssize_t, end=Py_ssize_t)
    cpdef tuple other_kind(self, Py_ssize_t row, object buffer)
    @cython.locals(place=Py_ssize_t)
    cpdef set_properties(self, Py_ssize_t row, Py_ssize_t at, Py_ssize_t length)
    cdef Py_ssize_t _seek(self, const unsigned char* p, Py_ssize_t at, Py_ssize_t end,
            uint32_t seed) except -2
    @cython.locals(row=Py_ssize_t, at=Py_ssize_t, end=Py_ssize_t, flags=uint32_t, found=uint32_t,
        place=Py_ssize_t, at_place=Py_ssize_t, length=Py_ssize_t)
    cdef unsigned int _scan_properties(
        self, const unsigned char* p, const unsigned char* starts, const unsigned char* lengths,
        unsigned char* property_starts,
        unsigned char* property_lengths) noexcept
    @cython.locals(row=Py_ssize_t, size=int64_t)
    cdef int64_t _measure(self, Py_ssize_t field, const unsigned char* lengths, unsigned char* ends) noexcept
    @cython.locals(row=Py_ssize_t, begin=Py_ssize_t, end=Py_ssize_t)
    cdef int _gather(
        self, Py_ssize_t field, const unsigned char* p, const unsigned char* starts,
        const unsigned char* ends, unsigned char* content) noexcept
    @cython.locals(row=Py_ssize_t)
    cdef int _mark(self, Py_ssize_t place, const unsigned char* starts, unsigned char* present) noexcept
