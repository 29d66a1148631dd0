cimport cython

cdef object _ONE

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

cdef _reach(there, dict targets)
cdef _lead(FilterNode node, bint is_below, there)
@cython.locals(child=FilterNode, only=FilterNode)
cdef FilterNode _grown(FilterNode node, str level)
cdef _cut(FilterNode node, str level)

@cython.locals(levels=list)
cpdef list levels_of(str topic_filter)
cdef bint _is_below(str topic_filter) except -1
cdef object _arrangement(list levels)
