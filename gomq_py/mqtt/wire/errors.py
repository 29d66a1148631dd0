"""Errors: what is wrong with a packet, and the reason code that says so (MQTT 5 §4.13). A leaf.

Each of them ends the connection. MQTT 5 tells the client why, in CONNACK or DISCONNECT; MQTT 3.1 and 3.1.1
close, but for a CONNECT that they have a return code for (gomq_py.mqtt.wire.packets.last_packet).
"""
from gomq_py.mqtt.wire import reason_codes
from gomq_py.mqtt.wire.constants import CONNACK, DISCONNECT, NO_VERSION


# Of a text that a peer sent, in a log line.
SHOWN_MAX = 64


def shown(text):
    """A peer's text for an error: quoted, without control characters, and short."""
    return repr(text if len(text) <= SHOWN_MAX else text[:SHOWN_MAX] + "...")


class MQTTError(Exception):
    """A packet that is not accepted. Of a CONNECT: ``version`` is the protocol version that it names, else 0,
    and ``packet_max`` its maximum packet size; 0: any.
    """

    reason_code = reason_codes.UNSPECIFIED_ERROR

    def __init__(self, text=""):
        super().__init__(text)
        self.text = text
        self.version = NO_VERSION
        self.packet_max = 0

    @property
    def name(self):
        """The reason code's name."""
        packet = DISCONNECT if reason_codes.may_carry(DISCONNECT, self.reason_code) else CONNACK
        return reason_codes.name_of(packet, self.reason_code)

    def __str__(self):
        return f"{self.name}: {self.text}"


class MalformedPacket(MQTTError):
    """Octets that cannot be parsed as the specification has it."""

    reason_code = reason_codes.MALFORMED_PACKET


class ProtocolError(MQTTError):
    """A packet that can be parsed and that the protocol does not allow: here, or at all."""

    reason_code = reason_codes.PROTOCOL_ERROR


class UnsupportedProtocolVersion(MQTTError):
    """A CONNECT of a version that is not spoken here."""

    reason_code = reason_codes.UNSUPPORTED_PROTOCOL_VERSION


class ClientIdentifierNotValid(MQTTError):
    """A CONNECT without a client identifier that wants to keep its session, or is one of MQTT 3.1."""

    reason_code = reason_codes.CLIENT_IDENTIFIER_NOT_VALID


class TopicAliasInvalid(MQTTError):
    """A topic alias of 0."""

    reason_code = reason_codes.TOPIC_ALIAS_INVALID


class PacketTooLarge(MQTTError):
    """More octets than this side accepts in one packet."""

    reason_code = reason_codes.PACKET_TOO_LARGE


class QuotaExceeded(MQTTError):
    """More properties or topic filters in one packet than this side accepts."""

    reason_code = reason_codes.QUOTA_EXCEEDED
