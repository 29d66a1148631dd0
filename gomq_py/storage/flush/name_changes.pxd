cimport cython

from gomq_py.storage.flush.bell cimport Bell

@cython.final
cdef class NameChanges:
    cdef public object _change_each
    cdef object _begin
    cdef Bell _wake
    cdef bint _gathers_soon, _is_making_alone
    cdef list _changes, _soon, _making
    cdef double _soon_since
    cdef dict __dict__

    cdef bint are_due(self) except -1
    cdef double soon_at(self) except -1
    cpdef list take(self)
    cpdef make(self, list changes, dict failures)
    cdef make_alone(self, dict failures)
    @cython.locals(changes=list, failures=dict)
    cdef dict make_soon(self)
    cdef list give_up(self)
    cdef forget(self)
