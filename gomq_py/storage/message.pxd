from gomq_py cimport octets
from gomq_py.content cimport forms
from libc.stdint cimport uint32_t, uint64_t

cdef unsigned char BASIC, PRIORITY_FLAG

cdef class Message:
    cdef unsigned char* buffer
    cdef object owner
    cdef Py_ssize_t routing_at, routing_length, properties_at, properties_length, body_at, body_length
    cdef uint64_t timestamp_ms, expires_at_ms, location, waits_until_ms
    cdef unsigned int delivery_count
    cdef readonly uint32_t ordinal
    cdef unsigned char kind, flags, priority
    cdef bint persistent, redelivered
    cdef public bint may_wait, at_once
    cdef public object lacking, publisher
    cpdef assign(
        self, bytes exchange, bytes routing_key, bytes properties, body, uint64_t timestamp_ms,
        uint64_t expires_at_ms=*, unsigned char priority=*,
        bint persistent=*)
    cpdef set_kind(self, unsigned char kind, unsigned char flags=*)
    cdef Py_ssize_t priority_or(self, Py_ssize_t default)
    cpdef bytes get_routing(self)
    cpdef bytes get_properties(self, Py_ssize_t most=*)
    cpdef bytes get_raw(self)
    cpdef own(self, properties=*)
    cpdef Py_ssize_t get_body_length(self)
    cpdef body_view(self)
    cpdef readdress(self, Message other, bytes exchange, bytes routing_key, bytes properties,
            uint64_t timestamp_ms, uint64_t expires_at_ms=*)
