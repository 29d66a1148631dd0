from libc.stdint cimport uint64_t
from gomq_py.net.buffers cimport HubBuffers
from gomq_py.net.output cimport Output

cdef class Stream:
    cdef readonly HubBuffers buffers
    cdef readonly Output output
    cdef readonly uint64_t received_octets
    cdef object socket, receive_into, pending, watcher, lane, handler, room, ended, after_poll
    cdef bytes tail
    cdef int pauses
    cdef bint rewalk
