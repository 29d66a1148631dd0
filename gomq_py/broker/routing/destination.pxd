from gomq_py.hub cimport turn_taker
from gomq_py.storage.message cimport Message

cdef class Destination(turn_taker.TurnTaker):
    cdef public bint durable, unable, failed
    cpdef int publish(self, Message message) except -1
    cpdef next_store(self)
    cpdef bint outlives_kill(self) except -1
    cpdef bint is_outrun(self) except -1
