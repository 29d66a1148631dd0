from gomq_py.broker.routing.destination cimport Destination
from gomq_py.broker.routing.route cimport Route
from gomq_py.storage.message cimport Message
cimport cython

cdef Py_ssize_t ALL, SOME_REFUSED, LOOK_AFTER

@cython.locals(destination=Destination, answer=int, number=Py_ssize_t, refused=Py_ssize_t)
cpdef Py_ssize_t to_all(Message message, Route route) except -1
