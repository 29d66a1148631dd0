"""Refusals: what the core says no with, and how a connection ends, as MQTT's codes. A table.

MQTT 3.1 and 3.1.1 have six codes for CONNACK and none behind it. There a wrong password is 5, "not
authorized": 4 is for a user name or password that is malformed (3.1.1, table 3.1).
"""
from gomq_py.auth.errors import LoginRefused
from gomq_py.broker.verbs.token_life import EXPIRED
from gomq_py.errors import AccessRefused, NotFound, OutOfResources
from gomq_py.hub.clients import SHUTDOWN
from gomq_py.mqtt.wire import reason_codes
from gomq_py.mqtt.wire.constants import MQTT_5

NOT_AUTHORIZED_3, UNAVAILABLE_3 = 5, 3

# What keeps a client out: (MQTT 5's reason code, the return code of 3.1 and 3.1.1).
_CONNACK = {
    LoginRefused: (reason_codes.BAD_USER_NAME_OR_PASSWORD, NOT_AUTHORIZED_3),
    NotFound: (reason_codes.BAD_USER_NAME_OR_PASSWORD, NOT_AUTHORIZED_3),
    AccessRefused: (reason_codes.NOT_AUTHORIZED, NOT_AUTHORIZED_3),
    OutOfResources: (reason_codes.QUOTA_EXCEEDED, UNAVAILABLE_3),
}
# The reason for which the broker ends a connection -> MQTT 5's reason code.
_ENDS = {SHUTDOWN: reason_codes.SERVER_SHUTTING_DOWN, EXPIRED: reason_codes.MAXIMUM_CONNECT_TIME}


def connack_code(error, version):
    """What CONNACK says of a LoginRefused or Refused."""
    code, return_code = next(codes for kind, codes in _CONNACK.items() if isinstance(error, kind))
    return code if version >= MQTT_5 else return_code


def end_code(reason):
    """What DISCONNECT says of the reason why the broker, or an operator, ends a connection."""
    return _ENDS.get(reason, reason_codes.ADMINISTRATIVE_ACTION)
