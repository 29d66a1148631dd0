cimport cython
from gomq_py.content.properties cimport PropertyScan

cdef unsigned int CONTENT_TYPE, CONTENT_ENCODING, HEADERS, EXPIRATION

cdef class PropertyEdit:
    cdef public bytes headers
    cdef public object expiration
    cdef bytes _properties
    cdef PropertyScan _scan
    @cython.locals(flags=cython.uint, start=Py_ssize_t, end=Py_ssize_t, after=Py_ssize_t, scan=PropertyScan,
        properties=bytes, headers=bytes)
    cpdef bytes octets(self)
    @cython.locals(at=Py_ssize_t, properties=bytes)
    cdef Py_ssize_t _place_of_headers(self) except -1
