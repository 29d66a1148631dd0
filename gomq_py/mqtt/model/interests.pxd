cimport cython
from gomq_py cimport octets
from gomq_py.mqtt.model.filter_set cimport FilterSet

cdef Py_ssize_t TOPICS, LISTED
cdef tuple _NONE

@cython.final
cdef class Interest:
    cdef readonly bytes topic, identifiers
    cdef const unsigned char* at
    cdef readonly Py_ssize_t topic_length
    cdef readonly unsigned int qos, alias
    cdef readonly bint as_published, is_kept, is_shared
    cdef readonly Interest own

@cython.final
cdef class Interests:
    cdef readonly object session
    cdef readonly Py_ssize_t rights
    cdef readonly dict aliases
    cdef Interest last
    cdef bytes last_key
    cdef Py_ssize_t last_length
    cdef readonly dict found
    cdef FilterSet filters
    cdef dict allowed
    cpdef changed(self, str topic_filter)
    cpdef forget(self)
    cpdef rights_changed(self)
    cpdef new_connection(self)
    @cython.locals(key=bytes, interest=Interest)
    cdef Interest find(self, const unsigned char* at, Py_ssize_t start, Py_ssize_t length)
    cdef name(self, bytes key, Interest interest, unsigned int alias)
    @cython.locals(interest=Interest)
    cdef Interest _look_up(self, bytes key)
    cdef _matching(self, bytes topic)
    @cython.locals(answers=dict)
    cdef _allowed(self, filters)
