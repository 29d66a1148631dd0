cimport cython

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
