cimport cython
from libc.stdint cimport uint64_t

from gomq_py.storage.message cimport Message
from gomq_py.storage.stores.message_store cimport MessageStore

@cython.locals(_=Py_ssize_t)
cpdef int append(MessageStore store, Message message, Py_ssize_t count) except -1
@cython.locals(_=Py_ssize_t, done=Py_ssize_t)
cpdef Py_ssize_t pass_through(
    MessageStore store, Message message, Message shown, Py_ssize_t count, Py_ssize_t batch
) except -1
@cython.locals(_=Py_ssize_t)
cpdef int take(MessageStore store, Message shown, Py_ssize_t count) except -1
@cython.locals(done=Py_ssize_t, at=Py_ssize_t)
cpdef Py_ssize_t take_then_ack(
    MessageStore store, Message shown, Py_ssize_t count, Py_ssize_t window, uint64_t[::1] locations
) except -1
