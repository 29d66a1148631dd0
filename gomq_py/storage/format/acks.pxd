cimport cython
from libc.stdint cimport int64_t, uint32_t, uint64_t

from gomq_py cimport octets
from gomq_py.storage.format cimport record

# typed, and so without an attribute for Python: whoever needs them cimports
cdef unsigned int ACKED, RUN_START, RUN_END, REQUEUED, COUNT, DUE
cdef Py_ssize_t ENTRY_BYTES

@cython.locals(at=Py_ssize_t)
cdef int put_entry(unsigned char* p, Py_ssize_t index, uint32_t seed, uint32_t word) noexcept

@cython.locals(at=Py_ssize_t, word=uint32_t)
cdef uint32_t get_entry(const unsigned char* p, Py_ssize_t index, uint32_t seed) noexcept

cdef int put_mark(unsigned char* p, Py_ssize_t at, uint32_t seed, uint32_t position) noexcept

cdef class Acks:
    cdef readonly object runs
    cdef readonly dict counts, dues
    cdef readonly Py_ssize_t entries, holes

@cython.locals(index=Py_ssize_t, valid=Py_ssize_t, start=uint64_t, requeued=uint32_t, gap=Py_ssize_t,
    before=uint32_t, word=uint32_t, kind=uint32_t, position=uint64_t)
cdef int _collect(const unsigned char* p, uint32_t seed, Py_ssize_t limit, Acks acks, list found) except -1

@cython.locals(last_end=int64_t, start=int64_t, end=int64_t, item=uint64_t)
cdef int _merge(list found, object runs) except -1
