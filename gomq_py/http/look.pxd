cdef class Look:
    cdef readonly object thing, values, rates
    cdef public object in_force, arguments
    cdef public double at
    cdef public bytes counted, head
    cpdef take(self, at, values, rates)
