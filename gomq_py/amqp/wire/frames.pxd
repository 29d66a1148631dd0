cimport cython
from gomq_py cimport octets
from gomq_py.content cimport fields

cdef class FrameReader:
    cdef public Py_ssize_t frame_max
    cdef bytearray buffer
    cdef Py_ssize_t position
    cpdef feed(self, object data)
    cpdef bytes take_rest(self)
    @cython.locals(p="const unsigned char*", length=cython.Py_ssize_t, size=cython.Py_ssize_t,
        at=cython.Py_ssize_t, kind=cython.uint, channel=cython.uint)
    cpdef tuple next_frame(self)

@cython.locals(p="const unsigned char*", length=cython.Py_ssize_t, size=cython.Py_ssize_t,
    start=cython.Py_ssize_t, bits=cython.uint, bit=cython.uint)
cpdef bint read_fields(object method, tuple kinds, object data, Py_ssize_t at, bint any_octets) except -1
