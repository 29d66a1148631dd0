cimport cython
from gomq_py cimport octets

cdef unsigned char BOOLEAN, INT8, UINT8, INT16, UINT16, INT32, UINT32, INT64, INT64_ALIAS, FLOAT, DOUBLE
cdef unsigned char DECIMAL, TIMESTAMP
cdef unsigned char LONGSTR, OCTETS, ARRAY, TABLE, VOID
cdef const unsigned char* RETAIN
cdef Py_ssize_t RETAIN_BYTES
cdef int MAX_DEPTH

cdef Py_ssize_t width_of(unsigned char kind) noexcept
@cython.locals(kind=cython.uchar, size=cython.Py_ssize_t)
cdef Py_ssize_t check_value(const unsigned char* p, Py_ssize_t at, Py_ssize_t end, int depth) noexcept
cdef int check_array(const unsigned char* p, Py_ssize_t at, Py_ssize_t end, int depth) noexcept
@cython.locals(size=cython.Py_ssize_t, special=cython.int)
cdef int check_table(const unsigned char* p, Py_ssize_t at, Py_ssize_t end, int depth) noexcept
@cython.locals(size=cython.Py_ssize_t)
cdef Py_ssize_t table_end(const unsigned char* p, Py_ssize_t at, Py_ssize_t end, int depth=*) noexcept
@cython.locals(kind=cython.uchar)
cdef Py_ssize_t skip_value(const unsigned char* p, Py_ssize_t at) noexcept
@cython.locals(value=cython.Py_ssize_t)
cdef Py_ssize_t find_key(
    const unsigned char* p, Py_ssize_t at, Py_ssize_t end, const unsigned char* key,
    Py_ssize_t key_length) noexcept
@cython.locals(end=cython.Py_ssize_t, size=cython.Py_ssize_t)
cdef dict read_table(const unsigned char* p, Py_ssize_t at)
@cython.locals(end=cython.Py_ssize_t)
cdef list read_array(const unsigned char* p, Py_ssize_t at)
@cython.locals(kind=cython.uchar)
cdef object read_value(const unsigned char* p, Py_ssize_t at)
@cython.locals(kind=cython.uchar)
cdef object read_scalar(const unsigned char* p, Py_ssize_t at)
@cython.locals(kind=cython.uchar)
cdef bint is_integer(const unsigned char* p, Py_ssize_t at) noexcept
@cython.locals(kind=cython.uchar, number=cython.longlong)
cdef long long integer(const unsigned char* p, Py_ssize_t at) noexcept
cdef Py_ssize_t put_integer(unsigned char* target, Py_ssize_t at, long long number) noexcept
@cython.locals(at=cython.Py_ssize_t, end=cython.Py_ssize_t, size=cython.Py_ssize_t,
    value_at=cython.Py_ssize_t)
cdef tuple find_entry(const unsigned char* p, Py_ssize_t length, bytes key)

@cython.locals(p="const unsigned char*", end=cython.Py_ssize_t)
cpdef tuple decode_table(object data, Py_ssize_t offset=*, int deeper=*)
@cython.locals(p="const unsigned char*", end=cython.Py_ssize_t)
cpdef tuple decode_value(object data, Py_ssize_t offset=*)
@cython.locals(p="const unsigned char*", length=cython.Py_ssize_t, at=cython.Py_ssize_t,
    end=cython.Py_ssize_t, value_at=cython.Py_ssize_t)
cpdef bytes sort_keys(bytes raw)
