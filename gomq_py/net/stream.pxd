cimport cython
from libc.stdint cimport uint64_t
from gomq_py.hub.buffers cimport HubBuffers
from gomq_py.net cimport receiving
from gomq_py.net.output cimport Output

cdef class Hold:
    cdef Stream stream
    cdef readonly object waits_for
    cpdef release(self)

cdef class Lane:
    cpdef Py_ssize_t process(self, Py_ssize_t start, Py_ssize_t end, uint64_t now_ms) except -1
    cpdef finish(self)

cdef class Stream:
    cdef readonly HubBuffers buffers
    cdef readonly Output output
    cdef readonly uint64_t received_octets
    cdef object socket, receive_into, receive_parts, pending, watcher, handler, over, after_poll
    cdef readonly object error
    cdef bytes tail
    cdef dict holds
    cdef Lane lane
    cdef bint rewalk, together, is_over
    cdef object direct
    cdef Py_ssize_t direct_octets
    cdef object coalescer
    cdef Py_ssize_t least_octets, small_reads, small_octets
    cdef uint64_t flood_sent_octets
    cdef double flood_began, after_s
    cdef unsigned long long full_read
    cdef bint reads_more, goes_by_clock, lacks_room

    cpdef let_go(self, Hold hold)
    @cython.locals(count=Py_ssize_t)
    cdef int _read_and_look(self) except -1
    @cython.locals(count=Py_ssize_t, tail=bytes, buffers=HubBuffers, is_long=bint, is_first=bint)
    cdef Py_ssize_t _read(self) except -1
    @cython.locals(count=Py_ssize_t, here=Py_ssize_t)
    cdef Py_ssize_t _read_direct(self) except -1
    @cython.locals(count=Py_ssize_t)
    cdef Py_ssize_t _receive(self, room, receive=*) except -1
    @cython.locals(output=Output, position=Py_ssize_t, now_s=double, now_ms=uint64_t, lane=Lane)
    cdef int _walk(self, Py_ssize_t start, Py_ssize_t end, bytes tail) except -1
    cdef _keep_tail(self, Py_ssize_t position, Py_ssize_t end)
    cdef int _was_full(self) except -1
    cdef _read_again(self, double after_s=*)
    cdef int _look_for_flood(self) except -1
    cdef bint _can_wait(self) except -1
