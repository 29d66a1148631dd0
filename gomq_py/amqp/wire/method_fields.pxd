cimport cython
from gomq_py cimport octets
from gomq_py.content cimport fields

@cython.locals(p="const unsigned char*", length=cython.Py_ssize_t, size=cython.Py_ssize_t,
    start=cython.Py_ssize_t, bits=cython.uint, bit=cython.uint)
cpdef bint read_fields(object method, tuple kinds, object data, Py_ssize_t at, bint any_octets) except -1
