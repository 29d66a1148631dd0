from libc.stdint cimport uint64_t
from gomq_py.net cimport receiving
from gomq_py.hub.buffers cimport HubBuffers
cimport cython

cdef Py_ssize_t SEND_OCTETS

cdef class Output:
    cdef readonly HubBuffers buffers
    cdef readonly uint64_t sent_octets
    cdef readonly bint blocked, broken, takes_sources
    cdef readonly object error
    cdef public object account
    cdef public object on_drained, on_overflow, on_broken
    cdef public Py_ssize_t limit
    cdef Py_ssize_t allowance
    cdef uint64_t taken_whole
    cdef bint corked, overflowed
    cdef object send, watcher, fileno
    cdef readonly int descriptor
    cdef bytearray pending, ahead
    cdef list waiters
    cdef object source
    cpdef write(self, data)
    cpdef write_large(self, data)
    cpdef Py_ssize_t pending_octets(self) except -1
    cpdef cork(self)
    cpdef uncork(self)
    cpdef Py_ssize_t room_to_fill(self) except -1
    cpdef send_filled(self, Py_ssize_t count)
    cpdef write_source(self, source)
    cdef _send_pending(self)
    @cython.locals(sent=Py_ssize_t)
    cdef _send_kept(self, bytearray kept)
    cdef _send_source(self)
    cdef _drop_source(self)
    cdef Py_ssize_t _send_first(self, data) except -1
    @cython.locals(sent=Py_ssize_t)
    cdef Py_ssize_t _send(self, view) except -1
    cdef _over_limit(self)
    cdef _watch(self)
    cpdef call_when_drained(self, callback)
