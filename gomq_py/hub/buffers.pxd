cimport cython
from gomq_py cimport octets

cdef Py_ssize_t SCRATCH_OCTETS, SMALL_SPARE_OCTETS, SPARE_OCTETS, SPARES

cdef class HubBuffers:
    cdef readonly object input, output, input_view, first_room, input_room, flood_room, output_view
    cdef readonly Py_ssize_t reserve, first_octets, input_octets, output_octets, flood_output_octets
    cdef public unsigned long long full_reads
    cdef readonly Py_ssize_t ends_left
    cdef unsigned char* input_at
    cdef unsigned char* output_at
    cdef double _polled_at
    cdef bytearray _scratch
    cdef list _small_spares, _spares
    cdef int count_end(self) except -1
    @cython.locals(polled_at=double)
    cdef bint is_next_poll(self) except -1
    cpdef bytearray scratch(self)
    @cython.locals(spares=list)
    cpdef bytearray take_spare(self, bint is_small)
    @cython.locals(spares=list)
    cpdef give_spare(self, bytearray spare)
