cimport cython
from gomq_py cimport octets
from gomq_py.content cimport fields

cdef unsigned int CONTENT_TYPE, CONTENT_ENCODING, HEADERS, DELIVERY_MODE, PRIORITY, CORRELATION_ID, REPLY_TO
cdef unsigned int EXPIRATION, MESSAGE_ID, TIMESTAMP, TYPE
cdef unsigned int USER_ID, APP_ID, CLUSTER_ID, CONTINUED

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

cdef class Properties:
    cdef public object content_type, content_encoding, headers, delivery_mode, priority, correlation_id
    cdef public object reply_to, expiration, message_id, timestamp
    cdef public object type, user_id, app_id, cluster_id
