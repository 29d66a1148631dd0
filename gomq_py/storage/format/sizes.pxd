# Compiled twin of sizes.py. The body stands here so that the C compiler inlines it into every module that
# cimports it.


cdef inline Py_ssize_t record_size(Py_ssize_t routing_length, Py_ssize_t properties_length,
        Py_ssize_t body_length) noexcept:
    return (44 + routing_length + properties_length + body_length + 7) & ~7
