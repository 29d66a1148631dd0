cimport cython
from libc.stdint cimport uint64_t

from gomq_py cimport octets
from gomq_py.amqp.wire cimport delivery
from gomq_py.content cimport fields, properties

cdef unsigned int HEADERS
cdef const unsigned char* KEY
cdef Py_ssize_t KEY_BYTES, ENTRY_BYTES, GROWTH_BYTES

@cython.locals(start=Py_ssize_t, end=Py_ssize_t, headers=Py_ssize_t, flags="unsigned int", table=Py_ssize_t,
    table_end=Py_ssize_t, found=Py_ssize_t)
cdef Py_ssize_t write_stream_content(
    unsigned char* out, Py_ssize_t at, unsigned int channel, const unsigned char* source,
    Py_ssize_t properties_at, Py_ssize_t properties_length,
    Py_ssize_t body_at, Py_ssize_t body_length, Py_ssize_t frame_max, uint64_t offset) noexcept
