cdef class TurnTaker:
    cdef public object name
    cdef public bint touched
    cpdef flush(self)
    cpdef Py_ssize_t turn(self) except -1
