cimport cython
from libc.stdint cimport uint64_t

from gomq_py.storage.format cimport record
from gomq_py.storage.message cimport Message
from gomq_py.storage.stores cimport store as _store
from gomq_py.storage.stores.message_store cimport MessageStore

cdef class PriorityStore(_store.Store):
    cdef readonly Py_ssize_t max_priority, default
    cdef list _levels
    cdef readonly list priorities, _used
    cdef Py_ssize_t _top
    cdef MessageStore _shown
    cdef bint _opens_aside
    @cython.locals(priority=Py_ssize_t, store=MessageStore)
    cpdef int append(self, Message message) except -1
    @cython.locals(store=MessageStore, found=bint)
    cpdef bint peek(self, Message message) except -1
    @cython.locals(store=MessageStore)
    cpdef int shift(self) except -1
    @cython.locals(priority=Py_ssize_t, store=MessageStore)
    cpdef bint is_waiting(self) except -1
    cpdef bint shows_recovered(self) except -1
    @cython.locals(store=MessageStore)
    cpdef int postpone(self) except -1
    cpdef uint64_t peeked_due_s(self, uint64_t now_s) except? 0
    cpdef int wait_until(self, uint64_t location, Py_ssize_t count, uint64_t due_s) except -1
    cpdef Py_ssize_t excuse(self, uint64_t location, Py_ssize_t more) except -1
    @cython.locals(store=MessageStore)
    cpdef int delete(self, uint64_t location) except -1
    @cython.locals(store=MessageStore)
    cpdef int requeue(self, uint64_t location) except -1
    @cython.locals(store=MessageStore)
    cpdef bint read(self, uint64_t location, Message message) except -1
    cpdef body_file(self, Message message)
    @cython.locals(store=MessageStore)
    cpdef bint pick(self, uint64_t location) except -1
    @cython.locals(store=MessageStore)
    cpdef int unpick(self, uint64_t location) except -1
    cpdef uint64_t oldest_ready_ms(self) except? 0
    cpdef int write_out(self) except -1
    cpdef int mark(self) except -1
    @cython.locals(store=MessageStore, count=Py_ssize_t)
    cpdef Py_ssize_t purge(self) except -1
    @cython.locals(number=Py_ssize_t)
    cdef MessageStore _level(self, Py_ssize_t priority)
    cdef MessageStore _of(self, uint64_t location)
    cdef _raise_top(self, Py_ssize_t priority)
    cdef _take_off(self, MessageStore store)
    cdef _put_on(self, MessageStore store)

@cython.locals(made=PriorityStore)
cpdef PriorityStore with_levels(MessageStore store, Py_ssize_t max_priority, Py_ssize_t default)
