from gomq_py.hub cimport scheduler as _scheduler
from gomq_py.storage.message cimport Message

cdef class Destination(_scheduler.TurnTaker):
    cdef public bint durable, unable, failed
    cpdef int publish(self, Message message) except -1
    cpdef next_store(self)
    cpdef bint outlives_kill(self) except -1
    cpdef bint is_outrun(self) except -1
