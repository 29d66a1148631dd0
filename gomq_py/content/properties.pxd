cimport cython
from libc.stdint cimport uint64_t
from gomq_py cimport octets
from gomq_py.content cimport fields

cdef unsigned int CONTENT_TYPE, CONTENT_ENCODING, HEADERS, DELIVERY_MODE, PRIORITY, CORRELATION_ID, REPLY_TO
cdef unsigned int EXPIRATION, MESSAGE_ID, TIMESTAMP, TYPE
cdef unsigned int USER_ID, APP_ID, CLUSTER_ID, CONTINUED
cdef const unsigned char* DELAY
cdef const unsigned char* DELIVER_AT
cdef const unsigned char* SCHEDULE
cdef Py_ssize_t DELAY_BYTES, DELIVER_AT_BYTES, SCHEDULE_BYTES, MOST_LONGER
cdef long long MOST_MS, LARGEST, NOT_DELAYED, UNTOLD
cdef uint64_t LAST_DATE_S

cdef Py_ssize_t skip_shortstr(const unsigned char* p, Py_ssize_t at, Py_ssize_t end) noexcept
@cython.locals(flags=cython.uint)
cdef Py_ssize_t headers_at(const unsigned char* p, Py_ssize_t at) noexcept

cdef class PropertyScan:
    cdef readonly unsigned int flags
    cdef readonly Py_ssize_t headers_at, headers_length, expiration_at, user_id_at, reply_to_at
    cdef readonly unsigned char delivery_mode, priority
    cdef readonly bint special
    @cython.locals(flags=cython.uint, at=cython.Py_ssize_t)
    cdef int scan(self, const unsigned char* p, Py_ssize_t start, Py_ssize_t end) noexcept
    @cython.locals(special=cython.int)
    cdef Py_ssize_t scan_head(self, const unsigned char* p, Py_ssize_t at, Py_ssize_t end) noexcept
    @cython.locals(flags=cython.uint)
    cdef Py_ssize_t scan_tail(self, const unsigned char* p, Py_ssize_t at, Py_ssize_t end) noexcept
    cpdef bint scan_octets(self, object data)

cdef class PropertyEdit:
    cdef public bytes headers
    cdef public object expiration
    cdef bytes _properties
    cdef PropertyScan _scan
    @cython.locals(flags=cython.uint, start=Py_ssize_t, end=Py_ssize_t, after=Py_ssize_t, scan=PropertyScan,
        properties=bytes, headers=bytes)
    cpdef bytes octets(self)
    @cython.locals(at=Py_ssize_t, properties=bytes)
    cdef Py_ssize_t _place_of_headers(self) except -1

# Of a client's messages, which users may hand to other processes.
@cython.auto_pickle(True)
cdef class Properties:
    cdef public object content_type, content_encoding, headers, delivery_mode, priority, correlation_id
    cdef public object reply_to, expiration, message_id, timestamp
    cdef public object type, user_id, app_id, cluster_id

@cython.locals(delay_at=Py_ssize_t, deliver_at=Py_ssize_t, value=Py_ssize_t, due="long long",
    number="long long")
cdef long long due_ms(const unsigned char* p, Py_ssize_t at, Py_ssize_t end, long long arrived_ms) noexcept
@cython.locals(delay_at=Py_ssize_t, deliver_at=Py_ssize_t, value=Py_ssize_t, after=Py_ssize_t,
    length=Py_ssize_t, number="long long")
cdef Py_ssize_t negate(unsigned char* target, Py_ssize_t to, const unsigned char* p, Py_ssize_t at,
        Py_ssize_t end) noexcept
cdef bint is_key(const unsigned char* p, Py_ssize_t at, const unsigned char* key, Py_ssize_t length) noexcept
cdef bint is_told(const unsigned char* p, Py_ssize_t at) noexcept
cdef long long told(const unsigned char* p, Py_ssize_t at) noexcept
