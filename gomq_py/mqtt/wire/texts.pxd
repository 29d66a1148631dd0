cimport cython

cdef int ILL_FORMED, WILDCARD, CONTROL

@cython.locals(octet=cython.uint, low=cython.uint, high=cython.uint, more=Py_ssize_t, found=int)
cdef int scan_text(const unsigned char* p, Py_ssize_t at, Py_ssize_t end) noexcept
