cimport cython
from libc.stdint cimport uint64_t
from gomq_py.mqtt.wire.topics cimport is_shared, split_shared

cdef object _ONE
cdef Py_ssize_t _NUMBERED

@cython.final
cdef class FilterNode:
    cdef FilterNode plus
    cdef str level
    cdef object levels, destinations, below
    @cython.locals(levels=dict, only=FilterNode)
    cdef FilterNode child(self, str level)
    cdef bint is_empty(self) except -1

@cython.final
cdef class Arrangements:
    cdef readonly Py_ssize_t costly_levels
    cdef dict _counts
    cpdef bint has_room(self, list levels, Py_ssize_t most) except -1
    @cython.locals(count=Py_ssize_t)
    cpdef count(self, list levels, Py_ssize_t change)
    cpdef bint is_empty(self) except -1

@cython.final
cdef class FilterTree:
    cdef FilterNode root
    cdef readonly Py_ssize_t size
    cdef readonly Arrangements arrangements
    @cython.locals(levels=list, is_below=bint, node=FilterNode, counts=dict)
    cpdef add(self, str topic_filter, destination)
    @cython.locals(levels=list, is_below=bint, node=FilterNode, nodes=list, counts=dict)
    cpdef remove(self, str topic_filter, destination)
    @cython.locals(node=FilterNode, child=FilterNode, front=list, reached=list, may_be_any=bint)
    cpdef match(self, str topic, dict targets)
    cpdef bint is_empty(self) except -1

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

cdef _reach(there, dict targets)
cdef _lead(FilterNode node, bint is_below, there)
@cython.locals(child=FilterNode, only=FilterNode)
cdef FilterNode _grown(FilterNode node, str level)
cdef _cut(FilterNode node, str level)

@cython.locals(levels=list)
cpdef list levels_of(str topic_filter)
cdef bint _is_below(str topic_filter) except -1
cdef object _arrangement(list levels)
@cython.locals(one=uint64_t, pluses=uint64_t, level=uint64_t, character=Py_UCS4, shape=Shape)
cdef object _shape_key(str topic_filter)
