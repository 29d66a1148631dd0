# Compiled twin of receive() and send(), inlined into stream and output.
from cpython.buffer cimport Py_buffer, PyBUF_SIMPLE, PyBUF_WRITABLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.exc cimport PyErr_CheckSignals, PyErr_SetFromErrno
from libc.errno cimport EINTR, errno

cdef extern from "<sys/socket.h>" nogil:
    ssize_t system_recv "recv"(int descriptor, void *octets, size_t count, int flags)
    ssize_t system_send "send"(int descriptor, const void *octets, size_t count, int flags)
    enum:
        MSG_DONTWAIT
        MSG_NOSIGNAL

# Longer rooms and data are copied with the interpreter's lock released. Otherwise the thread that prepares
# segment files gets it 5 ms later, and the hub takes the page faults of files that are not ready: a fifth of
# a flood's CPU time. A usual read keeps the lock: its room has 64 KiB, but most bring a few packets, for
# which releasing the lock costs more than the copy.
cdef enum:
    LOCKED_ROOM_MAX = 64 * 1024
    LOCKED_DATA_MAX = 4 * 1024

cdef inline bint is_native() noexcept:
    return True

cdef inline Py_ssize_t receive(int descriptor, room) except -1:
    cdef Py_buffer view
    cdef Py_ssize_t count
    PyObject_GetBuffer(room, &view, PyBUF_WRITABLE)
    try:
        while True:
            if view.len <= LOCKED_ROOM_MAX:
                count = system_recv(descriptor, view.buf, view.len, MSG_DONTWAIT)
            else:
                with nogil:
                    count = system_recv(descriptor, view.buf, view.len, MSG_DONTWAIT)
            if count >= 0:
                return count
            if errno != EINTR:
                PyErr_SetFromErrno(OSError)
            PyErr_CheckSignals()
    finally:
        PyBuffer_Release(&view)

cdef inline Py_ssize_t send(int descriptor, data) except -1:
    cdef Py_buffer view
    cdef Py_ssize_t count
    PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
    try:
        while True:
            if view.len <= LOCKED_DATA_MAX:
                count = system_send(descriptor, view.buf, view.len, MSG_DONTWAIT | MSG_NOSIGNAL)
            else:
                with nogil:
                    count = system_send(descriptor, view.buf, view.len, MSG_DONTWAIT | MSG_NOSIGNAL)
            if count >= 0:
                return count
            if errno != EINTR:
                PyErr_SetFromErrno(OSError)
            PyErr_CheckSignals()
    finally:
        PyBuffer_Release(&view)
