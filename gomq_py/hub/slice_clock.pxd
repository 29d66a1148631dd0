cdef class SliceClock:
    cdef double _seconds, _until
    cdef Py_ssize_t _every, _left
    cdef object _clock
    cpdef begin(self)
    cpdef bint is_over(self) except -1
