cimport cython
from libc.stdint cimport uint64_t
from gomq_py cimport octets
from gomq_py.broker.queues.queue cimport Queue
from gomq_py.broker.routing.route cimport Destination
from gomq_py.broker.transfer cimport engine as _engine
from gomq_py.broker.transfer.engine cimport Source, Target, Transfer
from gomq_py.content cimport forms
from gomq_py.content.properties cimport PropertyEdit
from gomq_py.hub.scheduler cimport Scheduler
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

cdef class DeadMessage:
    cdef readonly Queue queue
    cdef readonly object settings
    cdef readonly str reason
    cdef readonly uint64_t location
    cdef readonly Message copy
    cdef readonly list pending

@cython.locals(dead=DeadMessage)
cdef DeadMessage dead_message(Queue queue, settings, str reason, uint64_t location, Message copy,
        list pending)

cdef class DeadLetters:
    cdef readonly object counts
    cdef object _scheduler
    cdef FreshDeadLetters _fresh
    cdef WaitingDeadLetters _waiting
    cdef Transfer _going, _trying
    cdef dict _leaving
    cdef bint _closed
    cpdef send(self, Queue queue, uint64_t location, str reason)
    cdef _add(self, DeadMessage dead)
    cdef bint read(self, Queue queue, uint64_t location, Message message) except -1
    @cython.locals(queue=Queue)
    cdef gone(self, DeadMessage dead)
    cdef send_again(self, list items)

cdef class DeadLetterSource(Source):
    cdef DeadLetters _all
    @cython.locals(dead=DeadMessage)
    cpdef bint show(self, item, Message message) except -1
    @cython.locals(dead=DeadMessage)
    cpdef drop(self, item)
    cpdef keep(self, list items, error)
    @cython.locals(dead=DeadMessage)
    cpdef fail(self, item, error)
    @cython.locals(dead=DeadMessage)
    cpdef set_aside(self, item, error, bint was_sent)

cdef class FreshDeadLetters(DeadLetterSource):
    cdef WaitingDeadLetters _waiting
    cdef list _dead
    cdef Py_ssize_t _first, _again
    cpdef take(self, Message message)
    cdef add(self, DeadMessage dead)
    @cython.locals(dead=DeadMessage, at=Py_ssize_t)
    cdef put_back(self, list items)
    @cython.locals(dead=DeadMessage)
    cpdef bint show(self, item, Message message) except -1

cdef class WaitingDeadLetters(DeadLetterSource):
    cdef public Transfer transfer
    cdef dict _lanes
    cdef object _round
    cdef make_wait(self, DeadMessage dead, pending)
    @cython.locals(lane=Lane)
    cdef bint joins_lane(self, DeadMessage dead) except -1
    @cython.locals(lane=Lane)
    cpdef take(self, Message message)
    @cython.locals(lane=Lane)
    cpdef int no_room(self, item, pending) except -1

cdef class Lane:
    cdef Queue _queue
    cdef object _settings
    cdef str _reason
    cdef readonly object locations
    cdef Py_ssize_t _first
    cdef list _pending
    cdef DeadMessage take(self)
    cdef put_back(self, pending)

cdef class DeadLetterExchanges(Target):
    cdef object _vhosts, _counts
    cdef Scheduler _scheduler
    cdef _engine.CopyRoom _room
    cdef dict _routes
    cdef DeadLetterRoute _route
    cdef Message _copy
    @cython.locals(dead=DeadMessage)
    cpdef send(self, item, Message message)
    @cython.locals(route=DeadLetterRoute)
    cpdef slice_over(self)
    @cython.locals(route=DeadLetterRoute, address=Address, copy=Message, destination=Destination)
    cdef _publish(self, DeadMessage dead, Message message)
    @cython.locals(address=Address, routing=bytes, properties=bytes)
    cdef Address _address_of(self, DeadLetterRoute route, Message message)
    @cython.locals(route=DeadLetterRoute)
    cdef DeadLetterRoute _route_of(self, DeadMessage dead)

cdef class DeadLetterRoute:
    cdef readonly Queue queue
    cdef readonly object settings, exchange
    cdef readonly str reason
    cdef readonly bytes exchange_name
    cdef public Py_ssize_t count, published
    cdef readonly dict first_deaths, addresses
    cdef public Address address
    cdef object _vhost
    cdef dict _by_keys
    cdef tuple by_keys(self, Death death)
    cdef tuple by_headers(self, Death death)
    cdef tuple _without_cycles(self, tuple found, Death death, headers)
    cdef note(self, counts)
