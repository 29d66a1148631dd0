from gomq_py.hub cimport turn_taker
from gomq_py.storage.message cimport Message

cdef class Destination(turn_taker.TurnTaker):
    cdef public bint durable, unable, failed
    cpdef int publish(self, Message message) except -1
