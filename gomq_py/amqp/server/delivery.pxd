from libc.stdint cimport uint64_t, uint32_t
from gomq_py cimport octets
from gomq_py.amqp.server.fast_lane cimport HotChannel
from gomq_py.broker.queues.unacked cimport Holder, Unacked
from gomq_py.amqp.wire cimport delivery
from gomq_py.broker.queues cimport consumers
from gomq_py.broker.queues cimport queue as broker_queue
from gomq_py.broker.queues.queue cimport Queue
from gomq_py.content cimport forms
from gomq_py.hub.buffers cimport HubBuffers
from gomq_py.net.output cimport Output
from gomq_py.storage.message cimport Message
cimport cython

cdef unsigned char BASIC
cdef Py_ssize_t UNREADABLE_OCTETS
cdef uint64_t OCTETS_PER_MS

cdef class AMQPConsumer(consumers.Consumer):
    cdef readonly Output output
    cdef readonly HotChannel channel
    cdef readonly Queue source
    cdef readonly Holder holder
    cdef readonly Py_ssize_t prefetch
    cdef readonly bint started
    cdef public object on_cancel
    cdef Py_ssize_t frame_max
    cdef public Py_ssize_t properties_max
    cdef bytes prefix
    cdef Message message
    cdef bint waiting, held
    cdef public object large, timers
    cdef forms.Form form
    cdef Py_ssize_t apart
    cpdef bint admits_large(self, Py_ssize_t size) except -1
    cpdef wrote_large(self, Py_ssize_t size)
    @cython.locals(room=Py_ssize_t, shared=Py_ssize_t)
    cpdef Py_ssize_t capacity(self) except -1
    @cython.locals(queue=Queue, unacked=Unacked, message=Message, buffers=HubBuffers, out=cython.p_uchar,
        prefix=cython.p_const_uchar, prefix_length=Py_ssize_t, at=Py_ssize_t, taken=Py_ssize_t,
        room=Py_ssize_t, size=Py_ssize_t, now_s=uint32_t, no_ack=bint, channel=cython.uint)
    cdef Py_ssize_t _deliver(self, Py_ssize_t limit) except -1
    cdef Py_ssize_t _size_of(self, Message message) except -1
    @cython.locals(channel=cython.uint)
    cdef Py_ssize_t _write_frames(self, unsigned char* out, Py_ssize_t at, Message message) except -1
    cdef _end_channel(self)
    @cython.locals(queue=Queue)
    cdef _send_taken(self, Py_ssize_t at)
    cpdef Py_ssize_t deliver(self, Py_ssize_t limit) except -1
    @cython.locals(at=Py_ssize_t)
    cdef Py_ssize_t _deliver_traced(self, Py_ssize_t limit) except -1
    cdef bint _show_next(self) except -1
    cdef dict _headers_added(self)
    cdef bint _may_go(self) except -1
    @cython.locals(apart=Py_ssize_t)
    cdef Py_ssize_t _forget_apart(self) noexcept
    cdef _pass_over(self, error)
    @cython.locals(message=Message, channel=cython.uint)
    cdef Py_ssize_t _write_translated(self, unsigned char* out, Py_ssize_t at, Py_ssize_t end) except -2
    @cython.locals(size=Py_ssize_t)
    cdef Py_ssize_t _add_unusual(self, unsigned char* out, Py_ssize_t at, Py_ssize_t room) except -2
    @cython.locals(message=Message)
    cdef Py_ssize_t _translated_size(self) except -2
    @cython.locals(data=bytearray, out=cython.p_uchar, at=Py_ssize_t, message=Message)
    cdef Py_ssize_t _deliver_large(self, Py_ssize_t size) except -1
    @cython.locals(lead=bytearray, out=cython.p_uchar, at=Py_ssize_t)
    cdef bytearray _lead(self, Message message)
    @cython.locals(message=Message)
    cdef Py_ssize_t _deliver_from(self, reading, Py_ssize_t size) except -1
    @cython.locals(at=Py_ssize_t)
    @cython.locals(size=Py_ssize_t)
    cpdef bint hand_over(self, Message message) except -1
    cdef bint _can_have(self, Message message) except -1
    @cython.locals(most_ms=uint64_t)
    cpdef wait_for(self, Message message, uint64_t now_ms)
    @cython.locals(message=Message)
    cdef _take_large(self)
