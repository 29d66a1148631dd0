from libc.stdint cimport uint64_t
from gomq_py cimport octets
from gomq_py.amqp.server.hot_channel cimport HotChannel
from gomq_py.broker.exchanges cimport delay_scan
from gomq_py.broker.routing cimport deposit
from gomq_py.broker.routing.destination cimport Destination
from gomq_py.broker.routing.remembered cimport RememberedRoutes
from gomq_py.broker.routing.route cimport Route
from gomq_py.content cimport fields
from gomq_py.content.properties cimport PropertyScan
from gomq_py.hub.buffers cimport HubBuffers
from gomq_py.hub.scheduler cimport Scheduler
from gomq_py.storage.message cimport Message
cimport cython

cdef unsigned int BASIC_PUBLISH, BASIC_ACK, DELIVERY_MODE
cdef int FRAME_END
cdef Py_ssize_t WAIT, SLOW, WATCHED_ROUTES, WATCHED_OCTETS, HASTE, DIRECT_OCTETS
cdef long long HASTE_MS

@cython.final
cdef class FastLane:
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
    cdef Py_ssize_t payload_max, header_max
    cdef uint64_t body_max
    cdef uint64_t now_ms
    cdef long long haste_since_ms
    cdef bint held, in_body
    cdef Py_ssize_t stored_copies, routed, look_at, haste
    @cython.locals(at=cython.p_uchar, position=Py_ssize_t, size=Py_ssize_t, frame_end=Py_ssize_t,
        after=Py_ssize_t, kind=cython.uint, number=cython.uint, method=cython.uint, channel=HotChannel)
    cpdef Py_ssize_t process(self, Py_ssize_t start, Py_ssize_t end, uint64_t now_ms) except -1
    @cython.locals(channel=HotChannel)
    cpdef finish(self)
    @cython.locals(route=Route, queue=Destination, passed_ms=cython.longlong)
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
