from libc.stdint cimport uint64_t
from gomq_py cimport octets
from gomq_py.content cimport fields
cimport cython

cdef const unsigned char* DELAY
cdef const unsigned char* DELIVER_AT
cdef Py_ssize_t DELAY_BYTES, DELIVER_AT_BYTES, MOST_LONGER
cdef long long MOST_MS, LARGEST, NOT_DELAYED, UNTOLD
cdef uint64_t LAST_DATE_S

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
