cimport cython
from gomq_py.broker.header_edit cimport PropertyEdit
from gomq_py.storage.message cimport Message

cdef class DeadLetters:
    cdef readonly object counts
    cdef object _vhosts, _committer, _scheduler, _letters
    cdef list _moved
    cdef dict _first_deaths, _routes
    cdef bint _running
    cdef Message _copy
    @cython.locals(message=Message, copy=Message)
    cpdef bint _slice(self) except -1
    @cython.locals(letter=Letter, copy=Message)
    cdef _publish(self, queue, Message message, str reason)
    cdef _destinations(self, vhost, exchange, Letter letter)
    cdef _drop_moved(self)

cdef class Letter:
    cdef readonly bytes properties
    cdef readonly list keys
    cdef PropertyEdit _edit
    cdef list _deaths
    cdef str _reason
    cpdef bint has_come_round(self, str queue) except -1

cdef bytes joined(bytes headers, bytes more)
