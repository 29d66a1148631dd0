from libc.stdint cimport uint64_t, uint32_t
from gomq_py cimport octets
from gomq_py.amqp.server cimport delivery as consumer_delivery
from gomq_py.amqp.server.fast_lane cimport HotChannel
from gomq_py.broker.queues.unacked cimport Holder, Unacked
from gomq_py.amqp.wire cimport delivery
from gomq_py.broker.queues.stream_queue cimport StreamQueue
from gomq_py.broker.queues.stream_reader cimport StreamReader
from gomq_py.content cimport forms
from gomq_py.hub.buffers cimport HubBuffers
from gomq_py.storage.message cimport Message
cimport cython

cdef unsigned char BASIC

cdef class StreamConsumer(consumer_delivery.AMQPConsumer):
    cdef readonly StreamQueue stream
    cdef readonly StreamReader reader
    cdef readonly object start_at, wanted
    cdef readonly bint is_tracked
    cdef readonly uint64_t most_octets
    cpdef Py_ssize_t capacity(self) except -1
    cpdef bint is_behind(self) except -1
    cdef Py_ssize_t _deliver_traced(self, Py_ssize_t limit) except -1
    cdef bint _show_next(self) except -1
    cdef dict _headers_added(self)
    cdef _pass_over(self, error)
    cdef Py_ssize_t _translated_size(self) except -2
    @cython.locals(reader=StreamReader, unacked=Unacked, message=Message, buffers=HubBuffers,
        out=cython.p_uchar, prefix=cython.p_const_uchar, prefix_length=Py_ssize_t, at=Py_ssize_t,
        taken=Py_ssize_t, room=Py_ssize_t, size=Py_ssize_t, now_s=uint32_t, channel=cython.uint,
        most_octets=uint64_t)
    cdef Py_ssize_t _deliver(self, Py_ssize_t limit) except -1
    @cython.locals(message=Message)
    cdef Py_ssize_t _write(self, unsigned char* out, Py_ssize_t at, const unsigned char* prefix,
            Py_ssize_t prefix_length, unsigned int channel) except -1
    @cython.locals(message=Message, channel=cython.uint, properties_at=Py_ssize_t, properties_end=Py_ssize_t)
    cdef Py_ssize_t _write_translated(self, unsigned char* out, Py_ssize_t at, Py_ssize_t end) except -2
    @cython.locals(data=bytearray, out=cython.p_uchar, body_length=Py_ssize_t)
    cdef Py_ssize_t _deliver_large(self, Py_ssize_t size) except -1
