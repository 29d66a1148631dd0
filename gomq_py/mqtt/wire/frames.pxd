cimport cython
from gomq_py cimport octets
from gomq_py.mqtt.wire cimport topics

cdef unsigned int PUBLISH, PUBACK, PUBREL, PUBCOMP
cdef int MQTT_5
cdef Py_ssize_t ANSWER_MAX, ROOM, ROOM_KEPT
cdef unsigned int PAYLOAD_FORMAT_INDICATOR, MESSAGE_EXPIRY_INTERVAL, CONTENT_TYPE
cdef unsigned int RESPONSE_TOPIC, CORRELATION_DATA, SUBSCRIPTION_IDENTIFIER, TOPIC_ALIAS, USER_PROPERTY

@cython.final
cdef class PacketWalk:
    cdef readonly int version
    cdef readonly object sender, limits
    cdef Py_ssize_t packet_max, property_max
    cdef bint from_client
    cdef bytes first_octets
    cdef object buffer
    cdef const unsigned char* p
    cdef readonly Py_ssize_t position, end, at, start
    cdef readonly bint plain, dup, retain, is_known
    cdef bytes known
    cdef readonly Py_ssize_t topic_at, topic_length, properties_at, properties_length
    cdef readonly Py_ssize_t payload_at, payload_length
    cdef readonly unsigned int qos, packet_identifier, topic_alias
    cdef readonly Py_ssize_t payload_format_at, message_expiry_at, topic_alias_at
    cdef Py_ssize_t value
    cpdef know(self, bytes topic)
    cpdef set_version(self, int version)
    cpdef set_limits(self, limits)
    cpdef begin(self, object buffer, Py_ssize_t start, Py_ssize_t end)
    cpdef Py_ssize_t finish(self)
    @cython.locals(
        p="const unsigned char*", at=Py_ssize_t, end=Py_ssize_t, start=Py_ssize_t, length=Py_ssize_t,
        first=cython.uint, octet=cython.uint, kind=cython.uint, shift=int)
    cpdef int next_packet(self) except -1
    cdef int refuse(self, Py_ssize_t at) except -1
    cpdef decode(self)
    cpdef bytes part(self, Py_ssize_t at, Py_ssize_t length)
    cdef bint take_publish(self, const unsigned char* p, Py_ssize_t at, Py_ssize_t end) noexcept
    cdef int forget_properties(self, Py_ssize_t at) noexcept
    @cython.locals(
        count=Py_ssize_t, identifier=cython.uint, start=Py_ssize_t, has_content_type=bint, has_response=bint,
        has_correlation=bint)
    cdef bint take_properties(self, const unsigned char* p, Py_ssize_t at, Py_ssize_t end) noexcept
    cdef Py_ssize_t take_number(
        self, const unsigned char* p, Py_ssize_t at, Py_ssize_t end, unsigned int identifier) noexcept
    @cython.locals(after=Py_ssize_t, found=int)
    cdef Py_ssize_t take_text(
        self, const unsigned char* p, Py_ssize_t at, Py_ssize_t end, int accepted) noexcept
    @cython.locals(after=Py_ssize_t)
    cdef Py_ssize_t take_binary(self, const unsigned char* p, Py_ssize_t at, Py_ssize_t end) noexcept
    @cython.locals(octet=cython.uint, shift=int)
    cdef Py_ssize_t take_variable(self, const unsigned char* p, Py_ssize_t at, Py_ssize_t end) noexcept
    @cython.locals(length=Py_ssize_t)
    cdef bint take_acknowledgement(self, const unsigned char* p, Py_ssize_t at, Py_ssize_t end) noexcept

cdef Py_ssize_t variable_size(Py_ssize_t value) noexcept
cdef Py_ssize_t put_variable(unsigned char* out, Py_ssize_t at, Py_ssize_t value) noexcept
@cython.locals(size=Py_ssize_t)
cdef Py_ssize_t publish_body(
    int version, unsigned int qos, Py_ssize_t topic_length, Py_ssize_t properties_length,
    Py_ssize_t payload_length) noexcept
@cython.locals(size=Py_ssize_t)
cdef Py_ssize_t publish_size(
    int version, unsigned int qos, Py_ssize_t topic_length, Py_ssize_t properties_length,
    Py_ssize_t payload_length) noexcept
cdef Py_ssize_t write_publish_head(
    unsigned char* out, Py_ssize_t at, int version, unsigned int flags, const unsigned char* topic,
    Py_ssize_t topic_at, Py_ssize_t topic_length, unsigned int packet_identifier,
    Py_ssize_t properties_length, Py_ssize_t payload_length) noexcept
cdef Py_ssize_t write_acknowledgement(
    unsigned char* out, Py_ssize_t at, int version, unsigned int kind, unsigned int packet_identifier,
    unsigned int reason_code) noexcept
@cython.locals(
    topic_length=Py_ssize_t, properties_length=Py_ssize_t, payload_length=Py_ssize_t, size=Py_ssize_t,
    at=Py_ssize_t, out="unsigned char*", source="const unsigned char*")
cpdef bytes encode_publish(
    int version, unsigned int flags, object topic, unsigned int packet_identifier, object properties,
    object payload)
@cython.locals(at=Py_ssize_t, out="unsigned char*")
cpdef bytes encode_acknowledgement(
    int version, unsigned int kind, unsigned int packet_identifier, unsigned int reason_code=*)

@cython.final
cdef class Acknowledgements:
    cdef int version
    cdef readonly Py_ssize_t used
    cdef Py_ssize_t room
    cdef bytearray answers
    cdef unsigned char* at
    cpdef int add(
        self, unsigned int kind, unsigned int packet_identifier, unsigned int reason_code) except -1
    cpdef bytes take(self)
    @cython.locals(answers=bytearray)
    cdef int _make_room(self, Py_ssize_t room) except -1
