cimport cython
from gomq_py cimport octets
from gomq_py.broker.verbs.pending_confirms cimport Answer, PendingConfirms, UnsyncedQueues
from gomq_py.mqtt.model.qos2_records cimport QoS2Records
from gomq_py.mqtt.model.received cimport Received
from gomq_py.mqtt.model cimport sent as _sent
from gomq_py.mqtt.model.sent cimport Sent
from gomq_py.mqtt.server.delivery cimport SessionConsumer, Sink
from gomq_py.mqtt.server.publication cimport Publication
from gomq_py.mqtt.wire.frames cimport Acknowledgements
from gomq_py.net.output cimport Output

cdef unsigned int PUBACK, PUBREC, PUBREL, PUBCOMP
cdef int MQTT_5, REFUSED
cdef unsigned int NO_MATCHING_SUBSCRIBERS, UNSPECIFIED_ERROR, PACKET_IDENTIFIER_NOT_FOUND, QUOTA_EXCEEDED
cdef int NEW, AGAIN, TOO_MANY, IN_USE, PARTLY

@cython.final
cdef class Inbound:
    cdef object connection
    cdef int version
    cdef readonly Py_ssize_t receive_maximum
    cdef readonly unsigned long long publishes, published, confirmed_count
    cdef readonly UnsyncedQueues unsynced
    cdef PendingConfirms pending
    cdef readonly Received received
    cdef Acknowledgements answers
    cdef dict aliases
    cdef readonly bint is_over
    cdef bint has_released, is_held
    cdef Py_ssize_t pubacks, confirms
    cdef readonly Py_ssize_t unanswered
    cpdef int begin(self, unsigned int qos, unsigned int packet_identifier) except -1
    @cython.locals(records=QoS2Records)
    cpdef bint pause_if_stuck(self) except -1
    @cython.locals(state=int)
    cpdef bint is_new(self, unsigned int qos, unsigned int packet_identifier) except -1
    @cython.locals(code=cython.uint)
    cpdef int stored(
        self, unsigned int qos, unsigned int packet_identifier, bint taken, bint has_destinations,
        tuple queues) except -1
    cpdef int refused(
        self, unsigned int qos, unsigned int packet_identifier, unsigned int reason_code) except -1
    cpdef bytes alias(self, unsigned int alias, bytes topic)
    cdef _refused_by_queue(self, unsigned int qos, unsigned int packet_identifier)
    cdef bint _is_told(self) except -1
    cpdef bint again(self, unsigned int packet_identifier) except -1
    @cython.locals(known=bint, code=cython.uint)
    cpdef int released(self, unsigned int packet_identifier) except -1
    cpdef int answer(
        self, unsigned int kind, unsigned int packet_identifier, unsigned int reason_code) except -1
    @cython.locals(batch=Batch, unsynced=tuple)
    cpdef done(self)
    cpdef leave(self)
    cpdef close(self)
    @cython.locals(refused=Acknowledgements)
    cpdef bytes lost(self, bytes answers, list destinations)

@cython.final
cdef class Batch(Answer):
    cdef Inbound inbound
    cdef bytes answers
    cdef Py_ssize_t pubacks, confirms
    cdef unsigned long long added, mark

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
