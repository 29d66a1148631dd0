"""Fast lane: handles the packets of a socket read in one compiled walk, without a Python object per message.

The Stream passes the event loop's input buffer. A plain PUBLISH (mqtt.wire.frames) goes straight to its
destinations, a plain acknowledgement straight to Inbound or Outbound (flows). Every other packet goes to
``connection.packet``, the slow lane, which gives the same answers (mqtt.server.publish). Errors that end the
connection go to ``connection.fail``. Never switches greenlets.

A PUBLISH is stored as a record of kind 2 (mqtt.wire.crossing). Its routing (the exchange's name, and the
topic as routing key) is remembered with the route. The routing is written over the topic and the bytes in
front of the topic, which are no longer needed.
"""
from functools import partial

from gomq_py import octets
from gomq_py.broker.routing import route as routes
from gomq_py.broker.routing.route import RememberedRoutes
from gomq_py.mqtt.server import flows as _flows
from gomq_py.mqtt.server.large_packet import LargePacket
from gomq_py.mqtt.server.publish import publish_later, route_of, routing_of
from gomq_py.mqtt.wire import crossing
from gomq_py.mqtt.wire.constants import CLIENT, HEADER_MAX, PUBCOMP, PUBLISH, PUBREL
from gomq_py.mqtt.wire.errors import MQTTError
from gomq_py.mqtt.wire.frames import PacketWalk
from gomq_py.net import stream as streams
from gomq_py.storage.message import Message

# Octets in front of a large packet, for its routing: two short strings.
FRONT = 512


class LaneParts:
    """Objects shared by all connections with one protocol ``version``: the packet parser ``walk``, and the
    Message for each PUBLISH.
    """

    __slots__ = ("walk", "message")

    def __init__(self, version):
        self.walk = PacketWalk(version, CLIENT)
        self.renew()

    def renew(self):
        """Replace ``message`` by a new Message, because a queue or store keeps the old one."""
        message = Message()
        message.kind = crossing.KIND
        message.may_wait = True
        self.message = message


