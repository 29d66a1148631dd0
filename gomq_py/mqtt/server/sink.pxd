cimport cython
from gomq_py cimport octets
from gomq_py.broker.routing cimport route as routes
from gomq_py.hub cimport buffers
from gomq_py.hub.buffers cimport HubBuffers
from gomq_py.hub.scheduler cimport Scheduler
from gomq_py.mqtt.model.interests cimport Interest
from gomq_py.mqtt.server.publication cimport Publication
from gomq_py.mqtt.wire cimport crossing
from gomq_py.net.output cimport Output
from gomq_py.storage.message cimport Message

cdef Py_ssize_t REPLAYED_AT_ONCE

cdef class Sink(routes.Destination):
    cdef readonly object session, give_up
    cdef readonly Output output
    cdef Publication publication
    cdef Scheduler scheduler
    cdef HubBuffers buffers
    cdef object large
    cdef Py_ssize_t limit, capacity
    cdef bytearray spare
    cdef unsigned char* at
    cdef readonly Py_ssize_t gathered
    cdef readonly unsigned long long sent, dropped
    cdef bint is_open
    cdef public object trace
    @cython.locals(interest=Interest, size=Py_ssize_t, publication=Publication)
    cpdef int publish(self, Message message) except -1
    @cython.locals(count=Py_ssize_t)
    cpdef Py_ssize_t room(self) except -1
    cpdef Py_ssize_t turn(self) except -1
    @cython.locals(count=Py_ssize_t)
    cpdef send(self)
    @cython.locals(spare=bytearray, at=cython.p_uchar)
    cdef bint _make_room(self, Py_ssize_t size) except -1
    @cython.locals(data=bytearray)
    cdef int _publish_large(self, Message message, Py_ssize_t size) except -1
    @cython.locals(spare=bytearray)
    cdef _give_spare(self)
