"""A blocking MQTT client (3.1, 3.1.1 and 5) for tests and load generation.

Needs only the standard library. One thread or greenlet at a time may use it. Nothing runs in the background:
packets are read and PINGREQ is sent while the caller waits in a call. So a program that makes no call for
longer than the keep alive should set ``keep_alive_s=0``.

For tests of a server, the caller may write any bytes (``send``), leave out CONNECT (``login=False``), read
packet by packet (``next_packet``) and send the acknowledgements itself (``automatic=False``).
"""
import socket
import time
from collections import deque
from typing import TYPE_CHECKING, Any

from gomq_py.client.errors import ConnectionClosed, Refused, Timeout
from gomq_py.client.stream import Stream, deadline_in
from gomq_py.client.url import DEFAULT_MQTT_URL, MQTTParameters, parse_mqtt_url
from gomq_py.mqtt.wire import reason_codes
from gomq_py.mqtt.wire.codec import PacketReader
from gomq_py.mqtt.wire.constants import (
    CONNACK, DISCONNECT, MQTT_3_1_1, MQTT_5, PUBACK, SERVER, STRING_MAX, VERSION_NAMES,
)
from gomq_py.mqtt.wire.errors import MQTTError
from gomq_py.mqtt.wire.packets import (
    ConnackPacket, ConnectPacket, DisconnectPacket, Packet, PingreqPacket, PingrespPacket, PubackPacket,
    PubcompPacket, PublishPacket, PubrecPacket, PubrelPacket, SubackPacket, SubscribePacket, Subscription,
    UnsubackPacket, UnsubscribePacket, Will,
)

if TYPE_CHECKING:
    from ssl import SSLContext


class Session:
    """A client's session state, kept from one connection to the next (MQTT 5 §4.1). The next MQTTClient with
    this Session resends unacknowledged messages, and drops QoS 2 messages that were received before.
    """

    def __init__(self) -> None:
        # {packet identifier: PublishPacket, or PubrelPacket after PUBREC}, in the order of sending
        self.outgoing: dict[int, PublishPacket | PubrelPacket] = {}
        self.incoming: set[int] = set()  # packet identifiers of QoS 2 without PUBREL yet
        self._last_identifier = 0

    def next_identifier(self) -> int:
        """Return an identifier that no unacknowledged publish uses. Raises ValueError if all are in use."""
        for _ in range(STRING_MAX):
            self._last_identifier = self._last_identifier % STRING_MAX + 1
            if self._last_identifier not in self.outgoing:
                return self._last_identifier
        raise ValueError("all 65535 packet identifiers are in use")


