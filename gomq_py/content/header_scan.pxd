cimport cython

from gomq_py cimport octets
from gomq_py.content cimport fields

cdef unsigned int CONTENT_TYPE, CONTENT_ENCODING, HEADERS

@cython.locals(flags="unsigned int")
cdef Py_ssize_t headers_at(const unsigned char* p, Py_ssize_t at) noexcept
@cython.locals(value=Py_ssize_t)
cdef Py_ssize_t find_key(const unsigned char* p, Py_ssize_t at, Py_ssize_t end, const unsigned char* key,
        Py_ssize_t key_length) noexcept
