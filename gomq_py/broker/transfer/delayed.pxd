cimport cython
from libc.stdint cimport uint64_t
from gomq_py cimport octets
from gomq_py.broker.queues.due_timer cimport DueTimer
from gomq_py.broker.routing cimport route as _routes
from gomq_py.broker.routing.route cimport Destination, RememberedRoutes, Route
from gomq_py.broker.transfer cimport engine as _engine
from gomq_py.content cimport forms, properties
from gomq_py.content.properties cimport PropertyScan
from gomq_py.hub.scheduler cimport Scheduler
from gomq_py.storage.message cimport Message
from gomq_py.storage.stores.store cimport Store

cdef unsigned char BASIC, SCHEDULED

cdef bint has_schedule(Message message) except -1

cdef class DelayQueue(_routes.Destination):
    cdef readonly Store store
    cdef readonly bint closed
    cdef readonly object aside, timers
    cdef public object due_ms_of, release, on_failed, may_write
    cdef readonly object schedules
    cdef public RememberedRoutes routes
    cdef readonly Scheduler scheduler
    cdef readonly DueTimer due
    cdef object _complained_ms
    cdef _engine.Transfer _transfer
    cdef Message _message
    cdef object _waiting, _when_safe
    @cython.locals(due_ms="long long")
    cpdef int publish(self, Message message) except -1
    @cython.locals(expires_at_ms=uint64_t)
    cdef int _store(self, Message message, uint64_t due_ms) except -1
    @cython.locals(copy=Message)
    cdef int _publish_schedule(self, Message message) except -1
    @cython.locals(p=cython.p_uchar, at=Py_ssize_t)
    cdef long long _scanned_due_ms(self, Message message) except? -1
    cpdef next_store(self)
    cpdef bint outlives_kill(self) except -1
    @cython.locals(message=Message)
    cpdef bint take_newest(self) except -1
    cpdef arm(self)
    cdef wait_again(self, uint64_t location)
    cdef put_back(self, uint64_t location, uint64_t due_ms)
    cdef bint is_scheduled(self, location) except -1

cdef class DueMessages(_engine.Source):
    cdef readonly dict pending
    cdef DelayQueue _queue
    cpdef take(self, Message message)
    cpdef bint show(self, item, Message message) except -1
    @cython.locals(queue=DelayQueue)
    cpdef drop(self, item)

cdef class ReleasedMessages(_engine.Target):
    cdef DelayQueue _queue
    cdef dict _pending
    cdef PropertyScan _scan
    cdef Message _copy
    cdef _engine.CopyRoom _room
    @cython.locals(queue=DelayQueue, route=Route, destination=Destination)
    cpdef send(self, item, Message message)
    cpdef slice_over(self)
    cdef Route _route(self, RememberedRoutes routes, Message message)
    @cython.locals(p=cython.p_uchar, target=cython.p_uchar, scan=PropertyScan, copy=Message,
        start=Py_ssize_t, end=Py_ssize_t, to=Py_ssize_t, entries=Py_ssize_t,
        rest=Py_ssize_t, table=Py_ssize_t)
    cdef bint _fill(self, Message message) except -1
