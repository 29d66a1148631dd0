cimport cython

cdef long long FLOOD, BEHIND_MS, LOOK_MS, FULL_MS, WEIGHT_OCTETS

@cython.final
cdef class PublishRate:
    cdef long long _count, _since_ms
    @cython.locals(passed_ms="long long")
    cpdef bint is_flood(self, long long now_ms, Py_ssize_t count) except -1

@cython.final
cdef class TakeRate:
    cdef long long _count, _passed_ms, _from, _from_ms, _flood_from
    cpdef Py_ssize_t quantum(
        self, long long now_ms, long long taken, long long share, long long rivals) except -1
    @cython.locals(weight="long long")
    cpdef bint is_exceeded(
        self, long long now_ms, long long taken, long long ready, long long ready_octets) except -1
    @cython.locals(passed_ms="long long")
    cdef bint _is_flood(self, long long now_ms, long long taken, long long weight) except -1
