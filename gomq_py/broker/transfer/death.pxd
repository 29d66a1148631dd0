cimport cython
from gomq_py cimport octets
from gomq_py.broker.header_edit cimport PropertyEdit
from gomq_py.broker.transfer cimport engine as _engine
from gomq_py.content cimport forms
from gomq_py.storage.message cimport Message

cdef class Death:
    cdef readonly bytes properties
    cdef readonly list keys
    cdef PropertyEdit _edit
    cdef list _deaths
    cdef str _reason
    cpdef bint has_come_round(self, str queue) except -1

cdef class Address:
    cdef readonly Death death
    cdef readonly bytes key
    cdef readonly tuple destinations
    cdef readonly bytes head
    cdef readonly Py_ssize_t head_length, routing_length
    cdef bytes _before
    cdef Py_ssize_t _before_length, _routing_before
    cdef bint is_of(self, Message message) except -1
    @cython.locals(length=Py_ssize_t)
    cdef bint copy(self, Message message, Message copy, _engine.CopyRoom room) except -1

cdef bytes concatenated(bytes headers, bytes more)
