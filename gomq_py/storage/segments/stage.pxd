from gomq_py cimport octets

cdef Py_ssize_t STAGE_OCTETS

cdef class Stage:
    cdef readonly object user
    cdef unsigned char* p
    cdef bytearray _octets
    cpdef bint take(self, user) except -1
    cpdef content(self, Py_ssize_t count)
    cpdef int release(self) except -1
