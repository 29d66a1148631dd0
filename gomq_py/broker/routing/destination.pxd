from gomq_py.storage.message cimport Message

cdef class Destination:
    cdef public object name
    cdef public bint durable, touched, unable
    cpdef int publish(self, Message message) except -1
    cpdef flush(self)
    cpdef Py_ssize_t turn(self) except -1
