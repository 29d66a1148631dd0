"""Broker topics: ``$SYS/broker/...``, by Mosquitto's names, for clients that subscribe to them.

Beside subscribe and the connection, which say whose session has such a filter. Every ten seconds, and once
soon after somebody subscribes, the values are published to the MQTT exchange of each vhost in which such a
client is connected; while there is none nothing is computed, and no timer runs. They go the way of every
message at QoS 0, and are retained nowhere. Never switches.
"""
import time

import gomq_py
from gomq_py.mqtt.model.session_queue import EXTRA, TYPE
from gomq_py.mqtt.server.loads import Loads
from gomq_py.mqtt.server.login import DOOR
from gomq_py.mqtt.wire import crossing
from gomq_py.mqtt.wire.topics import BROKER_PREFIX, split_shared
from gomq_py.observability.resources import used_memory
from gomq_py.storage.message import Message

# Mosquitto's sys_interval; and how soon somebody who subscribes has the values, however many do.
INTERVAL_MS, SOON_MS = 10_000, 200
# What is counted, and the name that its load has.
_LOADS = {
    "bytes/received": "bytes/received", "bytes/sent": "bytes/sent",
    "publish/messages/received": "publish/received", "publish/messages/sent": "publish/sent",
    "publish/messages/dropped": "publish/dropped",
}


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
        self._loads = Loads()

    def connected(self, session):
        """The client of a session has connected."""
        if wants(session):
            self.subscribed(session)

    def subscribed(self, session):
        """A connected client's session has such a filter."""
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
            self._loads = Loads()
            return
        self._start(INTERVAL_MS)  # also when something of this time cannot be told
        values = self.values()
        for vhost in vhosts:
            publish(vhost, values)

    def values(self):
        """{topic: text}. Counts of octets and of what was published are of all protocols, since the start."""
        connected = sum(1 for one in self._hub.clients if one.door == DOOR)
        self._most_clients = max(self._most_clients, connected)
        sessions = subscriptions = shared = retained = stored = stored_octets = 0
        counts = self._counts()
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
                    counts["publish/messages/sent"] += session.queue.delivered
        loads = self._loads.updated({_LOADS[name]: count for name, count in counts.items()}, time.monotonic())
        shown = {
            "version": f"gomq-py {gomq_py.__version__}",
            "uptime": f"{int(time.monotonic() - self._began)} seconds",
            "clients/total": max(sessions, connected), "clients/connected": connected,
            "clients/disconnected": max(0, sessions - connected), "clients/maximum": self._most_clients,
            "subscriptions/count": subscriptions, "shared_subscriptions/count": shared,
            "retained messages/count": retained, "store/messages/count": stored,
            "store/messages/bytes": stored_octets, **counts, "heap/current": used_memory(),
            **{f"load/{name}": f"{value:.2f}" for name, value in loads.items()},
        }
        return {f"{BROKER_PREFIX}broker/{name}": str(value) for name, value in shown.items()}

    def _counts(self):
        """{topic behind $SYS/broker/: count} since the start, but for what session queues that there are have
        delivered.
        """
        counts = dict.fromkeys(_LOADS, 0)
        for totals in (self._broker.totals, *(vhost.totals for vhost in self._broker.vhosts.values())):
            counts["bytes/received"] += totals.received_octets
            counts["bytes/sent"] += totals.sent_octets
            counts["publish/messages/received"] += totals.publishes
            counts["publish/messages/dropped"] += totals.dropped
            counts["publish/messages/sent"] += totals.delivered(TYPE)
        for one in self._hub.clients:
            counts["bytes/received"] += one.stream.received_octets if one.stream is not None else 0
            counts["bytes/sent"] += one.output.sent_octets if one.output is not None else 0
            counts["publish/messages/received"] += sum(each.publishes for each in one.publishers())
            sent, dropped = one.unkept()
            counts["publish/messages/sent"] += sent
            counts["publish/messages/dropped"] += dropped
        return counts


def wants(session):
    """Whether a session has a filter for topics of the broker."""
    return any(is_of_broker(one) for one in session.subscriptions)


def is_of_broker(topic_filter):
    """Whether a filter, which has no fault, is for topics of the broker."""
    return split_shared(topic_filter)[1].startswith(BROKER_PREFIX)


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
