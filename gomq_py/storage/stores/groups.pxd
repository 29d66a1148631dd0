cimport cython
from libc.stdint cimport uint32_t, uint64_t

from gomq_py.storage.format cimport record

cdef Py_ssize_t FIRST_SLOTS, LARGE_SLOTS, SERVED_MAX

cdef class Line

@cython.final
cdef class Group:
    cdef readonly bytes key
    cdef readonly Py_ssize_t id
    cdef readonly Line line
    cdef uint32_t head, tail, near
    cdef readonly Py_ssize_t place, count
    cdef public Py_ssize_t out, resting
    cdef public uint64_t since, number, returned

@cython.final
cdef class WaitingLists:
    cdef readonly Py_ssize_t count, group_count
    cdef dict _in_segments
    cdef Py_ssize_t _came_number, _came_count, _went_number, _went_count
    cdef list _heads
    cdef uint64_t[::1] _locations
    cdef uint32_t[::1] _next
    cdef Py_ssize_t _room, _used
    cdef uint32_t _free
    @cython.locals(count=Py_ssize_t)
    cpdef Py_ssize_t in_segment(self, Py_ssize_t number) except -1
    @cython.locals(location=uint64_t, key=bytes, group=Group)
    cpdef Group oldest(self, dict groups)
    cpdef uint64_t first(self, Group group) except? 0
    @cython.locals(slot=uint32_t)
    cpdef int push(self, Group group, uint64_t location) except -1
    @cython.locals(slot=uint32_t, location=uint64_t)
    cpdef uint64_t pop(self, Group group) except? 0
    @cython.locals(slot=uint32_t, before=uint32_t)
    cpdef int insert(self, Group group, uint64_t location) except -1
    @cython.locals(slot=uint32_t, before=uint32_t)
    cpdef bint remove(self, Group group, uint64_t location) except -1
    @cython.locals(slot=uint32_t)
    cpdef all(self, Group group)
    cdef int _count_removed(self, Group group, uint32_t slot) except -1
    @cython.locals(slot=uint32_t, before=uint32_t)
    cdef uint32_t _before(self, Group group, uint64_t location)
    @cython.locals(slot=uint32_t, number=Py_ssize_t)
    cdef uint32_t _slot(self, uint64_t location) except? 0
    cdef int _note_head(self, Group group, uint64_t location) except -1
    @cython.locals(number=Py_ssize_t)
    cdef int _give_back(self, uint32_t slot) except -1
    @cython.locals(left=Py_ssize_t)
    cdef int _count_in(self, Py_ssize_t number, Py_ssize_t count) except -1
    cdef int _begin(self) except -1
    @cython.locals(room=Py_ssize_t)
    cdef int _grow(self) except -1

@cython.final
cdef class Line:
    cdef readonly object taker
    cdef readonly Py_ssize_t bound, count
    cdef readonly bint is_due
    cdef list _ready
    cpdef Group first(self)
    cpdef int add(self, Group group) except -1
    cpdef int moved(self, Group group, bint is_earlier) except -1
    @cython.locals(at=Py_ssize_t, moved=Group)
    cpdef int remove(self, Group group) except -1
    @cython.locals(above=Group)
    cdef int _rise(self, Py_ssize_t at, Group group) except -1
    @cython.locals(end=Py_ssize_t, child=Py_ssize_t, below=Group)
    cdef int _sink(self, Py_ssize_t at, Group group) except -1

cpdef bint waits_longer(Group one, Group other) except -1

@cython.final
cdef class Lines:
    cdef readonly Line free, now
    cdef readonly object due
    cdef dict _bound
    cdef object _served
    cdef uint64_t _number
    cpdef int turn_to(self, object taker) except -1
    @cython.locals(free=Group, own=Group)
    cpdef Group first(self)
    @cython.locals(line=Line)
    cpdef bint offer(self, object taker) except -1
    cpdef bint note_due(self, Line line) except -1
    @cython.locals(line=Line)
    cpdef Line next_due(self)
    @cython.locals(line=Line, count=Py_ssize_t)
    cpdef Py_ssize_t bound_count(self) except -1
    cpdef Py_ssize_t served_count(self) except -1
    cpdef int bind(self, Group group) except -1
    @cython.locals(line=Line)
    cpdef int release(self, Group group) except -1
    @cython.locals(is_earlier=bint)
    cpdef int make_ready(self, Group group, uint64_t since) except -1
    cpdef int note(self, Line line) except -1
    cpdef int note_served(self, Group group, uint64_t since) except -1
    @cython.locals(number=uint64_t, group=Group, is_served=bint)
    cpdef Group next_forgotten(self, uint64_t at_cursor)
    cdef int _forget(self, Line line) except -1
    cdef int _move(self, Group group, Line line) except -1
