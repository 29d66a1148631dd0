cimport cython

@cython.final
cdef class Unsynced:
    cdef readonly tuple last
    cdef set before
    cpdef add(self, tuple queues)
    @cython.locals(queues=tuple, before=set)
    cpdef tuple take(self)
