cdef class SliceClock:
    cdef double _seconds, _until
    cdef Py_ssize_t _every, _left
    cdef object _clock
    cpdef begin(self)
    cpdef bint is_over(self) except -1

cdef class Job:
    cdef public bint running
    cpdef bint step(self) except -1
    cpdef bint failed(self, error) except -1
