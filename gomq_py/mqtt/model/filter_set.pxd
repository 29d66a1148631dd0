cimport cython
from libc.stdint cimport uint64_t

cdef Py_ssize_t _NUMBERED

@cython.final
cdef class Shape:
    cdef tuple pluses
    cdef Py_ssize_t levels, count
    cdef bint is_below

@cython.final
cdef class FilterSet:
    cdef set filters
    cdef dict shapes, shared
    @cython.locals(plain=str, shape=Shape)
    cpdef add(self, str topic_filter)
    @cython.locals(plain=str, shape=Shape, same=list)
    cpdef discard(self, str topic_filter)
    @cython.locals(
        found=list, levels=list, is_dollar=bint, may_be_plain=bint, shape=Shape, parts=list, candidate=str,
        index=Py_ssize_t)
    cpdef list match(self, str topic)

@cython.locals(
    one=uint64_t, pluses=uint64_t, level=uint64_t, character=Py_UCS4, shape=Shape, is_below=bint)
cdef object _key(str topic_filter)
