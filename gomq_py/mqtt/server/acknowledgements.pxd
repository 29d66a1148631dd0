cimport cython
from gomq_py cimport octets
from gomq_py.mqtt.wire cimport frames

cdef Py_ssize_t ANSWER_MAX, ROOM, ROOM_KEPT

@cython.final
cdef class Acknowledgements:
    cdef int version
    cdef readonly Py_ssize_t used
    cdef Py_ssize_t room
    cdef bytearray answers
    cdef unsigned char* at
    cpdef int add(
        self, unsigned int kind, unsigned int packet_identifier, unsigned int reason_code) except -1
    cpdef bytes take(self)
    @cython.locals(answers=bytearray)
    cdef int _make_room(self, Py_ssize_t room) except -1
