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
