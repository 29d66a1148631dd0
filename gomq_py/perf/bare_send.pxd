# Compiled twin of bare_send.py.
from libc.errno cimport EAGAIN, EINTR, errno

cdef extern from "<sys/socket.h>" nogil:
    Py_ssize_t system_send "send"(int, const void*, size_t, int)

cdef inline bint is_native() noexcept:
    return True

cdef inline Py_ssize_t send(
        int descriptor, const unsigned char* p, Py_ssize_t start, Py_ssize_t end, int flags) noexcept:
    # Bytes written of those from start to end; 0 if the socket takes none now, -errno for another error.
    cdef Py_ssize_t written = system_send(descriptor, p + start, <size_t> (end - start), flags)
    while written < 0 and errno == EINTR:
        written = system_send(descriptor, p + start, <size_t> (end - start), flags)
    if written < 0:
        return 0 if errno == EAGAIN else -errno
    return written
