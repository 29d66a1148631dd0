cimport cython
from gomq_py cimport octets
from gomq_py.broker.routing cimport route as routes
from gomq_py.broker.routing.route cimport RememberedRoutes, Route
from gomq_py.hub.buffers cimport HubBuffers
from gomq_py.hub.scheduler cimport Scheduler
from gomq_py.mqtt.server cimport flows as _flows
from gomq_py.mqtt.server.flows cimport Inbound, Outbound
from gomq_py.mqtt.wire cimport crossing
from gomq_py.mqtt.wire.frames cimport PacketWalk
from gomq_py.net cimport stream as streams
from gomq_py.storage.message cimport Message
from libc.stdint cimport uint64_t

cdef unsigned int PUBLISH, PUBREL, PUBCOMP
cdef Py_ssize_t FRONT

@cython.final
cdef class LaneParts:
    cdef PacketWalk walk
    cdef Message message
    @cython.locals(message=Message)
    cdef renew(self)

cdef class FastLane(streams.Lane):
    cdef object connection, limits, large
    cdef Outbound outbound
    cdef Inbound inbound
    cdef HubBuffers buffers
    cdef Scheduler scheduler
    cdef LaneParts parts
    cdef RememberedRoutes remembered
    cdef bytes known
    cdef unsigned char* at
    cdef uint64_t now_ms
    cdef readonly bint is_slow, is_blocked
    cdef bint held
    cdef Py_ssize_t stored_copies, payload_max
    cdef readonly unsigned long long publishes
    cpdef set_modes(self, bint is_slow, bint is_blocked)
    cpdef set_inbound(self, Inbound inbound)
    @cython.locals(parts=LaneParts, walk=PacketWalk, position=Py_ssize_t)
    cpdef Py_ssize_t process(self, Py_ssize_t start, Py_ssize_t end, uint64_t now_ms) except -1
    cpdef finish(self)
    cpdef close(self)
    @cython.locals(walk=PacketWalk, kind=cython.uint)
    cdef Py_ssize_t _walk(self, bint is_blocked, bint may_hold) except -1
    @cython.locals(
        walk=PacketWalk, route=Route, inbound=Inbound, length=Py_ssize_t, routing_at=Py_ssize_t, state=int,
        message=Message, answer=Py_ssize_t)
    cdef bint _publish(self) except -1
    @cython.locals(message=Message, seconds=uint64_t)
    cdef Message _filled(self, PacketWalk walk)
    @cython.locals(walk=PacketWalk, route=Route)
    cdef Route _route(self)
    cdef Inbound _inbound(self)
    @cython.locals(message=Message, walk=PacketWalk)
    cdef int _wait(self, Route route, Py_ssize_t at, bint taken) except -1
    @cython.locals(queues=tuple, is_routed=bint)
    cdef int _stored(
        self, Route route, unsigned int qos, unsigned int packet_identifier, bint taken) except -1
    @cython.locals(at=cython.p_uchar, size=Py_ssize_t, place=Py_ssize_t, octet=cython.uint)
    cdef Py_ssize_t _begin_large(self, Py_ssize_t start, Py_ssize_t end) except -1
    cdef Py_ssize_t _gather(self, Py_ssize_t start, Py_ssize_t end) except -1

@cython.locals(route=Route)
cdef Route _route_of(connection, bytes key)