class FastLane(streams.Lane):
    """Handles one connection's packets, within ``limits`` (PacketLimits).

        is_slow       every PUBLISH goes to ``connection.packet(kind, walk)``, which may end the read
        is_blocked    an alarm stops reading at every PUBLISH
        publishes     count of QoS 0 publishes that the fast lane has handled
        inbound       the client's Inbound, which handles QoS 1 and 2; None until its first such packet
    """

    published = confirmed_count = 0  # QoS 0 asks for no answer

    __slots__ = (
        "connection", "inbound", "outbound", "buffers", "scheduler", "parts", "limits", "payload_max",
        "remembered", "known", "large", "at", "now_ms", "is_slow", "is_blocked", "held", "stored_copies",
        "publishes",
    )

    def __init__(self, connection, buffers, scheduler, parts, limits):
        self.connection = connection
        self.outbound = connection.outbound
        self.buffers = buffers
        self.scheduler = scheduler
        self.parts = parts
        self.limits = limits
        self.payload_max = limits.payload_octets
        # ``inbound`` is made for the first publish at QoS 1 or 2, ``remembered`` for the first of all.
        self.inbound = self.remembered = None
        self.known = b""
        self.large = None
        self.at = self.buffers.input_at
        self.now_ms = self.stored_copies = self.publishes = 0
        self.is_slow = self.is_blocked = self.held = False

    def set_modes(self, is_slow, is_blocked):
        self.is_slow = is_slow
        self.is_blocked = is_blocked

    def set_inbound(self, inbound):
        """Set the Inbound, which the connection makes for the first packet of QoS 1 or 2."""
        self.inbound = inbound

    def process(self, start, end, now_ms):
        """Handle the packets in bytes ``start`` to ``end`` of the input buffer. Returns the offset after the
        last handled packet. Does not raise MQTTError.
        """
        self.scheduler.begin(now_ms)
        self.now_ms = now_ms
        self.held = False
        self.stored_copies = 0
        parts = self.parts
        walk = parts.walk
        if walk.limits is not self.limits:
            walk.set_limits(self.limits)
        walk.know(self.known)
        try:
            if self.large is not None:
                start = self._gather(start, end)
                if self.large is not None or self.held:
                    return start
            self.at = self.buffers.input_at
            walk.begin(self.buffers.input, start, end)
            position = self._walk(self.is_blocked, True)
            if position < end and not self.held:
                position = self._begin_large(position, end)
            return position
        except MQTTError as error:
            self.connection.fail(error)
        finally:
            walk.finish()
            parts.message.publisher = None
        return end

    def finish(self):
        """Deliver the new messages to consumers, and send answers. Called at the end of a read."""
        self.scheduler.finish()
        if self.outbound.answers is not None:
            self.outbound.done()
        if self.inbound is not None:
            self.inbound.done()

    def close(self):
        """Drop a partly received large packet, because the connection ends."""
        if self.large is not None:
            large = self.large
            self.large = None
            large.end()

    def _walk(self, is_blocked, may_hold):
        """Handle packets until the input ends or reading must stop. Returns the first offset not handled.
        Sets ``held`` if reading must stop. ``is_blocked``: stop at any PUBLISH. ``may_hold``: stop at a QoS 2
        PUBLISH whose identifier cannot be recorded.
        """
        walk = self.parts.walk
        while True:
            kind = walk.next_packet()
            if kind == 0:
                return walk.position
            if kind == PUBLISH:
                if is_blocked:
                    self.held = True
                    self.connection.pause_for_alarm()
                    return walk.at
                if walk.qos == 2 and may_hold and self._inbound().pause_if_stuck():
                    self.held = True
                    return walk.at
                if walk.plain and not self.is_slow and self._publish():
                    if self.held:
                        return walk.position
                    continue
            elif kind <= PUBCOMP and walk.plain:
                if kind == PUBREL:
                    self._inbound().released(walk.packet_identifier)
                else:
                    self.outbound.acknowledged(kind, walk.packet_identifier)
                continue
            if not self.connection.packet(kind, walk):
                self.held = True
                return walk.position

    def _publish(self):
        """Publish the message of the current packet. Returns False if connection.packet() must handle it."""
        walk = self.parts.walk
        if walk.retain or walk.topic_alias_at >= 0 or walk.payload_format_at >= 0 or (
                walk.payload_length > self.payload_max):
            return False
        route = self._route()
        if route is None:
            return False
        length = len(route.routing)
        routing_at = walk.topic_at + walk.topic_length - length
        if routing_at < 0:
            return False
        inbound = self._inbound() if walk.qos else None
        if inbound is not None:
            state = inbound.begin(walk.qos, walk.packet_identifier)
            if state != _flows.NEW:
                if state != _flows.AGAIN:
                    return False
                if not inbound.again(walk.packet_identifier):
                    self.held = True
                return True
        octets.copy(self.at, routing_at, route.routing, 0, length)
        message = self._filled(walk)
        message.routing_at = routing_at
        message.routing_length = length
        if walk.qos == 2:
            inbound.received.begin(walk.packet_identifier, route.queues, message)
        answer = routes.to_all(message, route)
        if answer > routes.SOME_REFUSED:
            self._wait(route, (answer >> 1) - 1, answer & 1 == 0)
        else:
            self._stored(route, walk.qos, walk.packet_identifier, answer == routes.ALL)
            if answer != routes.ALL and inbound is not None and inbound.is_over:
                self.held = True
            self.stored_copies += len(route.queues)
            if self.stored_copies >= routes.LOOK_AFTER:
                self.stored_copies = 0
                if not self.connection.has_time():
                    self.held = True
        return True

    def _filled(self, walk):
        """Fill and return the message of the current PUBLISH, without its routing."""
        message = self.parts.message
        if message.publisher is None:
            message.publisher = self.connection.session
        message.buffer = self.at
        message.properties_at = walk.properties_at
        message.properties_length = walk.properties_length
        message.body_at = walk.payload_at
        message.body_length = walk.payload_length
        message.timestamp_ms = self.now_ms
        message.expires_at_ms = 0
        if walk.message_expiry_at >= 0:
            seconds = octets.be32(self.at, walk.message_expiry_at)
            message.expires_at_ms = self.now_ms + seconds * 1000
        message.flags = walk.qos << crossing.QOS_SHIFT
        message.persistent = walk.qos > 0
        message.at_once = walk.qos == 2
        return message

    def _route(self):
        """Return the Route of the current topic, or None if it cannot be remembered."""
        walk = self.parts.walk
        if self.remembered is None:
            self.remembered = RememberedRoutes(partial(_route_of, self.connection))
        route = self.remembered.last
        if walk.is_known and route is not None and route.is_current():
            return route
        route = self.remembered.find(self.at, walk.topic_at, walk.topic_length)
        # Publishers stay with one topic for long.
        self.known = self.remembered.last_key if route is not None else b""
        walk.know(self.known)
        return route

    def _inbound(self):
        return self.connection.inbound if self.inbound is None else self.inbound

    def _wait(self, route, at, taken):
        """Leave the message to publish_later(), which waits until a destination can store it. The connection
        handles no more packets of this read. ``at``: number of that destination in the route. ``taken``: True
        if all earlier destinations stored the message.
        """
        message = self.parts.message
        walk = self.parts.walk
        message.own()
        self.parts.renew()
        self.held = True
        publish_later(
            self.connection, walk.qos, walk.packet_identifier, message, route.queues, at, bool(taken))

    def _stored(self, route, qos, packet_identifier, taken):
        """Count a message that was offered to all destinations of the route, and note its answer."""
        is_routed = route.count() > 0
        if qos:
            queues = route.queues if route.durable or not taken else None
            self._inbound().stored(qos, packet_identifier, taken, is_routed, queues)
        else:
            self.publishes += 1

    # large packets

    def _begin_large(self, start, end):
        """Gather the next packet if it is too large for the buffer. Returns the first offset not handled."""
        at = self.at
        size = 0
        for place in range(1, HEADER_MAX):
            if start + place >= end:
                return start
            octet = at[start + place]
            size |= (octet & 0x7F) << 7 * (place - 1)
            if octet < 0x80:
                size += 1 + place
                break
        if size <= self.buffers.reserve:
            return start
        if self.is_blocked and at[start] >> 4 == PUBLISH:
            self.connection.pause_for_alarm()
            return start
        self.large = LargePacket(self.connection, FRONT, size, at[start] >> 4 == PUBLISH, self.limits)
        return self._gather(start, end)

    def _gather(self, start, end):
        """Add bytes to a large packet, and handle it when complete. Returns the offset after these bytes."""
        large = self.large
        end = min(end, start + large.missing())
        large.add(bytes(self.buffers.input[start:end]))
        if large.missing():
            return end
        self.large = None
        large.end()
        if large.refuse():
            return end
        self.at = octets.pointer(large.octets)
        self.parts.walk.begin(large.octets, FRONT, len(large.octets))
        # Take a packet that was in flight when an alarm began: its octets are here and would only wait.
        self._walk(False, False)
        return end


def _route_of(connection, key):
    """Return the Route of a topic (bytes), with its ``routing``; None if the route cannot be remembered."""
    route = route_of(connection, key)
    if route is not None:
        route.routing = routing_of(connection, key)
    return route
