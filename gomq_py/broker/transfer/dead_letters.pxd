cimport cython
from libc.stdint cimport uint64_t
from gomq_py.broker.destination cimport Destination
from gomq_py.broker.queues.queue cimport Queue
from gomq_py.broker.transfer.death cimport Death
from gomq_py.storage.message cimport Message

cdef class DeadLetters:
    cdef readonly object counts
    cdef object _vhosts, _committer, _scheduler, _letters
    cdef list _moved
    cdef dict _leaving, _ways
    cdef Way _way
    cdef bint _running, _closed
    cdef object _timers, _timer, _again
    cdef dict _held
    cdef Message _copy
    cpdef send(self, Queue queue, uint64_t location, str reason)
    cdef _add(self, tuple letter)
    @cython.locals(queue=Queue, message=Message, location=uint64_t)
    cpdef bint _slice(self) except -1
    cdef bint _read(self, Queue queue, uint64_t location, Message message) except -1
    @cython.locals(queue=Queue, location=uint64_t)
    cpdef _drop(self, list moved, error)
    @cython.locals(way=Way, address=Address, copy=Message, destination=Destination, routing=bytes, properties=bytes)
    cdef _publish(self, Queue queue, settings, str reason, Message message, owed)
    cdef _pass_on(self, Queue queue, settings, str reason, uint64_t location, Message message, owed)
    cdef _set_aside(self, Queue queue, uint64_t location, copy, error)
    cdef _gone(self, Queue queue, list leaving)
    @cython.locals(way=Way)
    cdef _end_slice(self, list leaving)
    cdef bint _is_behind_others(self, Queue queue, settings, str reason, uint64_t location) except -1
    @cython.locals(way=Way)
    cdef Way _way_of(self, Queue queue, settings, str reason)
    cdef _drop_moved(self)

cdef class Way:
    cdef readonly Queue queue
    cdef readonly object settings, exchange
    cdef readonly str reason
    cdef readonly bytes exchange_name
    cdef public Py_ssize_t count, published
    cdef readonly dict first_deaths, addresses
    cdef object _vhost
    cdef dict _routes
    cdef routes(self, Death letter)
    cdef routes_anew(self, Death letter)
    cdef note(self, counts)

cdef class Address:
    cdef readonly Death letter
    cdef readonly bytes key
    cdef readonly list destinations
    cdef list reached_by(self, destinations)
