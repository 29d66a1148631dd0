# Compiled twin of ssl_calls.py: the library's functions, called by their addresses.
from cpython.buffer cimport PyBUF_WRITABLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytearray cimport PyByteArray_AS_STRING
from libc.errno cimport EAGAIN, errno
from libc.stdint cimport uintptr_t
from posix.time cimport CLOCK_MONOTONIC, clock_gettime, timespec

ctypedef int (*Read)(void *, void *, int) noexcept
ctypedef int (*HasPending)(void *) noexcept
ctypedef int (*GetError)(void *, int) noexcept

# Answers of SSL_get_error.
cdef enum:
    NONE = 0
    WANT_READ = 2
    WANT_WRITE = 3

cdef enum:
    MOST_OCTETS = 1 << 30  # an int says how many

cdef struct Calls:
    void *connection
    Read read
    HasPending has_pending
    GetError get_error
    int error  # of the last read: why it ended, NONE where it did not have to
    bint has_more  # whether OpenSSL has octets that it was not asked for

cdef inline bint is_native() noexcept:
    return True

cdef inline Calls *of(bytearray calls) noexcept:
    return <Calls *> PyByteArray_AS_STRING(calls)

cdef inline bytearray calls_of(
    uintptr_t connection, uintptr_t read, uintptr_t has_pending, uintptr_t get_error
):
    """A Calls, kept in octets, which end by themselves."""
    cdef bytearray calls = bytearray(sizeof(Calls))
    of(calls).connection = <void *> connection
    of(calls).read = <Read> read
    of(calls).has_pending = <HasPending> has_pending
    of(calls).get_error = <GetError> get_error
    return calls

cdef inline int error_of(bytearray calls) noexcept:
    return of(calls).error

cdef inline bint has_more(bytearray calls) noexcept:
    return of(calls).has_more

cdef inline long long clock_ns() noexcept:
    cdef timespec now
    clock_gettime(CLOCK_MONOTONIC, &now)
    return <long long> now.tv_sec * 1000000000 + now.tv_nsec

cdef inline Py_ssize_t read_records(
    bytearray calls, view, int most, int ahead, int seal, long long most_ns
) except -1:
    """Octets that were read into the view: of so many records at most, as far as OpenSSL has them after the
    first, and of those behind where it had read ``ahead`` octets, of which ``seal`` are each record's own, in
    less than ``most_ns``.
    """
    cdef Py_buffer room
    PyObject_GetBuffer(view, &room, PyBUF_WRITABLE)
    cdef Py_ssize_t count = fill(of(calls), <char *> room.buf, room.len, most, ahead, seal, most_ns)
    PyBuffer_Release(&room)
    return count

cdef inline Py_ssize_t fill(
    Calls *calls, char *room, Py_ssize_t octets, int most, int ahead, int seal, long long most_ns
) noexcept:
    cdef long long began_ns = clock_ns()
    cdef Py_ssize_t count = 0
    cdef Py_ssize_t taken = 0  # since OpenSSL read ahead
    cdef int number, got
    calls.error = NONE
    calls.has_more = True
    for number in range(most):
        if count == octets:
            break
        (&errno)[0] = 0  # a bare name would be a local variable
        got = calls.read(calls.connection, room + count, <int> min(octets - count, MOST_OCTETS))
        if got <= 0:
            # OpenSSL may have stopped at a change of keys, and the socket does not report later octets that
            # were read ahead. From 3.2 on, has_pending overlooks these, too.
            calls.has_more = errno != EAGAIN
            calls.error = calls.get_error(calls.connection, got)
            calls.has_more = calls.error == WANT_WRITE or calls.error == WANT_READ and calls.has_more
            break
        count += got
        taken += got + seal
        if not calls.has_pending(calls.connection):
            if taken < ahead or clock_ns() - began_ns >= most_ns:
                calls.has_more = False
                break
            taken = 0
    return count
