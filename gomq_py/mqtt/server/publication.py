"""Publication: writes a stored message as the PUBLISH packet for one client.

One Publication per connection serves all messages: measure() gives the packet's size, then write() writes it
into a buffer. MQTT properties are sent as stored; AMQP's are converted (mqtt.wire.crossing). Never switches
greenlets.
"""
from gomq_py import octets
from gomq_py.content import forms
from gomq_py.content.properties import PropertyScan
from gomq_py.mqtt.model import interests as _interests  # noqa: F401  (its .pxd types the interests)
from gomq_py.mqtt.wire import crossing, frames
from gomq_py.mqtt.wire.constants import (
    DUP_FLAG, MESSAGE_EXPIRY_INTERVAL, MQTT_5, RETAIN_FLAG, TOPIC_ALIAS,
)
from gomq_py.mqtt.wire.crossing import KIND

BASIC = forms.BASIC  # so that its .pxd can type it
ALIAS_OCTETS = 3
# Octets of empty basic properties: the flags.
NO_PROPERTIES = 2
# Most aliases per client; more are not worth their memory here.
ALIASES = 64
# Size of a packet that is never sent: larger than any client takes.
NOT_SENDABLE = 1 << 40
# Size of content that does not match its kind: from a damaged store, or of an unknown kind.
UNREADABLE = NOT_SENDABLE + 1

# Shared scratch object: read before anything else has a turn.
_SCAN = PropertyScan()


