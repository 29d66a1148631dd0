cimport cython
from gomq_py cimport octets
from gomq_py.mqtt.model cimport sent as _sent
from gomq_py.mqtt.model.sent cimport Sent
from gomq_py.mqtt.server.delivery cimport SessionConsumer
from gomq_py.mqtt.server.publication cimport Publication
from gomq_py.mqtt.server.sink cimport Sink
from gomq_py.mqtt.wire cimport frames
from gomq_py.net.output cimport Output

cdef int PUBREC, PUBREL, MQTT_5, NOT_FOUND, REFUSED
cdef Py_ssize_t ANSWER_OCTETS

@cython.final
cdef class Outbound:
    cdef readonly object connection, session
    cdef readonly Output output
    cdef readonly int version
    cdef readonly Publication publication
    cdef readonly SessionConsumer consumer
    cdef readonly Sink sink
    cdef readonly Sent sent
    cdef readonly bint is_begun, is_stopped
    @cython.locals(todo=int)
    cpdef acknowledged(self, int kind, unsigned int packet_identifier)
    @cython.locals(todo=int)
    cpdef acknowledged_with(self, int kind, unsigned int packet_identifier, int reason_code)
    @cython.locals(data=bytearray, end=Py_ssize_t)
    cdef _release(self, unsigned int packet_identifier, unsigned int reason_code)
