from gomq_py.storage.flush cimport flush_threads

cdef class Flusher:
    cdef flush_threads.Threads *_threads
    cdef public object _watcher
    cdef public dict _waiting
    cdef readonly int most
    cdef int _alarm
    cdef int _pid
    cdef object _alarm_watcher, _pausing
    cdef object __weakref__
    cdef _begin(self)
    cpdef int _ask(self, file) except -1
    cpdef _heard(self)
    cpdef end_pause(self)
    cpdef _rung(self)
