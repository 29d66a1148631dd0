from libc.stdint cimport uint64_t
cimport cython

cdef Py_ssize_t WIDE

cdef class TopicNode:
    cdef TopicNode parent, star, hash
    cdef object word
    cdef readonly dict destinations
    cdef dict words
    cdef bint is_hash
    cdef uint64_t seen

cdef class TopicTrie:
    cdef TopicNode root
    cdef uint64_t step
    cdef readonly Py_ssize_t size
    cdef readonly object bits
    cdef uint64_t wide
    @cython.locals(node=TopicNode)
    cpdef add(self, str pattern, destination)
    @cython.locals(node=TopicNode)
    cpdef remove(self, str pattern, destination)
    @cython.locals(front=list, reached=list, words=list, node=TopicNode, child=TopicNode, visits=Py_ssize_t)
    cpdef match(self, str key, set targets)
    cpdef bint is_empty(self)
    cdef bint _has_bits(self, Py_ssize_t visits) except -1
    @cython.locals(node=TopicNode, child=TopicNode)
    cpdef list patterns(self)
    cdef list _words_to(self, TopicNode node)
    cdef _enter(self, TopicNode node, list front)
    cdef TopicNode _child(self, TopicNode node, str word)
    @cython.locals(parent=TopicNode)
    cdef _prune(self, TopicNode node)

cdef list split_key(str key)
cdef list folded(str pattern)
