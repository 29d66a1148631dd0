cimport cython

from gomq_py.storage.flush.batch cimport FlushBatch

cdef class FlushFailures:
    cdef object _files
    cdef dict unwritten, _folders, _logs
    cdef public double _replace_at_s

    cdef tell_of_logs(self, dict logs, dict failures, dict unbegun)
    cdef dict take_unwritten(self)
    @cython.locals(failures=dict, logs=dict)
    cdef blame(self, FlushBatch batch)
    cpdef error_of_logs(self)
    @cython.locals(failures=dict, logs=dict)
    cdef _blame_folders(self, FlushBatch batch)