class Publication:
    """Measures and writes one client's PUBLISH packets.

        packet_max    largest packet in bytes that the client accepts
        alias_max     the highest topic alias to use
        qos, size     of the message measured last
    """

    __slots__ = (
        "version", "packet_max", "alias_max", "qos", "size", "buffers", "interests", "interest", "flags",
        "alias", "aliases_given", "names_topic", "block", "block_at", "block_length", "expiry_at", "expiry_s",
        "properties_length", "topic_length", "is_replayed",
    )

    def __init__(self, interests, buffers, version, packet_max=0, alias_max=0):
        self.interests = interests
        self.buffers = buffers
        self.version = version
        self.packet_max = packet_max or NOT_SENDABLE - 1
        self.alias_max = min(alias_max, ALIASES)
        self.qos = self.size = self.flags = self.alias = self.aliases_given = 0
        self.names_topic = True
        self.is_replayed = False
        self.interest = None
        self.block = octets.pointer(b"\0")
        self.block_at = self.block_length = self.properties_length = self.topic_length = 0
        self.expiry_at = -1
        self.expiry_s = 0

    def find(self, message):
        at = message.routing_at + 1 + message.buffer[message.routing_at]
        return self.interests.find(message.buffer, at + 1, message.buffer[at])

    def measure(self, message, interest, now_ms, qos):
        """Return the size of a message's packet in bytes. A packet above ``packet_max`` must not be sent.
        Returns UNREADABLE if the stored message is malformed. ``qos``: the QoS to send it with; -1: the lower
        of granted and published QoS.
        """
        flags = message.flags
        is_amqp = message.kind == BASIC
        if is_amqp:
            if message.properties_length <= NO_PROPERTIES:
                flags = message.persistent << crossing.QOS_SHIFT
            elif _SCAN.scan(
                message.buffer, message.properties_at, message.properties_at + message.properties_length
            ) == 0:
                flags = crossing.flags_of(
                    message.buffer, message.properties_at, message.properties_length, message.persistent)
            else:
                self.size = UNREADABLE
                return self.size
        elif message.kind != KIND or not crossing.is_block(
            message.buffer, message.properties_at, message.properties_at + message.properties_length
        ):
            self.size = UNREADABLE
            return self.size
        elif flags & crossing.OWN:
            interest = interest.in_own()
        self.interest = interest
        if interest.topic_length == 0:
            self.size = NOT_SENDABLE
            return self.size
        if qos < 0:
            qos = flags >> crossing.QOS_SHIFT & crossing.QOS_MASK
            if qos > interest.qos and not flags & crossing.REPLAYED:
                qos = interest.qos
        self.qos = qos
        self.flags = qos << 1
        self.is_replayed = flags & crossing.REPLAYED != 0
        if flags & crossing.RETAIN and (self.is_replayed or interest.as_published):
            self.flags |= RETAIN_FLAG
        self.topic_length = interest.topic_length
        self.properties_length = self.alias = 0
        self.names_topic = True
        if self.version >= MQTT_5:
            self._measure_properties(message, is_amqp, now_ms)
        self.size = frames.publish_size(
            self.version, self.qos, self.topic_length, self.properties_length, message.body_length)
        return self.size

    def write(self, out, at, message, packet_identifier, dup):
        """Write the last measured message's packet into ``out`` at ``at``. Returns the offset after it."""
        interest = self.interest
        at = frames.write_publish_head(
            out, at, self.version, self.flags | (DUP_FLAG if dup else 0), interest.at, 0,
            self.topic_length, packet_identifier, self.properties_length, message.body_length)
        if self.properties_length:
            at = self._write_properties(out, at, message)
        octets.copy(out, at, message.buffer, message.body_at, message.body_length)
        return at + message.body_length

    def _measure_properties(self, message, is_amqp, now_ms):
        interest = self.interest
        if self.alias_max:
            self._choose_alias(interest)
        self.block_length = message.properties_length
        self.expiry_at = -1
        if is_amqp:
            self._cross(message, now_ms)
        elif self.block_length:
            self.block = message.buffer
            self.block_at = message.properties_at
            if message.expires_at_ms:
                self.expiry_at = crossing.find_property(
                    self.block, self.block_at, self.block_at + self.block_length, MESSAGE_EXPIRY_INTERVAL)
                self.expiry_s = seconds_left(message.expires_at_ms, now_ms)
        self.properties_length += self.block_length
        if not self.is_replayed:
            self.properties_length += len(interest.identifiers)

    def _choose_alias(self, interest):
        """Decide whether the packet uses a topic alias, defines one, or has only the topic name."""
        self.alias = interest.alias
        if self.alias:
            self.names_topic = False
            self.topic_length = 0
            self.properties_length = ALIAS_OCTETS
        elif self.aliases_given < self.alias_max:
            self.alias = self.aliases_given + 1
            self.properties_length = ALIAS_OCTETS

    def _cross(self, message, now_ms):
        """Convert AMQP properties to MQTT properties, in a scratch buffer."""
        expiry_s = -1
        if message.expires_at_ms:
            expiry_s = seconds_left(message.expires_at_ms, now_ms)
        if message.properties_length <= NO_PROPERTIES and expiry_s < 0:
            self.block_length = 0
            return
        scratch = self.buffers.scratch()
        self.block = octets.pointer(scratch)
        self.block_at = 0
        self.block_length = crossing.write_block(
            self.block, 0, message.buffer, message.properties_at, message.properties_length, expiry_s)
        if self.block_length < 0:
            self.block_length = 0

    def _write_properties(self, out, at, message):
        interest = self.interest
        if self.alias:
            out[at] = TOPIC_ALIAS
            octets.put_be16(out, at + 1, self.alias)
            at += ALIAS_OCTETS
            if self.names_topic:
                self._name(message)
        if len(interest.identifiers) and not self.is_replayed:
            octets.copy(out, at, octets.pointer(interest.identifiers), 0, len(interest.identifiers))
            at += len(interest.identifiers)
        if self.block_length:  # else the block is an earlier message's, whose file may be gone
            octets.copy(out, at, self.block, self.block_at, self.block_length)
        if self.expiry_at >= 0:
            octets.put_be32(out, at + self.expiry_at - self.block_at, self.expiry_s)
        return at + self.block_length

    def _name(self, message):
        """Record that the client has learnt the alias of the message's topic."""
        at = message.routing_at + 1 + message.buffer[message.routing_at]
        key = bytes(message.buffer[at + 1:at + 1 + message.buffer[at]])
        self.aliases_given += 1
        self.interests.name(key, self.alias)


def seconds_left(expires_at_ms, now_ms):
    """Return a message's remaining lifetime in seconds, rounded up; 0 if it has expired [MQTT-3.3.2-6]."""
    if expires_at_ms <= now_ms:
        return 0
    return (expires_at_ms - now_ms + 999) // 1000
