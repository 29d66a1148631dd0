from libc.stdint cimport uint64_t
from gomq_py cimport octets
from gomq_py.content cimport fields, forms, properties
cimport cython

cdef Py_ssize_t FRAME_OVERHEAD, HEADER_OVERHEAD, KEY_BYTES, ENTRY_BYTES, GROWTH_BYTES
cdef unsigned int HEADERS
cdef const unsigned char* KEY

@cython.locals(size=Py_ssize_t)
cdef Py_ssize_t delivery_size(
    Py_ssize_t prefix_length, Py_ssize_t routing_length, Py_ssize_t properties_length,
    Py_ssize_t body_length, Py_ssize_t frame_max) noexcept
cdef Py_ssize_t write_delivery(
    unsigned char* out, Py_ssize_t at, unsigned int channel, const unsigned char* prefix,
    Py_ssize_t prefix_length, uint64_t tag, bint redelivered,
    const unsigned char* source, Py_ssize_t routing_at, Py_ssize_t routing_length) noexcept
cdef Py_ssize_t write_content(
    unsigned char* out, Py_ssize_t at, unsigned int channel, const unsigned char* source,
    Py_ssize_t properties_at, Py_ssize_t properties_length,
    Py_ssize_t body_at, Py_ssize_t body_length, Py_ssize_t frame_max) noexcept
cdef Py_ssize_t write_header(
    unsigned char* out, Py_ssize_t at, unsigned int channel, const unsigned char* source,
    Py_ssize_t properties_at, Py_ssize_t properties_length, Py_ssize_t body_length) noexcept
@cython.locals(start=Py_ssize_t, end=Py_ssize_t, headers=Py_ssize_t, flags="unsigned int", table=Py_ssize_t,
    table_end=Py_ssize_t, found=Py_ssize_t)
cdef Py_ssize_t write_stream_content(
    unsigned char* out, Py_ssize_t at, unsigned int channel, const unsigned char* source,
    Py_ssize_t properties_at, Py_ssize_t properties_length,
    Py_ssize_t body_at, Py_ssize_t body_length, Py_ssize_t frame_max, uint64_t offset) noexcept
@cython.locals(end=Py_ssize_t)
cdef Py_ssize_t write_translated(
    unsigned char* out, Py_ssize_t at, unsigned int channel, forms.Form form, const unsigned char* source,
    Py_ssize_t routing_at, Py_ssize_t properties_at, Py_ssize_t properties_length, unsigned char flags,
    Py_ssize_t body_at, Py_ssize_t body_length, Py_ssize_t frame_max) except -2
@cython.locals(most=Py_ssize_t)
cdef Py_ssize_t write_properties(
    unsigned char* out, Py_ssize_t at, forms.Form form, const unsigned char* source, Py_ssize_t routing_at,
    Py_ssize_t properties_at, Py_ssize_t properties_length, unsigned char flags,
    Py_ssize_t frame_max) except -2
@cython.locals(bound=Py_ssize_t)
cdef Py_ssize_t translated_bound(
    forms.Form form, Py_ssize_t properties_length, Py_ssize_t frame_max) except -1
@cython.locals(part=Py_ssize_t)
cdef Py_ssize_t write_body(
    unsigned char* out, Py_ssize_t at, unsigned int channel, const unsigned char* source, Py_ssize_t body_at,
    Py_ssize_t body_length,
    Py_ssize_t frame_max) noexcept
