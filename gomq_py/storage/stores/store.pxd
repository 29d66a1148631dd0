from libc.stdint cimport uint64_t

from gomq_py.storage.message cimport Message

cdef class Store:
    cdef readonly object folder, files, pool, committer, incarnation, failure
    cdef public object listener
    cdef readonly Py_ssize_t segment_bytes
    cdef readonly bint durable, is_named_at_once
    cdef readonly uint64_t key
    cdef readonly Py_ssize_t ready_count, unacked_count
    cdef readonly uint64_t ready_bytes, unacked_bytes

    cpdef int append(self, Message message) except -1
    cpdef int write_out(self) except -1
    cpdef int mark(self) except -1
    cpdef uint64_t place_of(self, Py_ssize_t size) except? 0
    cpdef bint has_record(self, uint64_t place, uint64_t came_ms) except -1
    cpdef int name_at_once(self) except -1
    cpdef bint outlives_kill(self) except -1
    cpdef bint peek(self, Message message) except -1
    cpdef bint is_waiting(self) except -1
    cpdef int shift(self) except -1
    cpdef bint shows_recovered(self) except -1
    cpdef int postpone(self) except -1
    cpdef uint64_t peeked_due_s(self, uint64_t now_s) except? 0
    cpdef int wait_until(self, uint64_t location, Py_ssize_t count, uint64_t due_s) except -1
    cpdef Py_ssize_t excuse(self, uint64_t location, Py_ssize_t more) except -1
    cpdef int delete(self, uint64_t location) except -1
    cpdef int requeue(self, uint64_t location) except -1
    cpdef bint read(self, uint64_t location, Message message) except -1
    cpdef body_file(self, Message message)
    cpdef bint pick(self, uint64_t location) except -1
    cpdef int unpick(self, uint64_t location) except -1
    cpdef Py_ssize_t purge(self) except -1
    cpdef passed_over(self)
    cpdef bint is_passed_over(self, uint64_t location) except -1
    cpdef uint64_t oldest_ready_ms(self) except? 0
    cpdef Py_ssize_t ready_octets(self) except -1
