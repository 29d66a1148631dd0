cimport cython

cpdef str topic_name_fault(str name)
cpdef bint is_topic_name(str text)
cpdef str text_fault(str what, str text)
cpdef bint is_shared(str topic_filter)
cpdef tuple split_shared(str topic_filter)
cpdef str swapped(str text)
@cython.locals(filters=list, names=list, level=str, position=Py_ssize_t)
cpdef bint matches(topic_filter, topic_name)
