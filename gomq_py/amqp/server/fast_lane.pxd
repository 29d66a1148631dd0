from libc.stdint cimport uint64_t
from gomq_py cimport octets
from gomq_py.broker.queues.unacked cimport Unacked
from gomq_py.broker.queues.consumers cimport Consumer
from gomq_py.broker.routing cimport route as routes
from gomq_py.broker.routing.route cimport Destination, RememberedRoutes, Route
from gomq_py.broker.verbs.pending_confirms cimport UnsyncedQueues
from gomq_py.content cimport fields, properties
from gomq_py.content.properties cimport PropertyScan
from gomq_py.hub cimport backpressure
from gomq_py.hub.buffers cimport HubBuffers
from gomq_py.hub.scheduler cimport Scheduler
from gomq_py.net cimport stream as streams
from gomq_py.storage.message cimport Message
cimport cython

cdef unsigned int BASIC_PUBLISH, BASIC_ACK, DELIVERY_MODE
cdef int FRAME_END
cdef Py_ssize_t WAIT, SLOW, WATCHED_ROUTES, WATCHED_OCTETS, DIRECT_OCTETS

cdef class HotChannel:
    cdef readonly unsigned int id
    cdef public bint slow, confirming, watched, tracing
    cdef public uint64_t published, publishes, return_unroutable, drop_unroutable
    cdef public list refused
    cdef readonly UnsyncedQueues unsynced
    cdef readonly Unacked unacked
    cdef public Py_ssize_t prefetch_count, global_prefetch, max_unacked
    cdef public dict consumers
    cdef public object confirms
    cdef bint in_confirming, in_settled
    cdef Py_ssize_t resume_at
    cdef object settling
    @cython.locals(consumer=Consumer)
    cpdef resume_consumers(self)
    @cython.locals(consumer=Consumer, consumers=list, first=Py_ssize_t, at=Py_ssize_t)
    cdef _resume_in_turns(self)
    @cython.locals(refused=list)
    cpdef send_confirms(self)
    cpdef watch_unacked(self)
    cpdef trace_delivery(self, Message message, queue_name, dict added)
    cpdef bint ack(self, uint64_t tag, bint multiple) except -1
    cpdef bint reject(self, uint64_t tag, bint multiple, int requeue) except -1

cdef class FastLane(streams.Lane):
    cdef readonly list confirming_channels
    cdef readonly Py_ssize_t max_message, frame_max
    cdef object handler
    cdef HubBuffers buffers
    cdef dict channels
    cdef RememberedRoutes remembered, watching
    cdef Scheduler scheduler
    cdef list settled_channels
    cdef HotChannel channel
    cdef Message message
    cdef PropertyScan scan
    cdef unsigned char* at
    cdef Py_ssize_t header_max
    cdef uint64_t body_max
    cdef uint64_t now_ms
    cdef bint held, in_body
    cdef Py_ssize_t stored_copies, routed, look_at
    cdef backpressure.PublishRate rate
    @cython.locals(at=cython.p_uchar, position=Py_ssize_t, size=Py_ssize_t, frame_end=Py_ssize_t,
        after=Py_ssize_t, kind=cython.uint, number=cython.uint, method=cython.uint, channel=HotChannel)
    cpdef Py_ssize_t process(self, Py_ssize_t start, Py_ssize_t end, uint64_t now_ms) except -1
    @cython.locals(channel=HotChannel)
    cpdef finish(self)
    @cython.locals(route=Route, queue=Destination, is_flood=bint)
    cdef _look_behind(self)
    cpdef set_frame_max(self, Py_ssize_t frame_max)
    @cython.locals(channels=list, channel=HotChannel)
    cpdef send_confirms(self)
    cpdef confirm(self, HotChannel channel)
    @cython.locals(channel=HotChannel)
    cdef HotChannel _find(self, unsigned int number)
    @cython.locals(at=cython.p_uchar, routing=Py_ssize_t, length=Py_ssize_t, after=Py_ssize_t, route=Route)
    cdef Py_ssize_t _publish(self, HotChannel channel, Py_ssize_t position, Py_ssize_t frame_end,
            Py_ssize_t end) except -2
    @cython.locals(at=cython.p_uchar, header_size=Py_ssize_t, header_end=Py_ssize_t, size=uint64_t,
        body=Py_ssize_t, after=Py_ssize_t, message=Message)
    cdef Py_ssize_t _content(self, unsigned int number, Py_ssize_t position, Py_ssize_t header,
            Py_ssize_t end) except -2
    cdef bint _properties(self, Py_ssize_t start, Py_ssize_t end) except -1
    @cython.locals(route=Route)
    cdef Route _route(self, Py_ssize_t routing, Py_ssize_t length)
    @cython.locals(due_ms="long long")
    cdef Route _by_headers(self, Route route, Py_ssize_t routing, Py_ssize_t length)
    @cython.locals(at=cython.p_uchar, end=Py_ssize_t, entry=Py_ssize_t, size=Py_ssize_t,
        watching=RememberedRoutes, found=Route)
    cdef Route _watched(self, Route route, Py_ssize_t routing, Py_ssize_t length)
    @cython.locals(message=Message, answer=Py_ssize_t)
    cdef int _store(self, HotChannel channel, Route route) except -1
    @cython.locals(message=Message, mandatory=bint)
    cdef int _wait(self, HotChannel channel, Route route, Py_ssize_t at, bint taken) except -1
    cdef int _stored(self, HotChannel channel, Route route, bint persistent, bint taken) except -1
