cimport cython
from gomq_py.mqtt.model cimport sent as _sent
from gomq_py.mqtt.model.sent cimport Sent
from gomq_py.mqtt.wire.frames cimport Acknowledgements
from gomq_py.mqtt.server.delivery cimport SessionConsumer, Sink
from gomq_py.mqtt.server.publication cimport Publication
from gomq_py.net.output cimport Output

cdef int PUBREC, PUBREL, PACKET_IDENTIFIER_NOT_FOUND, REFUSED

@cython.final
cdef class Outbound:
    cdef readonly object connection, session
    cdef readonly Output output
    cdef readonly int version
    cdef readonly Publication publication
    cdef readonly SessionConsumer consumer
    cdef readonly Sink sink
    cdef readonly Sent sent
    cdef readonly Acknowledgements answers
    cdef readonly bint is_begun, is_stopped
    cdef object traced
    @cython.locals(todo=int)
    cpdef acknowledged(self, int kind, unsigned int packet_identifier)
    @cython.locals(todo=int)
    cpdef acknowledged_with(self, int kind, unsigned int packet_identifier, int reason_code)
    cpdef done(self)
    cdef _answer(self, unsigned int packet_identifier, unsigned int reason_code)
