cimport cython
from gomq_py cimport octets

cdef list _FORMS
cdef Py_ssize_t BASIC_MAX

cdef class Form:
    cdef readonly int kind
    cdef Py_ssize_t basic_bound(self, Py_ssize_t properties_length) except -1
    cdef Py_ssize_t write_basic(
        self, unsigned char* out, Py_ssize_t at, Py_ssize_t most, const unsigned char* p,
        Py_ssize_t routing_at, Py_ssize_t properties_at, Py_ssize_t properties_length,
        unsigned char flags) except -2
    @cython.locals(data=bytearray, end=Py_ssize_t)
    cdef bytes basic(
        self, const unsigned char* p, Py_ssize_t routing_at, Py_ssize_t properties_at,
        Py_ssize_t properties_length, unsigned char flags, Py_ssize_t most)

@cython.locals(form=Form)
cpdef Form of(int kind)
