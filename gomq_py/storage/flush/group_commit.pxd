cimport cython

from gomq_py.storage.flush.bell cimport Bell
from gomq_py.storage.flush.flushing cimport Flushing
from gomq_py.storage.flush.gathering cimport Coming, Gathering

cdef class GroupCommit:
    cdef readonly Py_ssize_t syncs, begun
    cdef readonly object sync_seconds
    cdef public bint enabled, tells_before_it_answers, has_failed
    cdef object _files, _slice_clock, _gone
    cdef readonly Flushing _flushing
    cdef Gathering _gathering
    cdef readonly object _greenlet
    cdef readonly Bell _wake
    cdef bint _is_resting, _hurried, _killed, _makes_soon
    cdef readonly bint _is_syncing
    cdef public bint _stopping
    cdef dict _stores, _logs, _folders, _unwritten, _failed_logs, _soon_failures, _failed
    cdef readonly dict _later
    cdef public double _later_since, _replace_at_s
    cdef double _soon_since
    cdef list _waiting, _making, _changes, _soon
    cdef readonly object _in_flight
    cdef readonly object _aside, _at_leisure, _for_readers, _lanes
    cdef dict __dict__
    cdef object __weakref__

    cpdef mark(self, store)
    cpdef mark_messages(self, store)
    cpdef mark_acks(self, store)
    cpdef after_sync(self, callback, bint hurry=*, concerns=*, bint about_logs=*)
    cdef bint _has_marks(self) except -1
    cdef bint _has_changes(self) except -1
    cdef list _take_waiting(self)
    cdef _begin_soon(self)
    @cython.locals(due=double, is_woken=bint)
    cdef bint _has_more(self) except -1
    cdef _sync_marks(self)
    @cython.locals(due=double, now=double, soon=double)
    cdef _wait_for_more(self)
    @cython.locals(
        stores=dict, logs=dict, folders=dict, changes=list, failures=dict, jobs=list, coming=Coming)
    cdef _cycle(self)
    @cython.locals(jobs=list, files=list)
    cpdef list _collect(self, dict stores, unawaited, dict failures)
    cdef list _jobs_of(self, dict logs, dict folders)
    @cython.locals(began=double)
    cdef _flush_timed(self, list jobs, dict failures, Py_ssize_t answered)
    @cython.locals(unbegun=dict, failed=list)
    cdef _flush(self, list jobs, dict failures)
    cdef _tell_of_logs(self, list jobs, dict failures, dict unbegun)
    cdef _release_files(self, list jobs)
    cdef _release(self, files)
    cdef _tell(self, store, dict failures)
    cpdef _answer(self, of_logs, other)
    cdef _call_back(self, callback, of_logs, other)
    cpdef _blame(self, dict stores, dict logs, dict failures)


cdef class _Particular:
    cdef object _callback
    cpdef tell(self, of_logs, other)


@cython.final
cdef class _Concerned(_Particular):
    cdef object _concerns


@cython.final
cdef class _NotOfLogs(_Particular):
    pass


@cython.final
cdef class _OfLog(_Particular):
    cdef object _log
