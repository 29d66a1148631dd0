cimport cython
from gomq_py cimport octets
from gomq_py.content cimport fields, forms, properties
from gomq_py.content.properties cimport PropertyScan
from gomq_py.mqtt.wire cimport topics
from libc.stdint cimport uint64_t

cdef unsigned int QOS_SHIFT, QOS_MASK, RETAIN, REPLAYED, NAMED, OWN
cdef unsigned int PAYLOAD_FORMAT_INDICATOR, MESSAGE_EXPIRY_INTERVAL, CONTENT_TYPE, RESPONSE_TOPIC
cdef unsigned int CORRELATION_DATA, SUBSCRIPTION_IDENTIFIER, WILL_DELAY_INTERVAL, TOPIC_ALIAS, USER_PROPERTY
cdef const unsigned char* TOPIC_KEY
cdef const unsigned char* QOS_KEY
cdef const unsigned char* RETAIN_KEY
cdef const unsigned char* TYPE_KEY
cdef const unsigned char* FORMAT_KEY
cdef const unsigned char* CORRELATION_KEY
cdef const unsigned char* RESPONSE_KEY
cdef const unsigned char* PREFIX
cdef const unsigned char* DEFAULT_EXCHANGE
cdef const unsigned char* TOPIC_ADDRESS
cdef Py_ssize_t TOPIC_ADDRESS_BYTES
cdef Py_ssize_t TOPIC_KEY_BYTES, QOS_KEY_BYTES, RETAIN_KEY_BYTES, TYPE_KEY_BYTES, FORMAT_KEY_BYTES
cdef Py_ssize_t CORRELATION_KEY_BYTES, RESPONSE_KEY_BYTES, PREFIX_BYTES, DEFAULT_EXCHANGE_BYTES
cdef unsigned char LONGSTR, OCTETS, BOOLEAN, UINT8, SLASH, DOT, TRANSIENT, PERSISTENT
cdef Py_ssize_t SHORT_MAX, STRING_MAX, TAIL_BYTES, FIXED_BYTES, BLOCK_MAX, USER_PROPERTIES_MAX, AMQP_BYTES
cdef uint64_t EXPIRATION_MAX_MS

@cython.locals(place=Py_ssize_t, octet=cython.uchar)
cdef Py_ssize_t write_swapped(
    unsigned char* out, Py_ssize_t at, const unsigned char* p, Py_ssize_t start, Py_ssize_t length) noexcept
cdef bint is_topic(const unsigned char* p, Py_ssize_t at, Py_ssize_t length) noexcept
@cython.locals(after=Py_ssize_t)
cdef Py_ssize_t skip_string(const unsigned char* p, Py_ssize_t at, Py_ssize_t end) noexcept
@cython.locals(identifier=cython.uint, last=Py_ssize_t)
cdef Py_ssize_t skip_property(const unsigned char* p, Py_ssize_t at, Py_ssize_t end) noexcept
cdef bint is_block(const unsigned char* p, Py_ssize_t at, Py_ssize_t end) noexcept
cdef Py_ssize_t find_property(
    const unsigned char* p, Py_ssize_t at, Py_ssize_t end, unsigned int identifier) noexcept

cdef class MQTTForm(forms.Form):
    @cython.locals(bound=Py_ssize_t)
    cdef Py_ssize_t basic_bound(self, Py_ssize_t properties_length) except -1
    @cython.locals(
        end=Py_ssize_t, start=Py_ssize_t, limit=Py_ssize_t, given=cython.uint, content_type=Py_ssize_t,
        correlation=Py_ssize_t, response=Py_ssize_t, expiry=Py_ssize_t, table=Py_ssize_t, before=Py_ssize_t)
    cdef Py_ssize_t write_basic(
        self, unsigned char* out, Py_ssize_t at, Py_ssize_t most, const unsigned char* p,
        Py_ssize_t routing_at, Py_ssize_t properties_at, Py_ssize_t properties_length,
        unsigned char flags) except -2
    @cython.locals(key=Py_ssize_t)
    cdef Py_ssize_t write_fixed(
        self, unsigned char* out, Py_ssize_t at, const unsigned char* p, Py_ssize_t routing_at,
        unsigned int flags) noexcept
    @cython.locals(payload_format=Py_ssize_t, after=Py_ssize_t, length=Py_ssize_t)
    cdef Py_ssize_t write_headers(
        self, unsigned char* out, Py_ssize_t at, Py_ssize_t limit, const unsigned char* p, Py_ssize_t start,
        Py_ssize_t end, Py_ssize_t content_type, Py_ssize_t correlation, Py_ssize_t response) noexcept

@cython.locals(length=Py_ssize_t)
cdef bint is_short_text(const unsigned char* p, Py_ssize_t at) noexcept
cdef bint is_of_default_exchange(const unsigned char* p, Py_ssize_t at) noexcept
@cython.locals(length=Py_ssize_t)
cdef Py_ssize_t write_reply_to(
    unsigned char* out, Py_ssize_t at, const unsigned char* p, Py_ssize_t response) noexcept
