from gomq_py cimport octets

cdef class HubBuffers:
    cdef readonly object input, output, input_view, output_view
    cdef readonly Py_ssize_t reserve, input_octets, output_octets
    cdef unsigned char* input_at
    cdef unsigned char* output_at
