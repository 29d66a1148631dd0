cimport cython
from libc.stdint cimport uint64_t
from gomq_py cimport octets
from gomq_py.broker.queues cimport consumers
from gomq_py.broker.queues cimport queue as broker_queue
from gomq_py.broker.queues.queue cimport Queue
from gomq_py.broker.routing cimport route as routes
from gomq_py.hub cimport backpressure, buffers
from gomq_py.hub.buffers cimport HubBuffers
from gomq_py.hub.scheduler cimport Scheduler
from gomq_py.mqtt.model.interests cimport Interest
from gomq_py.mqtt.model.sent cimport Sent
from gomq_py.mqtt.server cimport publication as mqtt_publication
from gomq_py.mqtt.server.publication cimport Publication
from gomq_py.mqtt.wire cimport crossing
from gomq_py.mqtt.wire.frames cimport Acknowledgements
from gomq_py.net.output cimport Output
from gomq_py.storage.message cimport Message

cdef unsigned int PUBREL
cdef Py_ssize_t DROPPED_AT_ONCE, REPLAYED_AT_ONCE

cdef class Sink(routes.Destination):
    cdef readonly object session, give_up
    cdef readonly Output output
    cdef Publication publication
    cdef Scheduler scheduler
    cdef HubBuffers buffers
    cdef object large, timers
    cdef Py_ssize_t limit, capacity
    cdef bytearray spare
    cdef unsigned char* at
    cdef readonly Py_ssize_t gathered
    cdef readonly unsigned long long sent, dropped
    cdef bint is_open
    cdef readonly long long blocked_ms
    cdef bint was_late
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
    @cython.locals(left_ms="long long")
    cdef int _put_off(self, Message message) except -1
    cpdef bint is_late(self) except -1
    cdef bint _is_too_long(self, long long now_ms) except -1
    cdef _look_blocked(self)
    @cython.locals(spare=bytearray)
    cdef _give_spare(self)

cdef class SessionConsumer(consumers.Consumer):
    cdef readonly Output output
    cdef readonly Queue source
    cdef readonly Sent sent
    cdef readonly Publication publication
    cdef readonly Py_ssize_t dropped
    cdef readonly object give_up
    cdef public object trace
    cdef object large, ended, unsafe, release_timer
    cdef Sink sink
    cdef Message message
    cdef bint started, waiting, held, is_full, is_exact
    cdef uint64_t now_ms
    cdef unsigned int identifier
    cdef Py_ssize_t to_drop
    @cython.locals(room=Py_ssize_t)
    cpdef Py_ssize_t capacity(self) except -1
    cpdef room_again(self)
    cpdef Py_ssize_t deliver(self, Py_ssize_t limit) except -1
    @cython.locals(at=Py_ssize_t)
    cdef Py_ssize_t _deliver_traced(self, Py_ssize_t limit) except -1
    @cython.locals(queue=Queue, message=Message, out=cython.p_uchar, room=Py_ssize_t, at=Py_ssize_t,
        behind=Py_ssize_t, taken=Py_ssize_t, size=Py_ssize_t)
    cdef Py_ssize_t _deliver(self, Py_ssize_t limit) except -1
    @cython.locals(queue=Queue, sent=Sent, message=Message, publication=Publication, qos=int, size=Py_ssize_t)
    cdef Py_ssize_t _look(self) except -1
    @cython.locals(qos=int, identifier=cython.uint)
    cdef Py_ssize_t _take(self, unsigned char* out, Py_ssize_t at, Message message) except -1
    cdef _write(self, data)
    cdef bint _is_kept_elsewhere(self) except -1
    cdef _send_when_safe(self, data)
    cdef _drop(self, Message message)
    @cython.locals(data=bytearray)
    cdef Py_ssize_t _deliver_large(self, Py_ssize_t size) except -1
    @cython.locals(answers=Acknowledgements)
    cdef _release(self)
    cdef _stop_release_timer(self)
