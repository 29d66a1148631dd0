"""Errors: classes for faults of a packet, each with the reason code that reports it (MQTT 5 §4.13).

Each fault ends the connection. In MQTT 5, CONNACK or DISCONNECT contains the reason code; in MQTT 3.1 and
3.1.1 the server only closes, unless there is a return code for the fault of a CONNECT (codec.last_packet).
"""
from gomq_py.mqtt.wire import reason_codes
from gomq_py.mqtt.wire.constants import CONNACK, DISCONNECT, NO_VERSION


# Characters of a peer's text in a log line.
SHOWN_MAX = 64


def shown(text):
    """Return a peer's text in a form for error texts: quoted, shortened, without control characters."""
    return repr(text if len(text) <= SHOWN_MAX else text[:SHOWN_MAX] + "...")


class MQTTError(Exception):
    """A fault of a packet, which is refused. The error of a CONNECT has the CONNECT's protocol ``version`` (0
    if unknown) and its maximum packet size ``packet_max`` (0: any).
    """

    reason_code = reason_codes.UNSPECIFIED_ERROR

    def __init__(self, text=""):
        super().__init__(text)
        self.text = text
        self.version = NO_VERSION
        self.packet_max = 0

    @property
    def name(self):
        packet = DISCONNECT if reason_codes.may_carry(DISCONNECT, self.reason_code) else CONNACK
        return reason_codes.name_of(packet, self.reason_code)

    def __str__(self):
        return f"{self.name}: {self.text}"


class MalformedPacket(MQTTError):
    """The bytes of a packet cannot be parsed."""

    reason_code = reason_codes.MALFORMED_PACKET


class ProtocolError(MQTTError):
    """The packet can be parsed, but the protocol forbids it, always or at this moment."""

    reason_code = reason_codes.PROTOCOL_ERROR


class UnsupportedProtocolVersion(MQTTError):
    """A CONNECT has a version that this broker does not speak."""

    reason_code = reason_codes.UNSUPPORTED_PROTOCOL_VERSION


class ClientIdentifierNotValid(MQTTError):
    """A CONNECT lacks the client identifier needed in MQTT 3.1, or in 3.1.1 for a lasting session."""

    reason_code = reason_codes.CLIENT_IDENTIFIER_NOT_VALID


class TopicAliasInvalid(MQTTError):
    """A topic alias is 0 or higher than the receiver accepts."""

    reason_code = reason_codes.TOPIC_ALIAS_INVALID


class PacketTooLarge(MQTTError):
    """A packet has more bytes than this side accepts."""

    reason_code = reason_codes.PACKET_TOO_LARGE


class QuotaExceeded(MQTTError):
    """A packet has more properties or topic filters than this side accepts."""

    reason_code = reason_codes.QUOTA_EXCEEDED
