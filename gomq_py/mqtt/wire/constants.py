"""Constants: numbers of MQTT that several modules need, and the limits of one packet.

A compiled module imports these constants by name, and its .pxd file declares their C types.
"""
from typing import NamedTuple

# Protocol versions, by the number that CONNECT carries; 0 until CONNECT has come.
NO_VERSION = 0
MQTT_3_1 = 3
MQTT_3_1_1 = 4
MQTT_5 = 5
PROTOCOL_NAMES = {MQTT_3_1: "MQIsdp", MQTT_3_1_1: "MQTT", MQTT_5: "MQTT"}
# Flag in the protocol version of a CONNECT of 3.1 or 3.1.1: the client is a Mosquitto bridge.
BRIDGE_FLAG = 0x80
VERSION_NAMES = {MQTT_3_1: "MQTT 3.1", MQTT_3_1_1: "MQTT 3.1.1", MQTT_5: "MQTT 5.0"}

# Control packet types (MQTT 5 §2.1.2): the upper half of a packet's first octet.
CONNECT = 1
CONNACK = 2
PUBLISH = 3
PUBACK = 4
PUBREC = 5
PUBREL = 6
PUBCOMP = 7
SUBSCRIBE = 8
SUBACK = 9
UNSUBSCRIBE = 10
UNSUBACK = 11
PINGREQ = 12
PINGRESP = 13
DISCONNECT = 14
AUTH = 15
# Not a packet type: stands for the properties of a will (MQTT 5 §3.1.3.2).
WILL = 16

# Identifiers of the properties of PUBLISH and of a will (MQTT 5 §2.2.2.2).
PAYLOAD_FORMAT_INDICATOR = 1
MESSAGE_EXPIRY_INTERVAL = 2
CONTENT_TYPE = 3
RESPONSE_TOPIC = 8
CORRELATION_DATA = 9
SUBSCRIPTION_IDENTIFIER = 11
WILL_DELAY_INTERVAL = 24
TOPIC_ALIAS = 35
USER_PROPERTY = 38

# Senders of a packet: some packets and properties may come from one side only.
CLIENT = "client"
SERVER = "server"

# The lower half of PUBLISH's first octet.
RETAIN_FLAG = 0x01
DUP_FLAG = 0x08

VARIABLE_MAX = 268_435_455  # §1.5.5: what four octets of seven bits each hold
STRING_MAX = 65_535  # §1.5.4, §1.5.6: what the two octets of a length hold
IDENTIFIER_MAX = 65_535  # §2.2.1: packet identifiers are 1 to this
HEADER_MAX = 5  # the first octet and a remaining length of four


class PacketLimits(NamedTuple):
    """Limits of one packet.

        packet_octets     bytes, the fixed header included
        properties        number of properties
        subscriptions     number of topic filters
        payload_octets    bytes of a PUBLISH's payload (checked by the server)
    """

    packet_octets: int = VARIABLE_MAX + HEADER_MAX
    # A packet has at most 13 other properties, so this limits user properties: far more than any client
    # sends, and decoded in less than a millisecond.
    properties: int = 256
    # Home Assistant sends 500 at once, the longest list known to us.
    subscriptions: int = 1024
    payload_octets: int = VARIABLE_MAX


DEFAULT_LIMITS = PacketLimits()
