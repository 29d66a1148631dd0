cimport cython
from gomq_py.broker.routing cimport route as _routes
from gomq_py.broker.routing.route cimport Destination
from gomq_py.mqtt.model.interests cimport Interests
from gomq_py.storage.message cimport Message

cdef int LATER

@cython.final
cdef class Member:
    cdef readonly object session
    cdef readonly Destination target
    cdef Interests interests
    cdef Py_ssize_t count, rights
    cdef bint is_present, is_allowed
    cdef bint may_get(self, topic_filter) except -1

@cython.final
cdef class Rotation:
    cdef list members
    cdef Py_ssize_t next
    cdef add(self, Member member)
    @cython.locals(other=Member, place=Py_ssize_t)
    cdef remove(self, Member member)

cdef class SharedSubscription(_routes.Destination):
    cdef readonly dict members
    cdef Rotation present, absent
    cdef Py_ssize_t durables
    cdef dict departed
    cdef bint was_asked
    @cython.locals(member=Member)
    cpdef add(self, session, Destination target)
    @cython.locals(member=Member)
    cpdef remove(self, Destination target)
    @cython.locals(member=Member)
    cpdef move(self, target)
    @cython.locals(share=SharedSubscription)
    cpdef SharedSubscription renewed(self)
    @cython.locals(answer=int)
    cpdef int publish(self, Message message) except -1
    @cython.locals(rotation=Rotation, members=list, step=Py_ssize_t, member=Member)
    cpdef next_store(self)
    @cython.locals(
        members=list, count=Py_ssize_t, first=Py_ssize_t, step=Py_ssize_t, place=Py_ssize_t, member=Member,
        answer=int)
    cdef int _publish(self, Message message, Rotation rotation) except -1
    cdef Rotation _rotation_of(self, Member member)
    cdef _count_durable(self, Member member, Py_ssize_t change)
