"""Refusals: what the core says no with, and how a connection ends, as MQTT's codes. A table.

MQTT 3.1 and 3.1.1 have six codes for CONNACK and none behind it. There a wrong password is 5, "not
authorized": 4 is for a user name or password that is malformed (3.1.1, table 3.1).
"""
from gomq_py.auth.errors import LoginRefused
from gomq_py.broker.verbs.token_life import EXPIRED
from gomq_py.errors import (
    AccessRefused, NotFound, OutOfResources, PreconditionFailed, Refused, ResourceLocked,
)
from gomq_py.hub.clients import SHUTDOWN
from gomq_py.mqtt.wire import reason_codes
from gomq_py.mqtt.wire.constants import MQTT_5

IDENTIFIER_REJECTED_3, UNAVAILABLE_3, NOT_AUTHORIZED_3 = 2, 3, 5


class FilterRefused(Refused):
    """A topic filter that is well-formed and not accepted here."""


# What keeps a client out: (MQTT 5's reason code, the return code of 3.1 and 3.1.1).
_CONNACK = {
    LoginRefused: (reason_codes.BAD_USER_NAME_OR_PASSWORD, NOT_AUTHORIZED_3),
    NotFound: (reason_codes.BAD_USER_NAME_OR_PASSWORD, NOT_AUTHORIZED_3),
    AccessRefused: (reason_codes.NOT_AUTHORIZED, NOT_AUTHORIZED_3),
    OutOfResources: (reason_codes.QUOTA_EXCEEDED, UNAVAILABLE_3),
}
# What keeps a client that may come in from its session. Of a queue that another client has under the name of
# its session's, of a limit of queues, of one that is closed after a fault, or a disk that is full.
_SESSION = {
    ResourceLocked: (reason_codes.CLIENT_IDENTIFIER_NOT_VALID, IDENTIFIER_REJECTED_3),
    PreconditionFailed: (reason_codes.QUOTA_EXCEEDED, UNAVAILABLE_3),
    OutOfResources: (reason_codes.SERVER_UNAVAILABLE, UNAVAILABLE_3),
    AccessRefused: (reason_codes.NOT_AUTHORIZED, NOT_AUTHORIZED_3),
}
_UNAVAILABLE = (reason_codes.SERVER_UNAVAILABLE, UNAVAILABLE_3)
_SUBSCRIBE = {
    AccessRefused: reason_codes.NOT_AUTHORIZED,
    FilterRefused: reason_codes.TOPIC_FILTER_INVALID,
    OutOfResources: reason_codes.QUOTA_EXCEEDED,
    PreconditionFailed: reason_codes.QUOTA_EXCEEDED,
}
# The reason for which the broker ends a connection -> MQTT 5's reason code.
_ENDS = {SHUTDOWN: reason_codes.SERVER_SHUTTING_DOWN, EXPIRED: reason_codes.MAXIMUM_CONNECT_TIME}


def connack_code(error, version):
    """What CONNACK says of a LoginRefused or Refused."""
    code, return_code = next(codes for kind, codes in _CONNACK.items() if isinstance(error, kind))
    return code if version >= MQTT_5 else return_code


def client_id_code(version):
    """What CONNACK says to a client that may not have its client id."""
    return reason_codes.CLIENT_IDENTIFIER_NOT_VALID if version >= MQTT_5 else IDENTIFIER_REJECTED_3


def session_code(error, version):
    """What CONNACK says to a client that is let in and gets no session."""
    code, return_code = next(
        (codes for kind, codes in _SESSION.items() if isinstance(error, kind)), _UNAVAILABLE)
    return code if version >= MQTT_5 else return_code


def subscribe_code(error):
    """What SUBACK of MQTT 5 says of a Refused."""
    return next(
        (code for kind, code in _SUBSCRIBE.items() if isinstance(error, kind)),
        reason_codes.UNSPECIFIED_ERROR)


def end_code(reason):
    """What DISCONNECT says of the reason why the broker, or an operator, ends a connection."""
    return _ENDS.get(reason, reason_codes.ADMINISTRATIVE_ACTION)
