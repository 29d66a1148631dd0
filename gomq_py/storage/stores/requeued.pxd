cimport cython
from libc.stdint cimport uint32_t, uint64_t

from gomq_py.storage.format cimport record
from gomq_py.storage.segments cimport segment as _segment
from gomq_py.storage.segments.segment cimport Segment
from gomq_py.storage.stores.segment_log cimport SegmentLog

cdef class LocationHeap:
    cdef readonly Py_ssize_t count
    cdef uint64_t[::1] _items
    cdef Py_ssize_t _room
    cpdef uint64_t first(self)
    @cython.locals(at=Py_ssize_t)
    cpdef int push(self, uint64_t location) except -1
    @cython.locals(lowest=uint64_t)
    cpdef uint64_t pop(self) except? 0
    cpdef int remove(self, uint64_t location) except -1
    @cython.locals(at=Py_ssize_t, moved=uint64_t)
    cpdef bint discard(self, uint64_t location) except -1
    @cython.locals(at=Py_ssize_t, number=uint64_t, count=Py_ssize_t)
    cpdef dict by_segment(self)
    @cython.locals(parent=Py_ssize_t)
    cdef int _sift_up(self, Py_ssize_t at, uint64_t location) except -1
    @cython.locals(child=Py_ssize_t)
    cdef int _sift_down(self, Py_ssize_t at, uint64_t location) except -1
    @cython.locals(at=Py_ssize_t)
    cdef int _resize(self, Py_ssize_t room) except -1

cdef class DeliveryCounts:
    cdef readonly Py_ssize_t count
    cdef uint64_t[::1] _keys
    cdef uint64_t[::1] _values
    cdef Py_ssize_t _mask
    @cython.locals(at=Py_ssize_t)
    cpdef uint64_t get(self, uint64_t location)
    @cython.locals(at=Py_ssize_t)
    cpdef uint64_t get_entry(self, uint64_t location)
    @cython.locals(at=Py_ssize_t)
    cpdef int put(self, uint64_t location, uint64_t failed, uint64_t entry) except -1
    @cython.locals(at=Py_ssize_t, following=Py_ssize_t, home=Py_ssize_t)
    cpdef int discard(self, uint64_t location) except -1
    @cython.locals(at=Py_ssize_t, slot=Py_ssize_t, failed=uint64_t)
    cpdef int tally(self, tuple bounds, list counted) except -1
    cdef Py_ssize_t _home(self, uint64_t location)
    @cython.locals(at=Py_ssize_t)
    cdef Py_ssize_t _slot(self, uint64_t location)
    @cython.locals(slots=Py_ssize_t, at=Py_ssize_t, old=Py_ssize_t)
    cdef int _grow(self) except -1
    cdef int _allocate(self, Py_ssize_t slots) except -1

cdef class Requeued:
    cdef readonly LocationHeap heap
    cdef readonly DeliveryCounts counts, excused

    cdef int come_back(self, uint64_t location) except -1
    cdef int forget(self, uint64_t location) except -1
    @cython.locals(count=Py_ssize_t, entry=Py_ssize_t)
    cdef Py_ssize_t excuse(
        self, SegmentLog log, Segment segment, uint64_t location, Py_ssize_t more) except -1
    cdef int take(self, uint64_t location) except -1
    cdef bint take_early(self, uint64_t location) except -1
    cdef int redeliver(
        self, SegmentLog log, Segment segment, uint64_t location, Py_ssize_t failed, Py_ssize_t entry
    ) except -1
    @cython.locals(entry=Py_ssize_t)
    cdef int wait_until(
        self, SegmentLog log, Segment segment, uint64_t location, Py_ssize_t count, uint64_t due_s
    ) except -1
    @cython.locals(written=Py_ssize_t)
    cdef Py_ssize_t _write_count(
        self, SegmentLog log, Segment segment, uint64_t location, Py_ssize_t count, Py_ssize_t entry,
        Py_ssize_t due, unsigned int kind) except -1
    @cython.locals(heap=LocationHeap, whole=dict, counted=dict, others=list, location=uint64_t,
        segment=Segment, count=Py_ssize_t)
    cdef tuple empty(self, dict segments, write, bint keeps_counts)
