cimport cython
from gomq_py.broker.routing cimport destination as _destination
from gomq_py.broker.routing.destination cimport Destination
from gomq_py.storage.message cimport Message

cdef int LATER

@cython.final
cdef class Member:
    cdef readonly object session
    cdef readonly Destination target
    cdef Py_ssize_t count
    cdef bint is_allowed

cdef class Share(_destination.Destination):
    cdef readonly list members
    cdef Py_ssize_t next
    cdef dict departed
    @cython.locals(member=Member)
    cpdef add(self, session, Destination target)
    @cython.locals(member=Member, place=Py_ssize_t)
    cpdef remove(self, Destination target)
    @cython.locals(member=Member)
    cpdef refresh(self)
    @cython.locals(answer=int)
    cpdef int publish(self, Message message) except -1
    @cython.locals(
        members=list, count=Py_ssize_t, first=Py_ssize_t, step=Py_ssize_t, place=Py_ssize_t, member=Member,
        answer=int)
    cdef int _publish(self, Message message, bint is_connected) except -1
