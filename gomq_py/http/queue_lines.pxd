cimport cython
from libc.stdint cimport uint64_t

from gomq_py cimport octets
from gomq_py.broker.queues.consumers cimport Consumer, ConsumerRing
from gomq_py.broker.queues.queue cimport Queue
from gomq_py.broker.queues.stream_queue cimport StreamQueue
from gomq_py.http.look cimport Look

cdef Py_ssize_t _FACTS, _RATES, _FIGURES, _COUNTED_AT, _COUNTED_OCTETS, _RECORD, _ROOM, PART_QUEUES
cdef Py_ssize_t OBJECTS_OCTETS
cdef int _IDLE, _BUSY, _WHOLE
cdef double LEAST_WINDOW_S
cdef list _templates

cdef class Template:
    cdef readonly bytes text, slots, counts
    cdef readonly Py_ssize_t slot_count, count_count, least, room

cdef class Part:
    cdef Py_ssize_t _length, _count
    cdef bint _is_first
    cdef bytes _figures, _kinds
    cdef list _texts
    cdef bytearray _out
    @cython.locals(out=bytearray, target="unsigned char*", figures="unsigned char*", kinds="unsigned char*",
        at=Py_ssize_t, place=Py_ssize_t, text=bytes)
    cpdef written(self)

cdef class QueueLines:
    cdef readonly list parts
    cdef readonly Py_ssize_t count
    cdef object _rates, _looks, _vhosts, _there
    cdef dict _queues
    cdef list _texts, _listed
    cdef bytearray _out, _figures, _kinds, _moving
    cdef unsigned char* _kinds_at
    cdef unsigned char* _figures_at
    cdef Py_ssize_t _length, _part_octets, _from_objects, _listed_at

    @cython.locals(row=Queue, queue=Queue, now_s=double, done=Py_ssize_t)
    cpdef Py_ssize_t write(self, list rows) except -1
    cdef int _enter(self, str vhost) except -1
    cdef Queue _now(self, Queue row)
    cdef bytes _from_object(self, dict shape)
    cdef int _add(self, bytes text, int kind) except -1
    @cython.locals(count=Py_ssize_t)
    cdef int _hand_over(self) except -1
    @cython.locals(ring=ConsumerRing, consumers=Py_ssize_t, figures="unsigned char*", look=Look, head=bytes,
        at=Py_ssize_t, kind=int)
    cdef bint _take(self, Queue queue, double now_s) except -1
    @cython.locals(look=Look)
    cdef Look _look(self, Queue queue)
    @cython.locals(at=Py_ssize_t)
    cdef int _list(self, Look look) except -1
    @cython.locals(moving="unsigned char*", end=Py_ssize_t)
    cdef int _add_moving(
        self, bytes head, Template template, unsigned char* figures, Py_ssize_t at, object rates) except -1
    cdef Look _looked_at(self, Queue queue, Py_ssize_t at)
    @cython.locals(ready=uint64_t, unacked=uint64_t, ready_bytes=uint64_t, unacked_bytes=uint64_t,
        no_ack=uint64_t)
    cdef int _read(
        self, Queue queue, Py_ssize_t consumers, unsigned char* figures, Py_ssize_t at) except -1

@cython.locals(written=QueueLines, done=Py_ssize_t, place=Py_ssize_t)
cpdef tuple lines(list rows, places)
@cython.locals(consumer=Consumer)
cdef bint _is_exclusive(list consumers) except -1
cdef void _put(unsigned char* figures, Py_ssize_t at, Py_ssize_t number, uint64_t value) noexcept
@cython.locals(length=Py_ssize_t, counts="unsigned char*", count=Py_ssize_t)
cdef Py_ssize_t _filled_length(Template template, const unsigned char* figures, Py_ssize_t at) except -1
@cython.locals(text="unsigned char*", slots="unsigned char*", text_at=Py_ssize_t, slot=Py_ssize_t,
    length=Py_ssize_t, number=Py_ssize_t, rate=bytes)
cdef Py_ssize_t _fill(
    unsigned char* out, Py_ssize_t at, Template template, const unsigned char* figures, Py_ssize_t figures_at,
    object rates) except -1
cdef Py_ssize_t _digits(uint64_t number) noexcept
@cython.locals(digits=Py_ssize_t, end=Py_ssize_t)
cdef Py_ssize_t _write_decimal(unsigned char* out, Py_ssize_t at, uint64_t number) noexcept
