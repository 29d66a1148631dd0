from gomq_py.broker.routing.route cimport Route
cimport cython

cdef Py_ssize_t ROUTES

@cython.final
cdef class RememberedRoutes:
    cdef Route last
    cdef bytes last_key
    cdef object ask
    cdef dict routes
    cdef Py_ssize_t most
    cpdef forget(self)
    cdef Route find(self, unsigned char* at, Py_ssize_t start, Py_ssize_t length)
    @cython.locals(route=Route)
    cdef Route find_key(self, bytes key)
