cimport cython

cdef Py_ssize_t STRING_MAX

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
