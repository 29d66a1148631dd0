cimport cython

@cython.final
cdef class FlushBatch:
    cdef public dict stores, acks, logs, folders
    cdef public double acks_since
    cdef public list callbacks
    cdef public bint is_hurried
    cdef readonly dict failures
    cdef bint has_marks(self) except -1
    @cython.locals(jobs=list, files=list)
    cdef list collect(self, function, unawaited)
    cdef other_failure(self)
    cdef failure_of_logs(self)


cpdef release(files)
cpdef release_files(list jobs)
cpdef tell(store, dict failures)
cpdef call_back(callback, of_logs, other)


cdef class Particular:
    cdef object _callback
    cpdef tell(self, of_logs, other)


@cython.final
cdef class Concerned(Particular):
    cdef object _concerns


@cython.final
cdef class NotOfLogs(Particular):
    pass


@cython.final
cdef class OfLog(Particular):
    cdef object _log
