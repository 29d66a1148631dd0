"""Broker topics: ``$SYS/broker/...``, by Mosquitto's names, for clients that subscribe to them.

Beside subscribe and the connection, which say whose session has such a filter. Every ten seconds, and once
soon after somebody subscribes, the values are published to the MQTT exchange of each vhost in which such a
client is connected; while there is none nothing is computed, and no timer runs. They go the way of every
message at QoS 0, and are retained nowhere. Never switches.
"""
import time

import gomq_py
from gomq_py.mqtt.model.session_queue import EXTRA
from gomq_py.mqtt.server.login import DOOR
from gomq_py.mqtt.wire import crossing
from gomq_py.mqtt.wire.topics import split_shared
from gomq_py.observability.resources import used_memory
from gomq_py.storage.message import Message

# Mosquitto's sys_interval; and how soon somebody who subscribes has the values, however many do.
INTERVAL_MS, SOON_MS = 10_000, 200
PREFIX = "$SYS/"


class BrokerTopics:
    """Of one MQTTServer."""

    def __init__(self, server):
        self._broker = server.broker
        self._hub = server.hub
        self._sessions = {}  # of clients that have subscribed, as long as they are connected
        self._timer = None
        self._is_soon = False
        self._most_clients = 0
        self._began = time.monotonic()

    def subscribed(self, session):
        """A connected client's session may have such a filter."""
        if wants(session):
            self._sessions[session] = None
            if not self._is_soon:
                self._start(SOON_MS)
                self._is_soon = True

    def _start(self, after_ms):
        if self._timer is not None:
            self._timer.stop()
        self._timer = self._hub.timers.start(after_ms, self._publish)

    def _publish(self):
        self._timer, self._is_soon = None, False
        self._sessions = {
            session: None for session in self._sessions if session.connection is not None and wants(session)
        }
        vhosts = {session.connection.vhost for session in self._sessions}
        if not vhosts:
            return
        self._start(INTERVAL_MS)  # also when something of this time cannot be told
        values = self.values()
        for vhost in vhosts:
            publish(vhost, values)

    def values(self):
        """{topic: text}. Counts of octets and publishes are of all protocols, since the start."""
        clients = [one for one in self._hub.clients if one.door == DOOR]
        connected = len(clients)
        self._most_clients = max(self._most_clients, connected)
        sessions = subscriptions = shared = retained = stored = stored_octets = 0
        received = sent = publishes = 0
        for vhost in self._broker.vhosts.values():
            mine = vhost.extras[EXTRA]
            retained += mine.retained.index.count
            for session in mine.by_client.values():
                sessions += 1
                subscriptions += len(session.subscriptions)
                shared += sum(1 for one in session.subscriptions if split_shared(one)[0])
                if session.queue is not None:
                    stored += session.queue.ready_count + session.queue.unacked_count
                    stored_octets += session.queue.ready_bytes
            received += vhost.totals.received_octets
            sent += vhost.totals.sent_octets
            publishes += vhost.totals.publishes
        for one in clients:
            received += one.stream.received_octets if one.stream is not None else 0
            sent += one.output.sent_octets if one.output is not None else 0
            publishes += one.inbound.publishes if one.inbound is not None else 0
        shown = {
            "version": f"gomq-py {gomq_py.__version__}",
            "uptime": f"{int(time.monotonic() - self._began)} seconds",
            "clients/total": max(sessions, connected), "clients/connected": connected,
            "clients/disconnected": max(0, sessions - connected), "clients/maximum": self._most_clients,
            "subscriptions/count": subscriptions, "shared_subscriptions/count": shared,
            "retained messages/count": retained, "store/messages/count": stored,
            "store/messages/bytes": stored_octets, "bytes/received": received, "bytes/sent": sent,
            "publish/messages/received": publishes, "heap/current": used_memory(),
        }
        return {f"{PREFIX}broker/{name}": str(value) for name, value in shown.items()}


def wants(session):
    """Whether a session has a filter for topics of the broker."""
    return any(split_shared(one)[1].startswith(PREFIX) for one in session.subscriptions)


def publish(vhost, values):
    """Give each value to whoever has subscribed to its topic in a vhost."""
    exchange, now_ms = vhost.extras[EXTRA].exchange, vhost.timers.now_ms()
    for topic, text in values.items():
        key = crossing.swap(topic.encode())
        targets: set = set()
        exchange.match(key.decode(), None, targets)
        for target in targets:
            message = Message()
            message.assign(b"", key, b"", text.encode(), now_ms, 0)
            message.set_kind(crossing.KIND, crossing.record_flags(0, False))
            target.publish(message)
