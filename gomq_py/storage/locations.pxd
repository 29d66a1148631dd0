# Compiled twin of locations.py. The bodies stand here so that the C compiler inlines them into every module
# that cimports them.
from libc.stdint cimport uint64_t


cdef inline uint64_t level_bits(uint64_t level) noexcept:
    return level << 56


cdef inline uint64_t pack(uint64_t bits, uint64_t number, uint64_t position) noexcept:
    return bits | number << 28 | position


cdef inline Py_ssize_t level_of(uint64_t location) noexcept:
    return location >> 56


cdef inline Py_ssize_t number_of(uint64_t location) noexcept:
    return location >> 28 & 0xFFFFFFF


cdef inline Py_ssize_t position_of(uint64_t location) noexcept:
    return location & 0xFFFFFFF
