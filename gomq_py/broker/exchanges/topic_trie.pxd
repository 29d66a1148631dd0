from libc.stdint cimport uint64_t
cimport cython

cdef object _ONE

cdef class TopicShards:
    cdef readonly Py_ssize_t words, rebuilt
    cdef dict _shards, _room, _homes
    @cython.locals(shard=TopicBits)
    cpdef dict destinations_of(self, str pattern)
    @cython.locals(shard=TopicBits)
    cpdef dict add(self, str pattern, list words)
    @cython.locals(shard=TopicBits)
    cpdef remove(self, str pattern, list words)
    @cython.locals(shard=TopicBits)
    cpdef match(self, list words, dict targets)
    cpdef Py_ssize_t shard_count(self)
    @cython.locals(shard=TopicBits)
    cdef TopicBits _with_room(self, Py_ssize_t count)

cdef class TopicBits:
    cdef readonly Py_ssize_t used, dead
    cdef readonly dict patterns
    cdef object _starts, _finals, _stars, _stays
    cdef dict _moves
    cdef list _ends
    cdef _clear(self)
    cpdef dict destinations_of(self, str pattern)
    @cython.locals(at=Py_ssize_t, bit=object)
    cpdef add(self, str pattern, list words, dict destinations)
    @cython.locals(words=list, start=Py_ssize_t, length=Py_ssize_t)
    cpdef remove(self, str pattern)
    @cython.locals(left=dict, words=list, destinations=dict)
    cpdef Py_ssize_t rebuild(self) except -1
    @cython.locals(moves=dict, octets=bytes, octet=cython.uchar, bit=Py_ssize_t, at=Py_ssize_t)
    cpdef match(self, list words, dict targets)

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
    cdef readonly Py_ssize_t size, walked
    cdef readonly dict arrangements
    cdef readonly TopicShards shards
    @cython.locals(words=list, destinations=dict)
    cpdef add(self, str pattern, destination)
    @cython.locals(words=list, destinations=dict)
    cpdef remove(self, str pattern, destination)
    @cython.locals(node=TopicNode, destinations=dict)
    cpdef dict destinations_of(self, list words)
    cpdef Py_ssize_t costly_words(self)
    @cython.locals(words=list, is_costly=bint)
    cpdef Py_ssize_t costly_words_added(self, str pattern) except -1
    @cython.locals(count=Py_ssize_t)
    cdef bint _may_be_walked(self, list words) except -1
    @cython.locals(node=TopicNode)
    cdef dict _added(self, list words)
    @cython.locals(node=TopicNode, pattern=str)
    cdef _removed(self, list words)
    @cython.locals(count=Py_ssize_t)
    cdef _count_walked(self, list words, Py_ssize_t one)
    @cython.locals(node=TopicNode)
    cdef TopicNode _node(self, list words)
    @cython.locals(front=list, reached=list, words=list, node=TopicNode, child=TopicNode)
    cpdef match(self, str key, dict targets)
    @cython.locals(root=TopicNode)
    cpdef bint is_empty(self)
    cdef _enter(self, TopicNode node, list front, dict targets)
    cdef TopicNode _child(self, TopicNode node, str word)
    @cython.locals(parent=TopicNode)
    cdef _prune(self, TopicNode node)

cdef list split_key(str key)
cdef list folded(str pattern)
cdef Py_ssize_t hash_words(list words) except -1
cdef object arrangement(list words)
