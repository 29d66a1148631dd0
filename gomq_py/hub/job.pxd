cdef class Job:
    cdef public bint running
    cpdef bint step(self) except -1
    cpdef bint failed(self, error) except -1
