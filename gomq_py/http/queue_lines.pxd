cimport cython
from libc.stdint cimport uint64_t

from gomq_py cimport octets
from gomq_py.broker.queues.consumers cimport Consumer, ConsumerRing
from gomq_py.broker.queues.queue cimport Queue
from gomq_py.http.look cimport Look

cdef Py_ssize_t _FACTS, _RATES, _FIGURES, _COUNTED_AT, _COUNTED_OCTETS, ROOM
cdef double LEAST_WINDOW_S

cdef class Template:
    cdef readonly bytes text, slots
    cdef readonly Py_ssize_t slot_count, room

cdef class QueueLines:
    cdef readonly list parts
    cdef readonly Py_ssize_t count
    cdef object _rates, _looks, _vhosts
    cdef Template _idle, _busy
    cdef bytearray _out, _figures
    cdef Py_ssize_t _at, _part_octets

    @cython.locals(row=Queue, queue=Queue, now_s=double)
    cpdef write(self, list rows)
    cdef int _write_object(self, bytes element) except -1
    cdef int _hand_over(self) except -1
    @cython.locals(ring=ConsumerRing, consumers=Py_ssize_t, figures="unsigned char*", look=Look, head=bytes,
        template=Template)
    cdef bint _write_plain(self, Queue queue, double now_s) except -1
    cdef Look _looked_at(self, Queue queue)
    @cython.locals(ready=uint64_t, unacked=uint64_t, ready_bytes=uint64_t, unacked_bytes=uint64_t,
        no_ack=uint64_t)
    cdef int _read(self, Queue queue, Py_ssize_t consumers, unsigned char* figures) except -1

@cython.locals(consumer=Consumer)
cdef bint _is_exclusive(list consumers) except -1
cdef void _put(unsigned char* figures, Py_ssize_t number, uint64_t value) noexcept
@cython.locals(text_at=Py_ssize_t, slot=Py_ssize_t, length=Py_ssize_t, number=Py_ssize_t, rate=bytes)
cdef Py_ssize_t _fill(
    unsigned char* out, Py_ssize_t at, const unsigned char* text, const unsigned char* slots,
    Py_ssize_t slot_count, const unsigned char* figures, object rates) except -1
@cython.locals(digits=Py_ssize_t, rest=uint64_t, end=Py_ssize_t)
cdef Py_ssize_t _write_decimal(unsigned char* out, Py_ssize_t at, uint64_t number) noexcept
