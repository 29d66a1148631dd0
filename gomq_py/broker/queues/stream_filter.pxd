cimport cython

from gomq_py cimport octets
from gomq_py.content cimport fields, properties
from gomq_py.storage.message cimport Message

cdef const unsigned char* VALUE_KEY
cdef Py_ssize_t VALUE_KEY_BYTES
cdef unsigned int HEADERS
cdef unsigned char BASIC

cdef class StreamFilter:
    cdef readonly frozenset values
    cdef readonly tuple conditions
    cdef readonly bint match_unfiltered, all_values, any_part
    @cython.locals(properties=bytes)
    cpdef bint matches(self, Message message) except -1
    cdef bint _matches(self, Message message, const unsigned char* p, Py_ssize_t at) except -1
    @cython.locals(found=Py_ssize_t, table=Py_ssize_t, value=bytes)
    cdef bint _matches_value(self, const unsigned char* p, Py_ssize_t at) except -1
    cdef bint _matches_conditions(self, Message message) except -1
