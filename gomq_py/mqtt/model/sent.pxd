cimport cython
from libc.stdint cimport uint64_t
from gomq_py cimport octets
from gomq_py.broker.queues.queue cimport Queue
from gomq_py.mqtt.model.qos2_records cimport QoS2Records
from gomq_py.storage.format cimport record
from gomq_py.storage.message cimport Message

cdef int ROW, FIRST_ROWS, KEPT_ROWS, FREE, QOS_1, QOS_2, RELEASED, FROM_BEFORE
cdef uint64_t LOW_OCTETS, SETTLED_MS
cdef int NOTHING, RELEASE, UNKNOWN, WRONG, PUBACK, PUBREC, PUBCOMP
cdef Py_ssize_t IDENTIFIER_MAX, AT_ONCE, MOVED_AT_ONCE

@cython.final
cdef class Sent:
    cdef readonly Queue queue
    cdef readonly Py_ssize_t window, count, used
    cdef readonly list to_release
    cdef readonly QoS2Records records
    cdef readonly uint64_t key
    cdef object rows
    cdef unsigned char* at
    cdef Py_ssize_t capacity, next_before
    cdef unsigned int first_free, last_free
    cdef readonly list before
    cdef object places
    cdef bint is_connected
    cdef public bint doubts
    cdef readonly bint awaits_one
    cdef Py_ssize_t next_out
    cdef public object returning
    cpdef list begin(self, Py_ssize_t window)
    @cython.locals(identifier=Py_ssize_t, row=Py_ssize_t, state=int)
    cpdef end(self)
    @cython.locals(left=Py_ssize_t, row=Py_ssize_t)
    cpdef bint put_back_some(self) except -1
    @cython.locals(place=Py_ssize_t)
    cpdef bint spare(self, Message message) except -1
    @cython.locals(identifier=Py_ssize_t, row=Py_ssize_t, state=int)
    cpdef moved_to(self, Queue queue)
    @cython.locals(identifier=Py_ssize_t, row=Py_ssize_t)
    cpdef restore(self, list entries)
    @cython.locals(identifier=Py_ssize_t)
    cpdef close(self)
    @cython.locals(identifier=Py_ssize_t, row=Py_ssize_t)
    cpdef dict begun(self)
    @cython.locals(left=Py_ssize_t, identifier=Py_ssize_t, row=Py_ssize_t, kept_at=uint64_t)
    cpdef Py_ssize_t move(self, Py_ssize_t oldest, Py_ssize_t first) except -1
    @cython.locals(identifier=Py_ssize_t, row=Py_ssize_t, state=int, stored_ms=uint64_t)
    cpdef keep_in(self, QoS2Records records)
    cpdef Py_ssize_t room(self) except -1
    @cython.locals(identifier=cython.uint, row=Py_ssize_t, kept_at=uint64_t)
    cpdef unsigned int add(self, uint64_t location, uint64_t timestamp_ms, int qos) except? 0
    @cython.locals(identifier=Py_ssize_t, row=Py_ssize_t)
    cpdef bint must_release(self) except -1
    @cython.locals(place=uint64_t, identifier=cython.uint, row=Py_ssize_t)
    cpdef unsigned int known(self, uint64_t location, uint64_t timestamp_ms) except? 0
    cpdef bint is_owed(self, Message message) except -1
    cdef _put_back(self)
    cdef _list_before(self)
    @cython.locals(identifier=Py_ssize_t, row=Py_ssize_t, state=int, place=uint64_t, before=uint64_t,
        is_in_order=bint)
    cdef list _found(self, bint is_released)
    @cython.locals(location=uint64_t, place=Py_ssize_t, row=Py_ssize_t)
    cdef Py_ssize_t _place_of(self, Message message) except -2
    @cython.locals(stored_ms=uint64_t)
    cdef bint _is_same(self, Py_ssize_t row, uint64_t timestamp_ms) except -1
    @cython.locals(row=Py_ssize_t)
    cpdef again(self, unsigned int identifier)
    cpdef int qos_of(self, unsigned int identifier) except -1
    cpdef nothing_left(self)
    cpdef drop(self, unsigned int identifier)
    cpdef list take_to_release(self)
    @cython.locals(row=Py_ssize_t, state=int)
    cpdef int acknowledged(self, int kind, unsigned int identifier) except -1
    @cython.locals(row=Py_ssize_t, state=int)
    cpdef int refused(self, unsigned int identifier) except -1
    cdef uint64_t _stored_ms(self, Py_ssize_t row) except? 0
    @cython.locals(row=Py_ssize_t)
    cdef _gone(self, unsigned int identifier)
    @cython.locals(row=Py_ssize_t, kept_at=uint64_t)
    cdef _free(self, unsigned int identifier, bint has_ended=*)
    cdef _chain(self, unsigned int identifier)
    @cython.locals(before=Py_ssize_t, capacity=Py_ssize_t, rows=bytearray)
    cdef _grow(self, Py_ssize_t least)
