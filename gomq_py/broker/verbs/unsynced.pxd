cimport cython

@cython.final
cdef class Unsynced:
    cdef readonly tuple last
    cdef dict before
    cpdef add(self, tuple queues)
    @cython.locals(queues=tuple, before=dict)
    cpdef tuple take(self)
