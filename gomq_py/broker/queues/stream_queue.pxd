cimport cython
from libc.stdint cimport uint64_t

from gomq_py.broker.queues cimport consumers as _consumers
from gomq_py.broker.queues cimport queue
from gomq_py.broker.queues.consumers cimport Consumer
from gomq_py.broker.queues.stream_reader cimport StreamReader
from gomq_py.storage.stores.stream_store cimport StreamStore

cdef int OFFSET_BITS
cdef Py_ssize_t READERS

cdef class StreamQueue(queue.Queue):
    cdef readonly StreamStore stream
    cdef readonly object retention, pace
    cdef list _readers, _moved, _free_slots
    cdef Py_ssize_t _unacked

    cpdef StreamReader open_reader(self, start, tag=*, wanted=*, bint is_counted=*)
    cpdef close_reader(self, StreamReader reader)
    cpdef int note_delivered(self) except -1
    cpdef ack(self, uint64_t location)
    cpdef requeue(self, uint64_t location)
    cpdef reject(self, uint64_t location, bint requeue)
    @cython.locals(reader=StreamReader)
    cdef _give_back(self, uint64_t location, bint is_done)
    @cython.locals(reader=StreamReader)
    cdef _store_positions(self)
    cdef _free(self, StreamReader reader)
    cpdef check_exclusive(self, bint exclusive)
    @cython.locals(was_ready=bint)
    cpdef offer(self, Consumer consumer)
    cpdef bint is_outrun(self) except -1
    cdef Py_ssize_t waiting(self) except -1
    @cython.locals(octets=Py_ssize_t, rivals=Py_ssize_t, taken=Py_ssize_t, more=bint, consumer=Consumer)
    cdef Py_ssize_t _deliver(self) except -1
