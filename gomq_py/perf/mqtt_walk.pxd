cimport cython
from gomq_py cimport octets
from gomq_py.mqtt.wire cimport frames
from gomq_py.perf.walk cimport ConfirmWindow, SequenceCheck, Walk
from libc.stdint cimport uint64_t

cdef unsigned int PUBLISH, PUBACK, PUBREC, PUBREL, PUBCOMP
cdef uint64_t NUMBER_MASK, IDENTIFIER_MAX

cdef class PacketWindow(ConfirmWindow):
    @cython.locals(first=uint64_t, ahead=uint64_t)
    cpdef settle_packet(self, uint64_t identifier, bint refused)

cdef class ArrivalCheck(SequenceCheck):
    cdef readonly uint64_t doubled
    cdef uint64_t span
    cdef unsigned char[::1] seen
    @cython.locals(
        publisher=cython.Py_ssize_t, number=uint64_t, at=uint64_t, mask=uint64_t, following=uint64_t,
        skipped=uint64_t)
    cpdef note(self, uint64_t sequence)

cdef class MQTTWalk(Walk):
    cdef frames.PacketWalk packets
    cdef int version
    cdef PacketWindow window
    @cython.locals(
        packets=frames.PacketWalk, p="const unsigned char*", kind=cython.uint, at=cython.Py_ssize_t,
        before=uint64_t)
    cpdef Py_ssize_t walk(self, Py_ssize_t end, uint64_t now_ns) except -1
    @cython.locals(at=cython.Py_ssize_t, size=cython.Py_ssize_t)
    cdef int take_message(self, const unsigned char* p) except -1
    @cython.locals(p="unsigned char*")
    cdef int answer(self, unsigned int kind) except -1
