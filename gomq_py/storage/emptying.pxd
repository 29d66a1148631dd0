cimport cython
from libc.stdint cimport uint64_t

from gomq_py.storage cimport locations, picking
from gomq_py.storage.requeued cimport DeliveryCounts, LocationHeap
from gomq_py.storage.segment cimport Segment

cdef Py_ssize_t SMALLEST_RUN

cdef class EmptyingLog(picking.PickingLog):
    cdef bint _noted

    @cython.locals(segment=Segment, following=Segment)
    cpdef Py_ssize_t purge(self) except -1
    @cython.locals(requeued=LocationHeap, location=uint64_t)
    cdef int _purge_requeued(self) except -1
    cdef bint _is_only(self, Segment segment, Py_ssize_t count) except -1
    cdef int _forget_all(self, Segment segment) except -1
    @cython.locals(segment=Segment)
    cdef _purge_one(self, uint64_t location)
    @cython.locals(count=Py_ssize_t)
    cdef _purge_segment(self, Segment segment)
    @cython.locals(at=Py_ssize_t, size=Py_ssize_t)
    cdef int _purge_between_picks(self, Segment segment) except -1
    @cython.locals(segment=Segment)
    cpdef uint64_t resting_at(self) except? 0
    cpdef forgotten(self)
    @cython.locals(segment=Segment)
    cpdef give_segment_back(self)
    cdef int _note(self) except -1
    cdef int _finish(self, Segment segment) except -1
    cdef int _put_delivered(self, Segment segment) except -1
    cdef int _end_run(self) except -1
