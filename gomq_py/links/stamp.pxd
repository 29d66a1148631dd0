cimport cython
from gomq_py cimport octets
from gomq_py.content cimport fields, properties
from gomq_py.content.properties cimport PropertyScan

cdef unsigned int HEADERS, USER_ID, CONTINUED
cdef object HEAD, LENGTH
cdef Py_ssize_t KNOWN_OCTETS

cdef class Stamp:
    cdef bytes key, entry, entry_again
    cdef PropertyScan scan
    cdef dict known
    cdef tuple unknown
    @cython.locals(at=Py_ssize_t, following=Py_ssize_t, length=Py_ssize_t, entry=bytes)
    cdef object stamped(self, const unsigned char* p, Py_ssize_t start, Py_ssize_t end, int redelivered)
    @cython.locals(at=Py_ssize_t)
    cdef int answered(self, bytes content) except -1
    cdef object table_known(self, bytes headers, int redelivered)
