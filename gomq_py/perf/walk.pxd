cimport cython
from gomq_py cimport octets
from gomq_py.mqtt.wire cimport frames as mqtt_frames
from gomq_py.perf cimport bare_send
from libc.stdint cimport uint64_t

cdef bytes ACK_FRAME
cdef uint64_t NUMBER_MASK, IDENTIFIER_MAX
cdef unsigned int DELIVER, GET_OK, GET_EMPTY, RETURN, ACK, NACK
cdef unsigned int PUBLISH, PUBACK, PUBREC, PUBREL, PUBCOMP

cdef class PublishBatch:
    cdef public bytearray buffer
    cdef public object starts
    cdef public Py_ssize_t count
    cdef long long[::1] bodies
    cdef Py_ssize_t timestamp_at, sequence_at, identifier_before
    @cython.locals(p="unsigned char*", i=cython.Py_ssize_t, at=cython.Py_ssize_t)
    cpdef stamp(self, Py_ssize_t first, Py_ssize_t last, uint64_t sequence, uint64_t timestamp_ns)
    @cython.locals(p="unsigned char*", i=cython.Py_ssize_t)
    cpdef identify(self, Py_ssize_t first, Py_ssize_t last, unsigned int identifier)
    @cython.locals(p="unsigned char*", i=cython.Py_ssize_t, start=cython.Py_ssize_t, end=cython.Py_ssize_t,
        written=cython.Py_ssize_t)
    cdef tuple _write_bare(self, int descriptor, Py_ssize_t first, Py_ssize_t last, int flags)

cdef class LatencyHistogram:
    cdef uint64_t[::1] buckets
    @cython.locals(shift=uint64_t)
    cpdef add(self, uint64_t value)

cdef class ConfirmWindow:
    cdef readonly uint64_t confirmed, refused, low
    cdef uint64_t mask
    cdef unsigned char[::1] noted
    cdef LatencyHistogram latencies
    cdef uint64_t[::1] sent_ns
    cdef public uint64_t now_ns
    @cython.locals(first=uint64_t)
    cpdef note_confirm(self, uint64_t tag, bint multiple, bint refused)
    cpdef note_sent(self, uint64_t first, uint64_t last, uint64_t now_ns)

cdef class SequenceCheck:
    cdef readonly uint64_t misordered, corrupt
    cdef bytes filler
    cdef Py_ssize_t filled_from
    cdef uint64_t[::1] following, counts, sums
    cdef Py_ssize_t publishers
    @cython.locals(publisher=cython.Py_ssize_t, number=uint64_t)
    cpdef note(self, uint64_t sequence)
    @cython.locals(filler="const unsigned char*")
    cdef int compare(
        self, const unsigned char* p, Py_ssize_t at, Py_ssize_t size, Py_ssize_t offset
    ) except -1

cdef class Walk:
    cdef public bytearray buffer
    cdef public Py_ssize_t kept
    cdef readonly uint64_t delivered, body_octets, redelivered
    cdef public list others
    cdef public bytearray answers
    cdef public Py_ssize_t answered
    cdef readonly SequenceCheck check
    cdef LatencyHistogram latencies
    cdef Py_ssize_t sequence_at, timestamp_at
    cdef uint64_t now_ns
    @cython.locals(stamped_ns=uint64_t)
    cdef int take_content(
        self, const unsigned char* p, Py_ssize_t at, Py_ssize_t size, Py_ssize_t offset
    ) except -1

cdef class FrameWalk(Walk):
    cdef readonly uint64_t returned, empty_gets, last_tag, acked_tag
    cdef public uint64_t ack_every
    cdef ConfirmWindow window
    cdef uint64_t missing, offset
    cdef bint returning
    @cython.locals(
        p="const unsigned char*", at=cython.Py_ssize_t, size=cython.Py_ssize_t, frame_end=cython.Py_ssize_t,
        kind=cython.uint, before=uint64_t,
    )
    cpdef Py_ssize_t walk(self, Py_ssize_t end, uint64_t now_ns) except -1
    @cython.locals(method=cython.uint, tag_at=cython.Py_ssize_t)
    cdef int take_method(self, const unsigned char* p, Py_ssize_t at, Py_ssize_t size) except -1
    cdef int take_body(self, const unsigned char* p, Py_ssize_t at, Py_ssize_t size) except -1
    cdef int complete(self) except -1
    @cython.locals(p="unsigned char*")
    cdef int answer(self, bint multiple) except -1
    cpdef ack_rest(self)

cdef class PacketWindow(ConfirmWindow):
    @cython.locals(first=uint64_t, ahead=uint64_t)
    cpdef note_packet_confirm(self, uint64_t identifier, bint refused)

cdef class ArrivalCheck(SequenceCheck):
    cdef readonly uint64_t doubled
    cdef uint64_t span
    cdef unsigned char[::1] seen
    @cython.locals(
        publisher=cython.Py_ssize_t, number=uint64_t, at=uint64_t, mask=uint64_t, following=uint64_t,
        skipped=uint64_t)
    cpdef note(self, uint64_t sequence)

cdef class MQTTWalk(Walk):
    cdef mqtt_frames.PacketWalk packets
    cdef int version
    cdef PacketWindow window
    @cython.locals(
        packets=mqtt_frames.PacketWalk, p="const unsigned char*", kind=cython.uint, at=cython.Py_ssize_t,
        before=uint64_t)
    cpdef Py_ssize_t walk(self, Py_ssize_t end, uint64_t now_ns) except -1
    @cython.locals(at=cython.Py_ssize_t, size=cython.Py_ssize_t)
    cdef int take_message(self, const unsigned char* p) except -1
    @cython.locals(p="unsigned char*")
    cdef int answer(self, unsigned int kind) except -1
