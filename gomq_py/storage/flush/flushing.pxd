cimport cython

@cython.final
cdef class NextFlush:
    cdef public bint has_begun
    cdef readonly Py_ssize_t joined
    cdef CommitDelay _commit_delay
    cpdef join(self)

@cython.final
cdef class CommitDelay:
    cdef readonly NextFlush next_flush
    cdef double _may_begin_s, _due_s
    cdef bint _is_steady
    cdef object _pausing
    cpdef begin(self)
    cpdef flushed(self, double began_s, bint overlaps, Py_ssize_t answered)
    @cython.locals(due=double, left=double)
    cpdef hold_up(self, flusher)
    @cython.locals(late=double)
    cpdef asked(self)

@cython.final
cdef class Wakeup:
    cdef readonly bint is_rung
    cdef readonly double rings_at_s
    cdef object waiter, timer
    cpdef set(self)
    cpdef clear(self)
    cpdef wait(self, double until_s)
    cpdef close(self)
    cdef _set_timer(self, double until_s)

@cython.final
cdef class Flushing:
    cdef readonly object watch, pool
    cdef public object flusher
    cdef public list at_work
    cdef readonly list lanes_here
    cdef object _files
    cdef int _threads, _others
    cdef bint _lacks_flusher

    cpdef way_of_stores(self)
    cdef list jobs_of(self, dict logs, dict folders)
    cpdef list run(self, list jobs, dict unbegun)
    cdef bint _has_flusher(self) except -1
    @cython.locals(lanes=list, begun=list, failed=list)
    cdef list _run_in_pool(self, list jobs, list here, dict unbegun)
    @cython.locals(failed=list)
    cdef list _run_here(self, list jobs)

@cython.locals(failed=list)
cpdef list flush_each(list jobs, watch)
