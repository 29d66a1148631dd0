"""Reason codes: MQTT 5's codes with their names and packets (§2.4), and MQTT 3.1.1's return codes."""
from gomq_py.mqtt.wire.constants import (
    AUTH, CONNACK, DISCONNECT, MQTT_5, PUBACK, PUBCOMP, PUBREC, PUBREL, SUBACK, UNSUBACK,
)

SUCCESS = 0x00
GRANTED_QOS_0, GRANTED_QOS_1, GRANTED_QOS_2 = 0x00, 0x01, 0x02
NO_MATCHING_SUBSCRIBERS = 0x10
NO_SUBSCRIPTION_EXISTED = 0x11
UNSPECIFIED_ERROR = 0x80
MALFORMED_PACKET = 0x81
PROTOCOL_ERROR = 0x82
IMPLEMENTATION_SPECIFIC_ERROR = 0x83
UNSUPPORTED_PROTOCOL_VERSION = 0x84
CLIENT_IDENTIFIER_NOT_VALID = 0x85
BAD_USER_NAME_OR_PASSWORD = 0x86
NOT_AUTHORIZED = 0x87
SERVER_UNAVAILABLE = 0x88
SERVER_BUSY = 0x89
BANNED = 0x8A
SERVER_SHUTTING_DOWN = 0x8B
BAD_AUTHENTICATION_METHOD = 0x8C
KEEP_ALIVE_TIMEOUT = 0x8D
SESSION_TAKEN_OVER = 0x8E
TOPIC_FILTER_INVALID = 0x8F
TOPIC_NAME_INVALID = 0x90
PACKET_IDENTIFIER_IN_USE = 0x91
PACKET_IDENTIFIER_NOT_FOUND = 0x92
RECEIVE_MAXIMUM_EXCEEDED = 0x93
TOPIC_ALIAS_INVALID = 0x94
PACKET_TOO_LARGE = 0x95
QUOTA_EXCEEDED = 0x97
ADMINISTRATIVE_ACTION = 0x98
PAYLOAD_FORMAT_INVALID = 0x99
MAXIMUM_CONNECT_TIME = 0xA0

_EVERY_ANSWER = (CONNACK, PUBACK, PUBREC, SUBACK, UNSUBACK, DISCONNECT)

