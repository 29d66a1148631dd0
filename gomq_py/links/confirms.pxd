cimport cython
from gomq_py cimport octets
from libc.stdint cimport uint64_t

cdef unsigned int ACK, NACK, RETURN
cdef unsigned char CONFIRMED, REFUSED

cdef class Confirms:
    cdef unsigned int channel
    cdef Py_ssize_t frame_most
    cdef readonly uint64_t low, following
    cdef public list refused, others
    cdef bytearray marks
    cdef readonly Py_ssize_t returned
    cdef readonly uint64_t doubted
    cdef uint64_t mask, body_left
    cdef bint awaits_header
    @cython.locals(slots=uint64_t, number=uint64_t, marks=bytearray)
    cpdef published(self, Py_ssize_t count)
    @cython.locals(p="const unsigned char*", at=Py_ssize_t, size=Py_ssize_t)
    cpdef Py_ssize_t walk(self, bytearray buffer, Py_ssize_t end) except -1
    @cython.locals(channel=cython.uint, method=cython.uint)
    cdef int take(self, const unsigned char* p, Py_ssize_t at, Py_ssize_t size) except -1
    cdef int pass_over(self, const unsigned char* p, Py_ssize_t at, Py_ssize_t size) except -1
    cpdef answered(self, uint64_t number, bint is_refused)
    @cython.locals(first=uint64_t, mark=cython.uchar)
    cpdef note_confirm(self, uint64_t number, bint multiple, unsigned char how)
