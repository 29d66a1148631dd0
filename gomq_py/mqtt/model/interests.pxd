cimport cython
from gomq_py cimport octets
from gomq_py.mqtt.model.filter_tree cimport FilterSet
from gomq_py.mqtt.wire.topics cimport is_shared, is_topic_name, matches, split_shared

cdef Py_ssize_t TOPICS, LISTED
cdef tuple _NONE

@cython.final
cdef class Interest:
    cdef readonly bytes topic, identifiers
    cdef const unsigned char* at
    cdef readonly Py_ssize_t topic_length
    cdef readonly unsigned int qos, alias
    cdef readonly bint as_published, is_kept, is_shared, is_wanted
    cdef Interest own
    cdef want(self, list subscriptions, bint is_kept)
    @cython.locals(one=Interest)
    cdef Interest of(self, bytes topic, unsigned int alias)
    cdef Interest in_own(self)

@cython.final
cdef class Interests:
    cdef readonly object session
    cdef readonly Py_ssize_t rights
    cdef Py_ssize_t rights_asked
    cdef bint is_allowed_all
    cdef readonly dict aliases
    cdef Interest last
    cdef bytes last_key
    cdef Py_ssize_t last_length
    cdef readonly dict found
    cdef FilterSet filters
    cdef dict allowed, kinds
    cdef list plain
    cpdef changed(self, str topic_filter)
    cpdef forget(self)
    cpdef rights_changed(self)
    cpdef new_connection(self)
    cpdef close(self)
    @cython.locals(key=bytes, interest=Interest)
    cdef Interest find(self, const unsigned char* at, Py_ssize_t start, Py_ssize_t length)
    @cython.locals(interest=Interest)
    cdef name(self, bytes key, unsigned int alias)
    @cython.locals(alias=cython.uint, topic=bytes)
    cdef Interest _look_up(self, bytes key)
    @cython.locals(kinds=dict, kind=Interest, without=tuple)
    cdef Interest _kind(self, tuple filters)
    @cython.locals(interest=Interest, is_kept=bint)
    cdef Interest _wanted(self, tuple filters)
    @cython.locals(plain=list, part=str, name=str)
    cdef _matching(self, bytes topic)
    @cython.locals(answers=dict)
    cdef _allowed(self, filters)
