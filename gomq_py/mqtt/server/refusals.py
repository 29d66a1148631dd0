"""Refusals: maps the broker's errors, and the reasons of closed connections, to MQTT's codes.

MQTT 3.1 and 3.1.1 have six codes, for CONNACK alone. Their code for a wrong password is 5, "not authorized";
4 means a malformed user name or password (3.1.1, table 3.1).
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
    """Error for a well-formed topic filter that this broker does not accept."""


# Refused logins: (MQTT 5's reason code, the return code of 3.1 and 3.1.1).
_CONNACK = {
    LoginRefused: (reason_codes.BAD_USER_NAME_OR_PASSWORD, NOT_AUTHORIZED_3),
    NotFound: (reason_codes.BAD_USER_NAME_OR_PASSWORD, NOT_AUTHORIZED_3),
    AccessRefused: (reason_codes.NOT_AUTHORIZED, NOT_AUTHORIZED_3),
    OutOfResources: (reason_codes.QUOTA_EXCEEDED, UNAVAILABLE_3),
}
# Refused sessions: another client has a queue of that name, a limit of queues, a queue closed after a fault,
# a full disk.
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
    """Return CONNACK's code for a LoginRefused or Refused."""
    code, return_code = next(codes for kind, codes in _CONNACK.items() if isinstance(error, kind))
    return code if version >= MQTT_5 else return_code


def client_id_code(version):
    return reason_codes.CLIENT_IDENTIFIER_NOT_VALID if version >= MQTT_5 else IDENTIFIER_REJECTED_3


def session_code(error, version):
    """Return CONNACK's code for an error of the session, after the login succeeded."""
    code, return_code = next(
        (codes for kind, codes in _SESSION.items() if isinstance(error, kind)), _UNAVAILABLE)
    return code if version >= MQTT_5 else return_code


def subscribe_code(error):
    """Return SUBACK's code in MQTT 5 for a Refused error."""
    return next(
        (code for kind, code in _SUBSCRIBE.items() if isinstance(error, kind)),
        reason_codes.UNSPECIFIED_ERROR)


def end_code(reason):
    """Return DISCONNECT's code for the reason why the broker or an operator ends a connection."""
    return _ENDS.get(reason, reason_codes.ADMINISTRATIVE_ACTION)
