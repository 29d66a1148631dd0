cimport cython

from gomq_py.storage.flush.batch cimport (
    Concerned, FlushBatch, NotOfLogs, OfLog, call_back, release, release_files, tell,
)
from gomq_py.storage.flush.flushing cimport CommitDelay, Flushing, NextFlush, Wakeup

cdef class GroupCommit:
    cdef readonly Py_ssize_t begun
    cdef readonly object sync_seconds
    cdef public bint enabled, tells_before_it_answers, has_failed
    cdef readonly object position, names, _register, _failures
    cdef public object background
    cdef readonly Flushing _flushing
    cdef CommitDelay _commit_delay
    cdef object _slice_clock, _gone
    cdef readonly object _greenlet
    cdef readonly Wakeup _wake
    cdef bint _is_resting, _killed
    cdef readonly FlushBatch _next
    cdef readonly object _in_flight
    cdef readonly bint _is_syncing
    cdef public bint _stopping
    cdef dict __dict__
    cdef object __weakref__

    cpdef mark(self, store)
    cpdef mark_messages(self, store)
    @cython.locals(batch=FlushBatch)
    cpdef mark_acks(self, store)
    cpdef after_sync(self, callback, bint hurry=*, concerns=*, bint about_logs=*)
    cdef bint _has_marks(self) except -1
    cdef bint _has_work(self) except -1
    cdef FlushBatch _take(self)
    cdef _begin_soon(self)
    @cython.locals(due=double, is_woken=bint)
    cdef bint _has_more(self) except -1
    cdef _sync_marks(self)
    @cython.locals(due=double, now=double, soon=double)
    cdef _wait_for_more(self)
    @cython.locals(batch=FlushBatch, changes=list, jobs=list, next_flush=NextFlush)
    cdef _cycle(self)
    @cython.locals(began=double, unbegun=dict, failed=list)
    cdef _flush(self, FlushBatch batch, list jobs, Py_ssize_t answered)
    @cython.locals(unwritten=dict)
    cdef _mark_unwritten(self)
    cpdef _answer(self, of_logs, other)
