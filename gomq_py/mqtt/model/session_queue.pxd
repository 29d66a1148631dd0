cimport cython
from gomq_py.broker.queues cimport queue as broker_queue
from gomq_py.mqtt.model.interests cimport Interest, Interests
from gomq_py.mqtt.wire cimport crossing
from gomq_py.storage.format cimport record
from gomq_py.storage.message cimport Message

cdef unsigned int KIND

cdef class SessionQueue(broker_queue.Queue):
    cdef public object session
    cpdef bint may_go(self, Message message) except -1
    cpdef bint spare(self, Message message) except -1
    cpdef int publish(self, Message message) except -1
    @cython.locals(counted=Py_ssize_t)
    cpdef Py_ssize_t counted_bytes(self, Message message) except -1
    @cython.locals(interests=Interests, at=Py_ssize_t, own=Interest, flags=cython.uint, taken=cython.int)
    cdef int _publish_own(self, Message message) except -1
