cimport cython

cdef Py_ssize_t STRING_MAX
cdef int ILL_FORMED, WILDCARD, CONTROL

@cython.locals(octet=cython.uint, low=cython.uint, high=cython.uint, more=Py_ssize_t, found=int)
cdef int scan_text(const unsigned char* p, Py_ssize_t at, Py_ssize_t end) noexcept

cpdef str topic_name_fault(str name)
cpdef bint is_topic_name(str text)
cpdef str text_fault(str what, str text)
cpdef bint is_shared(str topic_filter)
cpdef tuple split_shared(str topic_filter)
cpdef str swapped(str text)
@cython.locals(
    pattern=str, name=str, pattern_end=Py_ssize_t, name_end=Py_ssize_t, at=Py_ssize_t, place=Py_ssize_t,
    is_single=bint)
cpdef bint matches(topic_filter, topic_name)
