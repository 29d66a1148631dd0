cimport cython
from libc.stdint cimport uint64_t
from gomq_py cimport octets
from gomq_py.broker.routing.route cimport Destination
from gomq_py.hub cimport scheduler as _scheduler
from gomq_py.hub.scheduler cimport Scheduler
from gomq_py.storage.format cimport record as record_format
from gomq_py.storage.message cimport Message
from gomq_py.storage.stores.message_store cimport MessageStore
from gomq_py.storage.stores.store cimport Store

cdef int KIND, SENT, RECEIVED, SURE, PARTLY, DOUBT, TRUST, SEGMENTS
cdef int IS_SURE, BEGUN, MAY_BE_LOST
cdef Py_ssize_t RECORD_OCTETS, PLACE_OCTETS, PLACES

cdef class QoS2Records(_scheduler.TurnTaker):
    cdef readonly object vhost
    cdef Scheduler scheduler
    cdef readonly MessageStore store
    cdef readonly uint64_t last_received, sure_mark
    cdef public uint64_t sure_at, trust_at, doubt_at
    cdef readonly bint failed
    cdef public bint is_stuck
    cdef readonly bint doubts
    cdef list waiting
    cdef Message message, shown
    cdef bytearray record
    cdef unsigned char* at
    cdef Py_ssize_t segment, places_length
    cdef uint64_t came_ms
    cdef public object moving
    cdef readonly dict outdated
    cdef list old_copies
    cdef readonly tuple together
    cdef object __weakref__
    @cython.locals(kept_at=uint64_t)
    cpdef uint64_t sent(
        self, uint64_t key, unsigned int identifier, uint64_t location, uint64_t stored_ms) except? 0
    cpdef uint64_t begun(
        self, uint64_t key, unsigned int identifier, tuple destinations, Message message, bytes had
    ) except? 0
    @cython.locals(now=uint64_t)
    cpdef uint64_t received(
        self, uint64_t kept_at, uint64_t key, unsigned int identifier, tuple destinations) except? 0
    cpdef bytes places(self, tuple destinations, Message message)
    @cython.locals(end=Py_ssize_t, destination=Destination)
    cpdef bytes places_of(self, tuple left)
    cpdef uint64_t partly(self, uint64_t key, unsigned int identifier, tuple had, bytes places) except? 0
    cpdef uint64_t whole(self, uint64_t key, unsigned int identifier) except? 0
    @cython.locals(kept_at=uint64_t, state=int)
    cpdef uint64_t received_before(
        self, uint64_t key, unsigned int identifier, bint is_sure, bytes places) except? 0
    @cython.locals(
        at=cython.p_uchar, place=Py_ssize_t, room=Py_ssize_t, size=Py_ssize_t, destination=Destination,
        store=Store)
    cdef _note_places(self, tuple destinations, Message message, bytes had)
    @cython.locals(before=uint64_t)
    cdef _delete_outdated(self, uint64_t kept_at)
    cdef bint _opened(self) except -1
    cpdef await_flush(self)
    @cython.locals(kept_at=uint64_t, before=uint64_t)
    cpdef sure(self, uint64_t mark)
    cpdef done(self, uint64_t kept_at, bint has_ended=*)
    @cython.locals(shown=Message, place=Py_ssize_t, kind=int, state=int, now=uint64_t,
                   identifier=cython.uint, key=uint64_t)
    cpdef uint64_t again(self, uint64_t kept_at) except? 0
    cpdef write_out(self)
    @cython.locals(at=cython.p_uchar, place=Py_ssize_t, message=Message, kept_at=uint64_t)
    cdef uint64_t _keep(
        self, int kind, int state, unsigned int identifier, uint64_t key, uint64_t location,
        uint64_t number) except? 0
    cdef uint64_t _keep_partly(
        self, int state, unsigned int identifier, uint64_t key, bytes places) except? 0
    cdef _use(self, bytearray record)
    cdef _delete(self, uint64_t kept_at)

@cython.locals(destination=Destination)
cdef bint _would_outlive_kill(tuple destinations) except -1
