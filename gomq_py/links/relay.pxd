cimport cython
from gomq_py cimport octets
from gomq_py.content cimport fields, properties
from gomq_py.content.properties cimport PropertyScan
from libc.stdint cimport uint64_t

cdef unsigned int DELIVER, PUBLISH
cdef Py_ssize_t FRAME_MOST, WHOLE_OCTETS, PUBLISH_MOST, TEXT_MOST
cdef unsigned int HEADERS, USER_ID, CONTINUED
cdef object HEAD, LENGTH
cdef Py_ssize_t KNOWN_OCTETS

cdef class HeaderStamp:
    cdef bytes key, entry, entry_again
    cdef PropertyScan scan
    cdef dict known
    cdef tuple unknown
    @cython.locals(at=Py_ssize_t, following=Py_ssize_t, length=Py_ssize_t, entry=bytes)
    cdef object stamped(self, const unsigned char* p, Py_ssize_t start, Py_ssize_t end, int redelivered)
    @cython.locals(at=Py_ssize_t)
    cdef int answered(self, bytes content) except -1
    cdef object table_known(self, bytes headers, int redelivered)

cdef class Relay:
    cdef bytearray input, output
    cdef unsigned int channel, target_channel
    cdef Py_ssize_t piece, target_frame_max
    cdef bytes exchange, routing_key
    cdef bint is_mandatory
    cdef object edit
    cdef bytes offset_key
    cdef HeaderStamp header_stamp
    cdef readonly uint64_t last_tag, first_tag
    cdef readonly Py_ssize_t count, written, missing
    cdef readonly bint left_out
    cdef public bint discards, skips, signs
    cdef readonly unsigned int checksum
    cdef public list others
    cdef readonly long long offset
    cdef Py_ssize_t headers_from, headers_to
    cdef tuple edited
    cdef PropertyScan scan
    @cython.locals(p="const unsigned char*", out="unsigned char*", at=Py_ssize_t, following=Py_ssize_t)
    cpdef Py_ssize_t walk(self, Py_ssize_t end, Py_ssize_t most) except -1
    @cython.locals(method_end=Py_ssize_t, header_at=Py_ssize_t, header_end=Py_ssize_t, size=Py_ssize_t,
        body_end=Py_ssize_t)
    cdef Py_ssize_t unit(
        self, const unsigned char* p, unsigned char* out, Py_ssize_t at, Py_ssize_t end) except -1
    @cython.locals(size=Py_ssize_t)
    cdef Py_ssize_t frame_end(self, const unsigned char* p, Py_ssize_t at, Py_ssize_t end) except -1
    @cython.locals(following=Py_ssize_t)
    cdef Py_ssize_t content_at(self, const unsigned char* p, Py_ssize_t at, Py_ssize_t end) except -1
    cdef int check_header(self, const unsigned char* p, Py_ssize_t at, Py_ssize_t end) except -1
    @cython.locals(following=Py_ssize_t)
    cdef Py_ssize_t body_end(
        self, const unsigned char* p, Py_ssize_t at, Py_ssize_t end, Py_ssize_t size) except -2
    cdef Py_ssize_t body_size(
        self, const unsigned char* p, Py_ssize_t at, Py_ssize_t end, Py_ssize_t missing) except -1
    @cython.locals(tag_at=Py_ssize_t, routing_at=Py_ssize_t, key_at=Py_ssize_t, tag=uint64_t, size=Py_ssize_t,
        header_size=Py_ssize_t, need=Py_ssize_t)
    cdef Py_ssize_t relay(
        self, const unsigned char* p, unsigned char* out, Py_ssize_t at, Py_ssize_t method_end,
        Py_ssize_t header_at, Py_ssize_t header_end, Py_ssize_t body_end, Py_ssize_t end) except -1
    cdef Py_ssize_t unfit(
        self, str text, const unsigned char* p, Py_ssize_t at, Py_ssize_t routing_at, Py_ssize_t method_end,
        Py_ssize_t header_at, Py_ssize_t header_end, Py_ssize_t body_end) except -1
    @cython.locals(start=Py_ssize_t, end=Py_ssize_t, at=Py_ssize_t, checksum="unsigned int")
    cdef object sign(
        self, const unsigned char* p, Py_ssize_t routing_at, Py_ssize_t method_end, Py_ssize_t header_at,
        Py_ssize_t header_end, Py_ssize_t body_end)
    cdef Py_ssize_t leave_out(
        self, const unsigned char* p, Py_ssize_t at, Py_ssize_t method_end, Py_ssize_t header_at,
        Py_ssize_t header_end, Py_ssize_t body_end, Py_ssize_t size) except -1
    cdef int begun(self) except -1
    @cython.locals(following=Py_ssize_t, size=Py_ssize_t)
    cdef Py_ssize_t go_on(
        self, const unsigned char* p, unsigned char* out, Py_ssize_t at, Py_ssize_t end) except -1
    cdef object changed(
        self, const unsigned char* p, uint64_t tag, Py_ssize_t tag_at, Py_ssize_t key_at,
        Py_ssize_t method_end, Py_ssize_t header_at, Py_ssize_t header_end)
    cdef object ask_edit(
        self, const unsigned char* p, uint64_t tag, Py_ssize_t tag_at, Py_ssize_t key_at,
        Py_ssize_t method_end, Py_ssize_t header_at, Py_ssize_t header_end)
    @cython.locals(at=Py_ssize_t, to=Py_ssize_t)
    cdef int write_publish(
        self, const unsigned char* p, unsigned char* out, Py_ssize_t routing_at, Py_ssize_t key_at,
        Py_ssize_t end) except -1
    cdef Py_ssize_t write_shortstr(self, unsigned char* out, Py_ssize_t at, bytes text) except -1
    @cython.locals(to=Py_ssize_t)
    cdef int write_header(
        self, const unsigned char* p, unsigned char* out, Py_ssize_t at, Py_ssize_t end, Py_ssize_t size,
        bytes content) except -1
    @cython.locals(following=Py_ssize_t)
    cdef Py_ssize_t write_bodies(
        self, const unsigned char* p, unsigned char* out, Py_ssize_t at, Py_ssize_t end) except -1
    @cython.locals(to=Py_ssize_t, part=Py_ssize_t)
    cdef int write_body(
        self, const unsigned char* p, unsigned char* out, Py_ssize_t at, Py_ssize_t size) except -1
    @cython.locals(following=Py_ssize_t)
    cdef int controls(self, const unsigned char* p, Py_ssize_t at, Py_ssize_t end) except -1
    @cython.locals(channel=cython.uint)
    cdef int control(self, const unsigned char* p, Py_ssize_t at, Py_ssize_t end) except -1
    @cython.locals(end=Py_ssize_t, at=Py_ssize_t, key=bytes)
    cdef long long find_offset(self, const unsigned char* p) except -2
