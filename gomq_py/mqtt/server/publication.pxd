cimport cython
from libc.stdint cimport uint64_t
from gomq_py cimport octets
from gomq_py.content.properties cimport PropertyScan
from gomq_py.hub.buffers cimport HubBuffers
from gomq_py.mqtt.model cimport interests as _interests
from gomq_py.mqtt.model.interests cimport Interest, Interests
from gomq_py.mqtt.wire cimport crossing, frames
from gomq_py.storage.message cimport Message

cdef unsigned int BASIC, KIND, DUP_FLAG, RETAIN_FLAG, MESSAGE_EXPIRY_INTERVAL, TOPIC_ALIAS, ALIASES
cdef int MQTT_5
cdef Py_ssize_t ALIAS_OCTETS, NO_PROPERTIES, NOT_SENDABLE, UNREADABLE
cdef PropertyScan _SCAN

@cython.final
cdef class Publication:
    cdef readonly int version
    cdef readonly Py_ssize_t packet_max, size
    cdef readonly unsigned int alias_max, qos, aliases_given
    cdef HubBuffers buffers
    cdef Interests interests
    cdef Interest interest
    cdef unsigned int flags, alias
    cdef bint names_topic, is_replayed
    cdef const unsigned char* block
    cdef Py_ssize_t block_at, block_length, expiry_at, properties_length, topic_length
    cdef unsigned int expiry_s
    @cython.locals(at=Py_ssize_t)
    cdef Interest find(self, Message message)
    @cython.locals(flags=cython.uint, is_amqp=bint)
    cdef Py_ssize_t measure(self, Message message, Interest interest, uint64_t now_ms, int qos) except -1
    @cython.locals(interest=Interest)
    cdef Py_ssize_t write(
        self, unsigned char* out, Py_ssize_t at, Message message, unsigned int packet_identifier,
        bint dup) except -1
    @cython.locals(interest=Interest)
    cdef _measure_properties(self, Message message, bint is_amqp, uint64_t now_ms)
    cdef _choose_alias(self, Interest interest)
    @cython.locals(expiry_s="long long", scratch=bytearray)
    cdef _cross(self, Message message, uint64_t now_ms)
    @cython.locals(interest=Interest)
    cdef Py_ssize_t _write_properties(self, unsigned char* out, Py_ssize_t at, Message message) except -1
    @cython.locals(at=Py_ssize_t, key=bytes)
    cdef _name(self, Message message)

cdef unsigned int seconds_left(uint64_t expires_at_ms, uint64_t now_ms) noexcept
