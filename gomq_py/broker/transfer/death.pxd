from gomq_py.broker.header_edit cimport PropertyEdit

cdef class Death:
    cdef readonly bytes properties
    cdef readonly list keys
    cdef PropertyEdit _edit
    cdef list _deaths
    cdef str _reason
    cpdef bint has_come_round(self, str queue) except -1

cdef bytes concatenated(bytes headers, bytes more)