class MQTTClient(Stream):
    """An MQTT client. The constructor connects and logs in. It raises ConnectionClosed with the server's
    reason code, Timeout, or OSError if nothing listens.

        url                  an MQTT URL; keyword arguments override its query
        properties           MQTT 5 properties of CONNECT, {name: value}
        will                 a gomq_py.mqtt.wire.packets.Will
        session              the Session of an earlier client, to continue it
        connack              attribute: the server's CONNACK
        timeout_s            limits each wait for an answer
        login=False          connect only the socket; the caller sends CONNECT (``connect``) or other bytes
        automatic=False      the caller sends PUBACK, PUBREC, PUBREL and PUBCOMP itself
        socket_module        the module that makes the socket; may be ``gevent.socket``
    """

    def __init__(
        self, url: str = DEFAULT_MQTT_URL, *, socket_module: Any = socket,
        tls_context: "SSLContext | None" = None, timeout_s: float | None = None, version: int | None = None,
        client_identifier: str | None = None, clean_start: bool | None = None,
        keep_alive_s: int | None = None, will: Will | None = None, properties: dict[str, Any] | None = None,
        session: Session | None = None, automatic: bool = True, login: bool = True,
    ) -> None:
        self.parameters: MQTTParameters = parse_mqtt_url(url)
        options = self.parameters.options
        self.version: int = version or options.get("version", MQTT_3_1_1)
        self.client_identifier: str = (
            options.get("client_id", "") if client_identifier is None else client_identifier)
        self.clean_start: bool = options.get("clean_start", True) if clean_start is None else clean_start
        self.keep_alive_s: int = options.get("keep_alive", 0) if keep_alive_s is None else keep_alive_s
        self.will = will
        self.properties = dict(properties or {})
        if "session_expiry" in options:
            self.properties.setdefault("session_expiry_interval", options["session_expiry"])
        if self.properties and self.version < MQTT_5:
            raise ValueError(
                f"{VERSION_NAMES[self.version]} has no properties: {', '.join(self.properties)}")
        self.session = session or Session()
        self.automatic = automatic
        self.connack: ConnackPacket | None = None
        self.messages: deque[PublishPacket] = deque()  # PublishPackets not yet taken
        self.receive_maximum = STRING_MAX  # unacknowledged publishes that the server allows
        self._reader = PacketReader(self.version, SERVER)
        self._packets: deque[Packet] = deque()  # other packets without an automatic answer
        self._refused: dict[int, Any] = {}  # packet identifier -> answer with a failure
        self._answers: dict[int, int] = {}  # packet identifier -> reason code of an accepted publish
        self._aliases: dict[int, str] = {}
        self._pinged_at = 0.0
        super().__init__(self.parameters, socket_module, tls_context, timeout_s)
        if login:
            try:
                self.connect()
            except BaseException:
                self._transport.close()
                raise

    # Requests.

    def connect(self) -> ConnackPacket:
        """Send CONNECT and wait for CONNACK, which is returned.

        Resends the session's unacknowledged messages if the server has the session (in MQTT 3.1 always), and
        drops them otherwise. Raises Timeout, or ConnectionClosed with the reason code if the server refuses.
        """
        parameters = self.parameters
        self.send_packet(ConnectPacket(
            version=self.version, clean_start=self.clean_start, keep_alive_s=self.keep_alive_s,
            properties=self.properties, client_identifier=self.client_identifier, will=self.will,
            user_name=parameters.user_name,
            password=None if parameters.password is None else parameters.password.encode(),
        ))
        self.connack = connack = self._answer(ConnackPacket)
        code = connack.reason_code
        if code:
            self.fail(ConnectionClosed(
                code, self._said("CONNECT refused", CONNACK, code, connack.properties)))
        self.client_identifier = connack.properties.get("assigned_client_identifier", self.client_identifier)
        self.keep_alive_s = connack.properties.get("server_keep_alive", self.keep_alive_s)
        self.receive_maximum = connack.properties.get("receive_maximum", STRING_MAX)
        if not connack.session_present and self.version >= MQTT_3_1_1:
            self.session.outgoing.clear()
            self.session.incoming.clear()
        for packet in list(self.session.outgoing.values()):  # [MQTT-4.4.0-1]
            if isinstance(packet, PublishPacket):
                packet.dup = True
            self.send_packet(packet)
        return connack

    def subscribe(
        self, *filters: str | Subscription, qos: int = 0, properties: dict[str, Any] | None = None,
    ) -> SubackPacket:
        """Subscribe to ``filters``, each a text or a gomq_py.mqtt.wire.packets.Subscription. ``qos``: for the
        texts. Returns the SUBACK, which has a reason code for each filter.
        """
        subscriptions = tuple(
            each if isinstance(each, Subscription) else Subscription(each, qos) for each in filters)
        identifier = self.session.next_identifier()
        self.send_packet(SubscribePacket(
            packet_identifier=identifier, subscriptions=subscriptions, properties=properties))
        return self._answer(SubackPacket, identifier)

    def unsubscribe(self, *filters: str, properties: dict[str, Any] | None = None) -> UnsubackPacket:
        """Unsubscribe from filters. Returns the UNSUBACK."""
        identifier = self.session.next_identifier()
        self.send_packet(UnsubscribePacket(
            packet_identifier=identifier, topic_filters=filters, properties=properties))
        return self._answer(UnsubackPacket, identifier)

    def publish(
        self, topic_name: str, payload: bytes = b"", qos: int = 0, retain: bool = False,
        properties: dict[str, Any] | None = None,
    ) -> int:
        """Publish a message. At QoS 1 and 2 wait until the server has acknowledged it.

        Returns the server's reason code, at QoS 0 always SUCCESS. Raises Refused with the reason code's name,
        Timeout, ConnectionClosed.
        """
        identifier = self.begin_publish(topic_name, payload, qos, retain, properties)
        return self.wait_acknowledged(identifier) if qos else reason_codes.SUCCESS

    def begin_publish(
        self, topic_name: str, payload: bytes = b"", qos: int = 0, retain: bool = False,
        properties: dict[str, Any] | None = None,
    ) -> int:
        """Publish a message without waiting for its acknowledgement. Returns its packet identifier, for
        ``wait_acknowledged``, or 0 at QoS 0. Waits first while the server's limit of unacknowledged publishes
        is reached.
        """
        if qos:
            self.wait_for(lambda: len(self.session.outgoing) < self.receive_maximum, self.timeout_s)
        identifier = self.session.next_identifier() if qos else 0
        packet = PublishPacket(
            topic_name=topic_name, payload=payload, qos=qos, retain=retain, packet_identifier=identifier,
            properties=properties)
        octets = packet.encode(self.version)
        if qos:
            self.session.outgoing[identifier] = packet
        self.send(octets)
        return identifier

    def wait_acknowledged(self, identifier: int | None = None) -> int:
        """Wait until the server has acknowledged the publish with this packet identifier, and return its
        reason code. ``identifier`` None: wait for all publishes, and return SUCCESS. Raises Timeout,
        ConnectionClosed, and Refused with the reason code's name.
        """
        outgoing = self.session.outgoing
        self.wait_for(
            (lambda: not outgoing) if identifier is None else lambda: identifier not in outgoing,
            self.timeout_s)
        if self._refused and (identifier is None or identifier in self._refused):
            packet = self._refused.pop(next(iter(self._refused)) if identifier is None else identifier)
            raise Refused(
                self._said("PUBLISH refused", packet.TYPE, packet.reason_code, packet.properties))
        if identifier is not None:
            return self._answers.pop(identifier, reason_codes.SUCCESS)
        self._answers.clear()
        return reason_codes.SUCCESS

    def next_message(self, timeout_s: float | None = None) -> PublishPacket | None:
        """Return the next received PublishPacket, or None after ``timeout_s`` (None: no limit). Raises
        ConnectionClosed. May switch greenlets.
        """
        return self._next(self.messages, timeout_s)

    def acknowledge(
        self, message: PublishPacket, reason_code: int = 0, properties: dict[str, Any] | None = None,
    ) -> None:
        """Send PUBACK (QoS 1) or PUBREC (QoS 2) for a message. Only needed with ``automatic=False``."""
        kind = PubackPacket if message.qos == 1 else PubrecPacket
        self.send_packet(kind(
            packet_identifier=message.packet_identifier, reason_code=reason_code, properties=properties))

    def ping(self) -> None:
        self.send_sign_of_life()
        self._answer(PingrespPacket)

    def disconnect(self, reason_code: int = 0, properties: dict[str, Any] | None = None) -> None:
        """Send DISCONNECT and close the socket, if open. With code 0x04 the server publishes the will."""
        if self.error is not None:
            return
        try:
            self.send_packet(DisconnectPacket(reason_code=reason_code, properties=properties))
        except ConnectionClosed:
            return  # closed either way
        self.end(ConnectionClosed(0, "closed by this client"))

    def close(self) -> None:
        self.disconnect()

    # Packets and bytes, for tests; ``send`` writes any bytes.

    def send_packet(self, packet: Packet) -> None:
        self.send(packet.encode(self.version))

    def next_packet(self, timeout_s: float | None = None) -> Packet | None:
        """Return the next received packet, or None after ``timeout_s`` (None: no limit). Leaves out PUBLISH,
        packets that a call waits for, and packets that the client answers or handles itself.
        """
        return self._next(self._packets, timeout_s)

    def wait_closed(self, timeout_s: float | None = None) -> ConnectionClosed:
        """Wait until the server closes the connection. Returns the ConnectionClosed error, with a reason code
        if the server sent one. Raises Timeout.
        """
        deadline = deadline_in(self.timeout_s if timeout_s is None else timeout_s)
        try:
            while self.receive(deadline):
                pass
        except ConnectionClosed as error:
            return error
        raise Timeout(f"{self.parameters.host}:{self.parameters.port} has not closed the connection")

    def take_over(self) -> bytes:
        """Let the caller use the socket until ``give_back``. Returns bytes received but not handled yet."""
        octets = bytes(self._reader.buffer)
        self._reader.buffer.clear()
        return octets

    def give_back(self, octets: bytes) -> None:
        """End ``take_over``. ``octets``: the bytes of an incomplete packet that the caller has read."""
        self._reader.feed(octets)

    # Called by the stream.

    @property
    def interval_s(self) -> float | None:
        return self.keep_alive_s

    def due_at(self) -> float:
        """Return the monotonic time in seconds at which the next PINGREQ is due."""
        # Half the keep alive after the last PINGREQ or, if that is later, half the keep alive after the last
        # packet of the side that has been silent for longer.
        return max(self._pinged_at, min(self._last_sent, self._last_received)) + self.keep_alive_s / 2

    def send_sign_of_life(self) -> None:
        self._pinged_at = time.monotonic()
        self.send_packet(PingreqPacket())

    def feed(self, octets: bytes) -> None:
        self._reader.feed(octets)

    def dispatch(self) -> bool:
        """Handle the complete packets that have arrived. Returns False if there was none. Stops after a
        CONNACK, so that ``connect`` handles it before later packets. Raises ConnectionClosed.
        """
        any_packet = False
        try:
            while self.error is None and (packet := self._reader.next_packet()) is not None:
                any_packet = True
                _HANDLERS.get(type(packet), MQTTClient._keep)(self, packet)
                if isinstance(packet, ConnackPacket):
                    break
        except MQTTError as error:
            # The server broke the protocol: send the reason if the version has one, and close.
            if self.version >= MQTT_5 and reason_codes.may_carry(DISCONNECT, error.reason_code):
                self.send_packet(DisconnectPacket(reason_code=error.reason_code))
            self.fail(ConnectionClosed(error.reason_code, f"closed by this client: {error}"), error)
        return any_packet

    # The rest is private.

    def _next(self, inbox, timeout_s):
        deadline = deadline_in(timeout_s)
        while not inbox:
            if not self.receive(deadline):
                return None
        return inbox.popleft()

    def _answer(self, kind, identifier=None):
        """Wait for a packet of class ``kind`` with this packet identifier (None: any), and return it."""

        def arrived():
            return next((packet for packet in self._packets if type(packet) is kind and (
                identifier is None or packet.packet_identifier == identifier)), None)

        self.wait_for(arrived, self.timeout_s)
        packet = arrived()
        self._packets.remove(packet)
        return packet

    def _said(self, what, kind, code, properties):
        text = f"{what}: {reason_codes.name_of(kind, code, self.version)}"
        reason = properties.get("reason_string")
        return f"{text} ({reason})" if reason else text

    def _keep(self, packet):
        self._packets.append(packet)

    def _publish(self, packet):
        alias = packet.properties.get("topic_alias")
        if alias is not None:
            if packet.topic_name:
                self._aliases[alias] = packet.topic_name
            packet.topic_name = packet.topic_name or self._aliases.get(alias, "")
        identifier = packet.packet_identifier
        if packet.qos == 2:
            if identifier not in self.session.incoming:  # duplicates are dropped [MQTT-4.3.3-10]
                self.session.incoming.add(identifier)
                self.messages.append(packet)
            elif not self.automatic:
                self._keep(packet)
        else:
            self.messages.append(packet)
        if packet.qos and self.automatic:
            self.acknowledge(packet)

    def _pubrel(self, packet):
        self.session.incoming.discard(packet.packet_identifier)
        if self.automatic:
            self.send_packet(PubcompPacket(packet_identifier=packet.packet_identifier))
        else:
            self._keep(packet)

    def _acknowledged(self, packet):
        """Handle the acknowledgement that ends a publish: PUBACK, PUBCOMP, or PUBREC with an error code."""
        if self.session.outgoing.pop(packet.packet_identifier, None) is None:
            return self._keep(packet)
        if packet.reason_code >= reason_codes.UNSPECIFIED_ERROR:
            self._refused[packet.packet_identifier] = packet
        elif packet.TYPE == PUBACK and packet.reason_code:
            self._answers[packet.packet_identifier] = packet.reason_code

    def _pubrec(self, packet):
        identifier = packet.packet_identifier
        if packet.reason_code >= reason_codes.UNSPECIFIED_ERROR:
            return self._acknowledged(packet)
        if identifier in self.session.outgoing:
            if packet.reason_code:
                self._answers[identifier] = packet.reason_code
            self.session.outgoing[identifier] = PubrelPacket(packet_identifier=identifier)
        if not self.automatic:
            return self._keep(packet)
        # Unknown identifiers are answered, too, or the server would resend for ever.
        known = identifier in self.session.outgoing or self.version < MQTT_5
        code = reason_codes.SUCCESS if known else reason_codes.PACKET_IDENTIFIER_NOT_FOUND
        self.send_packet(PubrelPacket(packet_identifier=identifier, reason_code=code))

    def _disconnected(self, packet):
        code = packet.reason_code
        self.fail(ConnectionClosed(
            code, self._said("the server disconnected", DISCONNECT, code, packet.properties)))


_HANDLERS = {
    PublishPacket: MQTTClient._publish, PubackPacket: MQTTClient._acknowledged,
    PubrecPacket: MQTTClient._pubrec, PubrelPacket: MQTTClient._pubrel,
    PubcompPacket: MQTTClient._acknowledged, DisconnectPacket: MQTTClient._disconnected,
}