cdef bint is_reserved(const unsigned char* p, Py_ssize_t at, Py_ssize_t length) noexcept
cdef Py_ssize_t write_short(
    unsigned char* out, Py_ssize_t at, const unsigned char* p, Py_ssize_t start, Py_ssize_t length) noexcept
@cython.locals(length=Py_ssize_t)
cdef Py_ssize_t write_header(
    unsigned char* out, Py_ssize_t at, Py_ssize_t limit, const unsigned char* key, Py_ssize_t key_at,
    Py_ssize_t key_length, unsigned char kind, const unsigned char* p, Py_ssize_t value) noexcept
@cython.locals(number=uint64_t, power=uint64_t, digits=Py_ssize_t, place=Py_ssize_t)
cdef Py_ssize_t write_milliseconds(unsigned char* out, Py_ssize_t at, uint64_t seconds) noexcept

@cython.locals(bound=Py_ssize_t)
cdef Py_ssize_t block_bound(Py_ssize_t properties_length) noexcept
@cython.locals(
    qos=cython.uint, value="long long", table=Py_ssize_t, end=Py_ssize_t, found=Py_ssize_t, flags=cython.uint)
cdef int flags_of(const unsigned char* p, Py_ssize_t at, Py_ssize_t length, bint persistent) except -1
@cython.locals(
    scan=PropertyScan, limit=Py_ssize_t, table=Py_ssize_t, table_end=Py_ssize_t, found=Py_ssize_t,
    response=Py_ssize_t, has_response=bint)
cdef Py_ssize_t write_block(
    unsigned char* out, Py_ssize_t at, const unsigned char* p, Py_ssize_t start, Py_ssize_t length,
    long long expiry_s) except -2
@cython.locals(flag=cython.uint)
cdef Py_ssize_t write_basics(
    unsigned char* out, Py_ssize_t at, Py_ssize_t limit, const unsigned char* p, Py_ssize_t start,
    PropertyScan scan, bint has_response) except -1
@cython.locals(found=Py_ssize_t, length=Py_ssize_t)
cdef Py_ssize_t write_told(
    unsigned char* out, Py_ssize_t at, Py_ssize_t limit, unsigned int identifier, const unsigned char* p,
    Py_ssize_t table, Py_ssize_t table_end, const unsigned char* key, Py_ssize_t key_length) noexcept
cdef Py_ssize_t write_string(
    unsigned char* out, Py_ssize_t at, Py_ssize_t limit, unsigned int identifier, const unsigned char* p,
    Py_ssize_t start, Py_ssize_t length) noexcept
@cython.locals(prefix=Py_ssize_t)
cdef Py_ssize_t write_response_topic(
    unsigned char* out, Py_ssize_t at, Py_ssize_t limit, const unsigned char* p, Py_ssize_t start,
    Py_ssize_t length) noexcept
cdef Py_ssize_t write_amqp(
    unsigned char* out, Py_ssize_t at, Py_ssize_t limit, bytes name, const unsigned char* p,
    Py_ssize_t start) except -1
cdef Py_ssize_t write_number(
    unsigned char* out, Py_ssize_t at, Py_ssize_t limit, bytes name, bytes text) except -1
cdef Py_ssize_t write_user_property(
    unsigned char* out, Py_ssize_t at, Py_ssize_t limit, const unsigned char* name, Py_ssize_t name_at,
    Py_ssize_t name_length, const unsigned char* p, Py_ssize_t start, Py_ssize_t length) noexcept
@cython.locals(
    count=Py_ssize_t, length=Py_ssize_t, value=Py_ssize_t, after=Py_ssize_t, before=Py_ssize_t, text=bytes)
cdef Py_ssize_t write_user_properties(
    unsigned char* out, Py_ssize_t at, Py_ssize_t limit, const unsigned char* p, Py_ssize_t table,
    Py_ssize_t table_end) except -1
cdef long long integer_of(const unsigned char* p, Py_ssize_t at) except? -1
@cython.locals(kind=cython.uint)
cdef bytes text_of(const unsigned char* p, Py_ssize_t at)
cdef MQTTForm FORM
@cython.locals(data=bytearray, end=Py_ssize_t)
cpdef bytes basic_of(bytes routing, bytes raw, unsigned char flags)
@cython.locals(data=bytearray, end=Py_ssize_t)
cpdef bytes block_of(bytes raw, long long expiry_s=*)
cpdef bint is_block_of(bytes raw)
cpdef int flags_of_basic(bytes raw, bint persistent) except -1
cpdef int record_flags(int qos, bint retain, bint replayed=*, bint named=*)
cpdef int qos_of(int flags)
cpdef bint is_acknowledged(int flags)