# (code, name, packets that may carry it...), in the order of the specification's table; 0x00 has three names.
REASON_CODES = (
    (SUCCESS, "Success", CONNACK, PUBACK, PUBREC, PUBREL, PUBCOMP, UNSUBACK, AUTH),
    (SUCCESS, "Normal disconnection", DISCONNECT),
    (GRANTED_QOS_0, "Granted QoS 0", SUBACK),
    (GRANTED_QOS_1, "Granted QoS 1", SUBACK),
    (GRANTED_QOS_2, "Granted QoS 2", SUBACK),
    (0x04, "Disconnect with Will Message", DISCONNECT),
    (NO_MATCHING_SUBSCRIBERS, "No matching subscribers", PUBACK, PUBREC),
    (NO_SUBSCRIPTION_EXISTED, "No subscription existed", UNSUBACK),
    (0x18, "Continue authentication", AUTH),
    (0x19, "Re-authenticate", AUTH),
    (UNSPECIFIED_ERROR, "Unspecified error", *_EVERY_ANSWER),
    (MALFORMED_PACKET, "Malformed Packet", CONNACK, DISCONNECT),
    (PROTOCOL_ERROR, "Protocol Error", CONNACK, DISCONNECT),
    (IMPLEMENTATION_SPECIFIC_ERROR, "Implementation specific error", *_EVERY_ANSWER),
    (UNSUPPORTED_PROTOCOL_VERSION, "Unsupported Protocol Version", CONNACK),
    (CLIENT_IDENTIFIER_NOT_VALID, "Client Identifier not valid", CONNACK),
    (BAD_USER_NAME_OR_PASSWORD, "Bad User Name or Password", CONNACK),
    (NOT_AUTHORIZED, "Not authorized", *_EVERY_ANSWER),
    (SERVER_UNAVAILABLE, "Server unavailable", CONNACK),
    (SERVER_BUSY, "Server busy", CONNACK, DISCONNECT),
    (BANNED, "Banned", CONNACK),
    (SERVER_SHUTTING_DOWN, "Server shutting down", DISCONNECT),
    (BAD_AUTHENTICATION_METHOD, "Bad authentication method", CONNACK, DISCONNECT),
    (KEEP_ALIVE_TIMEOUT, "Keep Alive timeout", DISCONNECT),
    (SESSION_TAKEN_OVER, "Session taken over", DISCONNECT),
    (TOPIC_FILTER_INVALID, "Topic Filter invalid", SUBACK, UNSUBACK, DISCONNECT),
    (TOPIC_NAME_INVALID, "Topic Name invalid", CONNACK, PUBACK, PUBREC, DISCONNECT),
    (PACKET_IDENTIFIER_IN_USE, "Packet Identifier in use", PUBACK, PUBREC, SUBACK, UNSUBACK),
    (PACKET_IDENTIFIER_NOT_FOUND, "Packet Identifier not found", PUBREL, PUBCOMP),
    (RECEIVE_MAXIMUM_EXCEEDED, "Receive Maximum exceeded", DISCONNECT),
    (TOPIC_ALIAS_INVALID, "Topic Alias invalid", DISCONNECT),
    (PACKET_TOO_LARGE, "Packet too large", CONNACK, DISCONNECT),
    (0x96, "Message rate too high", DISCONNECT),
    (QUOTA_EXCEEDED, "Quota exceeded", CONNACK, PUBACK, PUBREC, SUBACK, DISCONNECT),
    (ADMINISTRATIVE_ACTION, "Administrative action", DISCONNECT),
    (PAYLOAD_FORMAT_INVALID, "Payload format invalid", CONNACK, PUBACK, PUBREC, DISCONNECT),
    (0x9A, "Retain not supported", CONNACK, DISCONNECT),
    (0x9B, "QoS not supported", CONNACK, DISCONNECT),
    (0x9C, "Use another server", CONNACK, DISCONNECT),
    (0x9D, "Server moved", CONNACK, DISCONNECT),
    (0x9E, "Shared Subscriptions not supported", SUBACK, DISCONNECT),
    (0x9F, "Connection rate exceeded", CONNACK, DISCONNECT),
    (MAXIMUM_CONNECT_TIME, "Maximum connect time", DISCONNECT),
    (0xA1, "Subscription Identifiers not supported", SUBACK, DISCONNECT),
    (0xA2, "Wildcard Subscriptions not supported", SUBACK, DISCONNECT),
)
_NAMES = {(packet, code): name for code, name, *packets in REASON_CODES for packet in packets}

# MQTT 3.1 and 3.1.1 (§3.2.2.3) have six codes for CONNACK, one for SUBACK and none for the rest.
CONNACK_RETURN_CODES = {
    0: "Connection Accepted",
    1: "Connection Refused, unacceptable protocol version",
    2: "Connection Refused, identifier rejected",
    3: "Connection Refused, Server unavailable",
    4: "Connection Refused, bad user name or password",
    5: "Connection Refused, not authorized",
}
SUBACK_FAILURE = 0x80
SUBACK_RETURN_CODES = {
    0: "Success - Maximum QoS 0", 1: "Success - Maximum QoS 1", 2: "Success - Maximum QoS 2",
    SUBACK_FAILURE: "Failure",
}
_RETURN_CODE_NAMES = {CONNACK: CONNACK_RETURN_CODES, SUBACK: SUBACK_RETURN_CODES}
_RETURN_CODES = {
    SUCCESS: 0, UNSUPPORTED_PROTOCOL_VERSION: 1, CLIENT_IDENTIFIER_NOT_VALID: 2, SERVER_UNAVAILABLE: 3,
    SERVER_BUSY: 3, BAD_USER_NAME_OR_PASSWORD: 4, NOT_AUTHORIZED: 5, BANNED: 5,
}


def may_carry(packet, code, version=MQTT_5):
    """Return whether a packet of this type may have this reason code."""
    if version >= MQTT_5:
        return (packet, code) in _NAMES
    return code in _RETURN_CODE_NAMES.get(packet, {})


def name_of(packet, code, version=MQTT_5):
    """Return the code's name in a packet of this type, or a text with its number if the code has no name."""
    if version >= MQTT_5:
        return _NAMES.get((packet, code), f"reason code 0x{code:02X}")
    return _RETURN_CODE_NAMES.get(packet, {}).get(code, f"return code {code}")


def connack_return_code(code):
    """Return the return code of a CONNACK before MQTT 5 for a reason code; None: close without a CONNACK."""
    return _RETURN_CODES.get(code)
