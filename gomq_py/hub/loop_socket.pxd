cpdef bint is_plain(socket)
