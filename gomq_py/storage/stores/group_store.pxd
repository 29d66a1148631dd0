cimport cython
from libc.stdint cimport uint64_t

from gomq_py.storage.format cimport record
from gomq_py.storage.message cimport Message
from gomq_py.storage.segments.recovered cimport Recovered
from gomq_py.storage.segments.segment cimport Segment
from gomq_py.storage.stores cimport message_store
from gomq_py.storage.stores.group_key cimport GroupKey
from gomq_py.storage.stores.groups cimport Group, Lines, WaitingLists
from gomq_py.storage.stores.requeued cimport DeliveryCounts

cdef unsigned char BASIC
cdef int _FROM_GROUP
cdef uint64_t BEHIND_ALL
cdef Py_ssize_t PASSED_IN_A_TURN, KEY_OCTETS_PER_PASS

cdef class GroupStore(message_store.MessageStore):
    cdef readonly GroupKey group_key
    cdef readonly Py_ssize_t group_limit
    cdef readonly WaitingLists waiting
    cdef readonly Lines lines
    cdef readonly bint passes_on, is_full
    cdef public Py_ssize_t waiting_max, groups_max, look_ahead
    cdef dict _groups
    cdef list _by_id, _free_ids
    cdef DeliveryCounts _out
    cdef set _resting, _removed
    cdef Py_ssize_t _passes_left
    cdef uint64_t _shown_location
    cdef bytes _shown_key
    cdef Group _shown_group
    cdef Segment _awaited, _lately, _opened
    cdef Message _looked_at

    @cython.locals(group=Group, first=Group)
    cpdef bint peek(self, Message message) except -1
    @cython.locals(location=uint64_t, group=Group, came_now=bint)
    cpdef int shift(self) except -1
    @cython.locals(group=Group)
    cpdef bint oldest(self, Message message) except -1
    @cython.locals(group=Group)
    cpdef int leave(self) except -1
    cpdef begin_turn(self)
    @cython.locals(count=Py_ssize_t)
    cpdef Py_ssize_t deliverable(self) except -1
    cpdef bint is_waiting(self) except -1
    cpdef bint shows_recovered(self) except -1
    @cython.locals(segment=Segment, recovered=Recovered)
    cpdef uint64_t peeked_due_s(self, uint64_t now_s) except? 0
    @cython.locals(group=Group)
    cpdef int delete(self, uint64_t location) except -1
    @cython.locals(key=bytes, group=Group)
    cpdef int requeue(self, uint64_t location) except -1
    @cython.locals(group=Group)
    cdef Group _group(self, bytes key)
    cdef int _go_out(self, Group group, uint64_t location) except -1
    @cython.locals(since=uint64_t, cursor=uint64_t, served=Group)
    cdef int _come_in(self, Group group, uint64_t location) except -1
    @cython.locals(location=uint64_t)
    cdef uint64_t _since(self, Group group) except? 0
    @cython.locals(location=uint64_t)
    cpdef int postpone(self) except -1
    cpdef int wait_until(self, uint64_t location, Py_ssize_t count, uint64_t due_s) except -1
    @cython.locals(group=Group)
    cdef int _rest(self, uint64_t location) except -1
    cdef int _perhaps_ready(self, Group group, uint64_t since) except -1
    cdef Group _out_of(self, uint64_t location)
    cdef int _drop_group(self, Group group) except -1
    cdef bint _may_go(self, Group group) except -1
    cdef uint64_t _end_location(self) except? 0
    @cython.locals(requeued=Py_ssize_t)
    cdef uint64_t _cursor_location(self) except? 0
    @cython.locals(location=uint64_t, segment=Segment)
    cdef int _pass_over(self, Group group) except -1
    @cython.locals(location=uint64_t, segment=Segment, at=Py_ssize_t)
    cdef bint _peek_group(self, Message message, Group group) except -1
    cdef int _take_waiting(self, Group group) except -1
    cdef int _forget(self, Group group) except -1
    @cython.locals(count=uint64_t, recovered=Recovered)
    cdef tuple _counts_of(self, Segment segment, uint64_t location)
    cdef bytes _key_of(self, Message message)
    @cython.locals(segment=Segment, recovered=Recovered)
    cdef Segment _segment_of(self, uint64_t location, bint can_wait)
    cdef bint _is_idle(self, Segment segment) except -1
    cdef int _pass(self, Segment segment) except -1
    @cython.locals(group=Group, segment=Segment)
    cpdef bint pick(self, uint64_t location) except -1
    @cython.locals(key=bytes)
    cpdef int unpick(self, uint64_t location) except -1
    cdef int _wait_again(self, uint64_t location, Group group, int failed) except -1
    @cython.locals(segment=Segment, counts=DeliveryCounts)
    cdef int _put_back(self, uint64_t location, Group group, int failed) except -1
    @cython.locals(segment=Segment, key=bytes, group=Group, was_open=bint)
    cdef Group _waits_in(self, uint64_t location)
    @cython.locals(segment=Segment)
    cdef _close_again(self)
    @cython.locals(segment=Segment)
    cdef bytes _key_at(self, uint64_t location)
    cdef bytes _key_in(self, Segment segment, uint64_t location)
    @cython.locals(group=Group, location=uint64_t)
    cpdef Py_ssize_t purge(self) except -1
    @cython.locals(group=Group)
    cpdef passed_over(self)
    cpdef bint is_passed_over(self, uint64_t location) except -1
    @cython.locals(oldest=uint64_t, waiting=uint64_t)
    cpdef uint64_t oldest_ready_ms(self) except? 0
    @cython.locals(group=Group, location=uint64_t, segment=Segment, at=Py_ssize_t)
    cpdef uint64_t longest_wait_ms(self) except? 0
    @cython.locals(group=Group, deepest=Group)
    cpdef tuple deepest(self)
