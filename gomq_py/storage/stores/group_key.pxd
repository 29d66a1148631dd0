cimport cython

from gomq_py cimport octets
from gomq_py.content cimport fields, properties

cdef Py_ssize_t WHOLE_KEY_OCTETS

@cython.final
cdef class GroupKey:
    cdef readonly bint is_in_routing, is_header
    cdef readonly bytes header
    cdef const unsigned char* header_at
    cdef Py_ssize_t header_octets
    cdef bytes in_routing(self, const unsigned char* p, Py_ssize_t at)
    @cython.locals(flags=cython.uint)
    cdef bytes in_properties(self, const unsigned char* p, Py_ssize_t at)
    cpdef bytes of_octets(self, bytes octets_)
    cdef bytes _in_headers(self, const unsigned char* p, Py_ssize_t at)
    @cython.locals(whole=bytes)
    cdef bytes _key(self, const unsigned char* p, Py_ssize_t at, Py_ssize_t length)
