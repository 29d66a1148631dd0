"""Greeting: a CONNECT's requests within the limits of the settings, and the CONNACK that answers them.

Values, made once per connection, between login and the connection.
"""
import os
from base64 import urlsafe_b64encode
from functools import lru_cache

from gomq_py.mqtt.model.sessions import NEVER
from gomq_py.mqtt.server.inbound import TOPIC_ALIASES
from gomq_py.mqtt.wire.constants import IDENTIFIER_MAX, MQTT_5, VARIABLE_MAX, Limits
from gomq_py.mqtt.wire.packets import ConnackPacket

# Client ids for clients without one: 128 random bits, 22 characters.
ASSIGNED_PREFIX, ASSIGNED_OCTETS = "gomq-", 16
PACKET_MAX = VARIABLE_MAX  # the largest value of the setting: no limit
RECEIVE_MAXIMUM = 65_535  # the default of a client that sends none (§3.1.2.11.3)


class Greeting:
    """``expiry_s``: how long the session outlives the connection. Request problem information has no effect:
    reason strings are sent in DISCONNECT alone, which may always have them.
    """

    def __init__(self, connect, settings):
        asked = connect.properties
        self.version = connect.version
        self.clean_start = connect.clean_start
        self.client_id = connect.client_identifier
        self.will = connect.will
        self.is_bridge = connect.is_bridge
        self.receive_maximum = min(
            asked.get("receive_maximum", RECEIVE_MAXIMUM), settings.mqtt_max_inflight_messages)
        self.maximum_packet_size = connect.maximum_packet_size
        self.topic_alias_maximum = asked.get("topic_alias_maximum", 0)
        self._properties = {"topic_alias_maximum": TOPIC_ALIASES}
        # A client of 3.x cannot be told a receive maximum.
        self.inbound_maximum = IDENTIFIER_MAX
        if connect.version >= MQTT_5 and settings.mqtt_max_inflight_messages < IDENTIFIER_MAX:
            self.inbound_maximum = settings.mqtt_max_inflight_messages
            self._properties["receive_maximum"] = self.inbound_maximum
        self.packet_limits = _packet_limits(settings.mqtt_max_packet_size, settings.max_message_size)
        if settings.mqtt_max_packet_size < PACKET_MAX:
            self._properties["maximum_packet_size"] = settings.mqtt_max_packet_size
        if not self.client_id:
            unguessable = urlsafe_b64encode(os.urandom(ASSIGNED_OCTETS)).rstrip(b"=").decode()
            self.client_id = ASSIGNED_PREFIX + unguessable
            self._properties["assigned_client_identifier"] = self.client_id
        self.keep_alive_s = self._keep_alive_s(connect.keep_alive_s, settings.mqtt_max_keep_alive)
        if connect.version >= MQTT_5:
            wanted_s = asked.get("session_expiry_interval", 0)
        else:
            wanted_s = 0 if connect.clean_start else NEVER
        self.expiry_s = min(wanted_s, settings.mqtt_max_session_expiry)
        if self.expiry_s != wanted_s:
            self._properties["session_expiry_interval"] = self.expiry_s  # §3.2.2.3.2

    def _keep_alive_s(self, asked_s, most_s):
        """Keep alive in seconds. A client of 3.x keeps its own, because it cannot be told another."""
        if self.version < MQTT_5 or not most_s or 0 < asked_s <= most_s:
            return asked_s
        self._properties["server_keep_alive"] = most_s  # [MQTT-3.1.2-21]
        return most_s

    def connack(self, session_present):
        packet = ConnackPacket(session_present=session_present, properties=self._properties)
        return packet.encode(self.version)


@lru_cache(maxsize=1)
def _packet_limits(most_octets, payload_octets):
    """Cached: all connections share one object."""
    return Limits(packet_octets=most_octets, payload_octets=payload_octets)
