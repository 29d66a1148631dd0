cimport cython

from gomq_py cimport octets
from gomq_py.content cimport header_scan
from gomq_py.storage.message cimport Message

cdef const unsigned char* VALUE_KEY
cdef Py_ssize_t VALUE_KEY_BYTES
cdef unsigned int HEADERS

cdef class StreamFilter:
    cdef readonly frozenset values
    cdef readonly tuple conditions
    cdef readonly bint match_unfiltered, all_values, any_part
    cpdef bint matches(self, Message message) except -1
    @cython.locals(p=cython.p_uchar, found=Py_ssize_t, table=Py_ssize_t, value=bytes)
    cdef bint _matches_value(self, Message message) except -1
    cdef bint _matches_conditions(self, Message message) except -1
