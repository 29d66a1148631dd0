cimport cython
from libc.stdint cimport int64_t, uint32_t, uint64_t

from gomq_py cimport octets

ctypedef const unsigned char* const_octets

cdef unsigned int MAGIC
cdef Py_ssize_t SMALLEST_RECORD_BYTES, LARGEST_ROUTING_BYTES
cdef unsigned char PERSISTENT, SMALL, EXPIRES, SMALL_KIND, SMALL_PRIORITY
cdef Py_ssize_t SMALL_LENGTH, SMALL_PARTS_BYTES
cdef uint32_t SMALL_ORDINAL, SMALL_SALT
cdef uint64_t SMALL_AGE_MS, SMALL_EXPIRY_MS

cpdef Py_ssize_t size_of(
    Py_ssize_t routing_length, Py_ssize_t properties_length, Py_ssize_t body_length) noexcept
cdef Py_ssize_t small_size(Py_ssize_t content) noexcept
cpdef uint64_t level_bits(uint64_t level) noexcept
cpdef uint64_t location_of(uint64_t bits, uint64_t number, uint64_t position) noexcept
cpdef Py_ssize_t level_of(uint64_t location) noexcept
cpdef Py_ssize_t number_of(uint64_t location) noexcept
cpdef Py_ssize_t position_of(uint64_t location) noexcept

@cython.locals(routing=Py_ssize_t, properties=Py_ssize_t, body=Py_ssize_t, trailer=Py_ssize_t,
    size=Py_ssize_t, checksum=uint32_t, padding=Py_ssize_t)
cdef Py_ssize_t encode(
    unsigned char* p, Py_ssize_t at, uint32_t seed, uint64_t begun_ms, uint64_t ordinal, unsigned char kind,
    unsigned char flags, unsigned char priority,
    uint64_t timestamp_ms, uint64_t expires_at_ms, const unsigned char* source, Py_ssize_t routing_at,
    Py_ssize_t routing_length,
    Py_ssize_t properties_at, Py_ssize_t properties_length, Py_ssize_t body_at,
    Py_ssize_t body_length, bint is_there) noexcept

@cython.locals(trailer=Py_ssize_t, size=Py_ssize_t, padding=Py_ssize_t)
cdef Py_ssize_t _encode_small(
    unsigned char* p, Py_ssize_t at, uint32_t seed, uint64_t age_ms, uint64_t ordinal, unsigned char kind,
    unsigned char flags, unsigned char priority, uint64_t expiry_ms, bint expires,
    const unsigned char* source, Py_ssize_t routing_at, Py_ssize_t routing_length,
    Py_ssize_t properties_at, Py_ssize_t properties_length, Py_ssize_t body_at,
    Py_ssize_t body_length) noexcept

@cython.locals(size=Py_ssize_t)
cdef Py_ssize_t measure(const unsigned char* p, Py_ssize_t at, Py_ssize_t end) noexcept

@cython.locals(routing=Py_ssize_t, key_at=Py_ssize_t, content=Py_ssize_t)
cdef Py_ssize_t content_end(const unsigned char* p, Py_ssize_t at, Py_ssize_t end) noexcept
cdef Py_ssize_t small_head(const unsigned char* p, Py_ssize_t at) noexcept

@cython.locals(routing=Py_ssize_t, length=Py_ssize_t, routing_length=Py_ssize_t, exchange_length=Py_ssize_t)
cdef bint header_is_sound(const unsigned char* p, Py_ssize_t at, uint32_t seed) noexcept

@cython.locals(start=Py_ssize_t, length=Py_ssize_t)
cdef bint content_is_sound(const unsigned char* p, Py_ssize_t at, uint32_t seed) noexcept

cdef unsigned char kind_at(const unsigned char* p, Py_ssize_t at) noexcept
cdef unsigned char flags_at(const unsigned char* p, Py_ssize_t at) noexcept
cdef unsigned char priority_at(const unsigned char* p, Py_ssize_t at) noexcept
cdef uint32_t ordinal_at(const unsigned char* p, Py_ssize_t at) noexcept
cdef uint64_t timestamp_at(const unsigned char* p, Py_ssize_t at, uint64_t begun_ms) noexcept
cdef uint64_t expiry_at(const unsigned char* p, Py_ssize_t at, uint64_t begun_ms) noexcept
cdef Py_ssize_t routing_at(const unsigned char* p, Py_ssize_t at) noexcept
cdef Py_ssize_t routing_length_at(const unsigned char* p, Py_ssize_t at) noexcept
cdef Py_ssize_t properties_length_at(const unsigned char* p, Py_ssize_t at) noexcept
cdef Py_ssize_t body_length_at(const unsigned char* p, Py_ssize_t at) noexcept

@cython.locals(count=Py_ssize_t, position=Py_ssize_t)
cdef Py_ssize_t find(const unsigned char* p, Py_ssize_t at, Py_ssize_t end, uint32_t seed,
        uint32_t ordinal) except -2

cdef class RecordScanner:
    cdef object buffer
    cdef const unsigned char* p
    cdef readonly Py_ssize_t at, position, size, routing_at, routing_length, properties_length, body_length
    cdef Py_ssize_t end
    cdef uint32_t seed
    cdef uint64_t begun_ms
    cdef readonly uint32_t next_ordinal, ordinal
    cdef readonly list damaged
    cdef readonly unsigned char kind, flags, priority
    cdef readonly uint64_t timestamp_ms, expires_at_ms, first_timestamp_ms, body_bytes, acked_bytes
    cdef readonly Py_ssize_t count, acked
    cpdef bint next(self) except -1
    @cython.locals(at=Py_ssize_t, count=Py_ssize_t, acked=bint)
    cpdef int tally(self, uint64_t[::1] runs, bint check_content=*) except -1
    @cython.locals(p=const_octets, at=Py_ssize_t, size=Py_ssize_t, found=Py_ssize_t)
    cdef Py_ssize_t _step(self) except -1
    @cython.locals(p=const_octets, at=Py_ssize_t)
    cdef int _fill(self) except -1

cdef uint32_t word_of(uint64_t position, uint32_t kind) noexcept

# typed, so Python sees no attribute: other modules cimport them
cdef unsigned int ACKED, RUN_START, RUN_END, REQUEUED, COUNT, DUE, EXCUSED
cdef Py_ssize_t ENTRY_BYTES

@cython.locals(at=Py_ssize_t)
cdef int put_entry(unsigned char* p, Py_ssize_t index, uint32_t seed, uint32_t word) noexcept

@cython.locals(at=Py_ssize_t, word=uint32_t)
cdef uint32_t get_entry(const unsigned char* p, Py_ssize_t index, uint32_t seed) noexcept

cdef int put_mark(unsigned char* p, Py_ssize_t at, uint32_t seed, uint32_t position) noexcept

cdef class Acks:
    cdef readonly object runs
    cdef readonly dict counts, excused, dues
    cdef readonly Py_ssize_t entries, holes

@cython.locals(index=Py_ssize_t, valid=Py_ssize_t, start=uint64_t, requeued=uint32_t, gap=Py_ssize_t,
    before=uint32_t, word=uint32_t, kind=uint32_t, position=uint64_t)
cdef int _collect(const unsigned char* p, uint32_t seed, Py_ssize_t limit, Acks acks, list found) except -1

@cython.locals(last_end=int64_t, start=int64_t, end=int64_t, item=uint64_t)
cdef int _merge(list found, object runs) except -1
