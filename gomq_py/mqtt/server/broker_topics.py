"""Broker topics: publishes ``$SYS/broker/...``, with Mosquitto's names, for clients that subscribe to them.

Connections report the sessions that have a filter for these topics. While a vhost has such sessions, the
values are published to its MQTT exchange at QoS 0, every ten seconds and soon after each subscribe; otherwise
nothing is computed. Values are never retained. Counting and publishing run in slices. Never switches
greenlets.
"""
import math
import time
from collections import Counter

import gomq_py
from gomq_py.hub.scheduler import Job, SliceClock
from gomq_py.mqtt.model.session_kind import EXTRA, TYPE
from gomq_py.mqtt.server.login import DOOR
from gomq_py.mqtt.wire import crossing
from gomq_py.mqtt.wire.topics import BROKER_PREFIX, split_shared
from gomq_py.observability.resources import used_memory
from gomq_py.storage.message import Message

# Mosquitto's sys_interval; and the delay after a subscribe, shared by all who subscribe meanwhile.
INTERVAL_MS, SOON_MS = 10_000, 200
STORED, STORED_OCTETS = "store/messages/count", "store/messages/bytes"
# Periods of loads; intervals shorter than this say little and leave the averages unchanged.
MINUTES, SHORTEST_S = (1, 5, 15), 1
# Topic of each counter -> topic of its load.
_LOADS = {
    "bytes/received": "bytes/received", "bytes/sent": "bytes/sent",
    "publish/messages/received": "publish/received", "publish/messages/sent": "publish/sent",
    "publish/messages/dropped": "publish/dropped",
}


class BrokerTopics:
    """Publishes the ``$SYS/broker/...`` topics of one MQTTServer."""

    def __init__(self, server):
        self._broker = server.broker
        self._hub = server.hub
        self._sessions = {}  # connected sessions with such a filter
        self._timer = None
        self._is_soon = False
        self._most_clients = 0
        self._began = time.monotonic()
        self._loads = Loads()
        self._telling = None  # the job that publishes, while it runs

    def connected(self, session):
        """Add the session of a client that has connected, if the session has a filter for ``$SYS`` topics."""
        if wants(session):
            self.subscribed(session)

    def subscribed(self, session):
        """Add the session of a connected client that has subscribed to ``$SYS`` topics."""
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
        if self._telling is not None:
            self._start(SOON_MS)
            return
        telling = self._telling = Telling(self, self._tell())
        goes_on = False
        try:
            goes_on = telling.step()
        finally:
            if goes_on:
                self._hub.scheduler.start(telling)
            else:
                self.told()

    def told(self):
        """Schedule the next round, because a round of values was published or has failed."""
        self._telling = None
        if self._sessions and self._timer is None:
            self._start(INTERVAL_MS)

    def _tell(self):
        """A generator that counts, then publishes the values to subscribers, in small steps."""
        for session in list(self._sessions):
            if session.connection is None or not wants(session):
                del self._sessions[session]
            yield
        vhosts = dict.fromkeys(
            session.connection.vhost for session in self._sessions if session.connection is not None)
        if not vhosts:
            self._loads = Loads()
            return
        counts: Counter = Counter()
        yield from self._count(counts)
        values = self._values(counts)
        for vhost in vhosts:
            for topic, text in values.items():
                publish(vhost, topic, text)
                yield

    def _count(self, counts):
        """A generator that adds statistics to ``counts``, one client or session queue per step."""
        clients = list(self._hub.clients)
        counts.update(self._totals())
        for one in clients:
            counts["bytes/received"] += one.stream.received_octets if one.stream is not None else 0
            counts["bytes/sent"] += one.output.sent_octets if one.output is not None else 0
            counts["publish/messages/received"] += sum(each.publishes for each in one.publishers())
            sent, dropped = one.unkept()
            counts["publish/messages/sent"] += sent
            counts["publish/messages/dropped"] += dropped
            yield
        for vhost in list(self._broker.vhosts.values()):
            for session in list(vhost.extras[EXTRA].by_client.values()):
                if session.queue is not None:
                    counts[STORED] += session.queue.ready_count + session.queue.unacked_count
                    counts[STORED_OCTETS] += session.queue.ready_bytes
                    counts["publish/messages/sent"] += session.queue.delivered
                yield

    def values(self):
        """Return {topic: value as text}. Bytes and publishes are those of all protocols since the broker's
        start.
        """
        counts: Counter = Counter()
        for _ in self._count(counts):
            pass
        return self._values(counts)

    def _values(self, counts):
        connected = self._hub.clients.count_of_door(DOOR)
        self._most_clients = max(self._most_clients, connected)
        all_sessions = [vhost.extras[EXTRA] for vhost in self._broker.vhosts.values()]
        sessions = sum(len(each.by_client) for each in all_sessions)
        loads = self._loads.updated({name: counts[count] for count, name in _LOADS.items()}, time.monotonic())
        shown = {
            "version": f"gomq-py {gomq_py.__version__}",
            "uptime": f"{int(time.monotonic() - self._began)} seconds",
            "clients/total": max(sessions, connected), "clients/connected": connected,
            "clients/disconnected": max(0, sessions - connected), "clients/maximum": self._most_clients,
            "subscriptions/count": sum(each.subscriptions for each in all_sessions),
            "shared_subscriptions/count": sum(each.shared for each in all_sessions),
            "retained messages/count": sum(each.retained.index.count for each in all_sessions),
            STORED: counts[STORED], STORED_OCTETS: counts[STORED_OCTETS],
            **{name: counts[name] for name in _LOADS}, "heap/current": used_memory(),
            **{f"load/{name}": f"{value:.2f}" for name, value in loads.items()},
        }
        return {f"{BROKER_PREFIX}broker/{name}": str(value) for name, value in shown.items()}

    def _totals(self):
        """Return {topic without $SYS/broker/: count} for connections and queues that no longer exist."""
        counts = dict.fromkeys(_LOADS, 0)
        for totals in (self._broker.totals, *(vhost.totals for vhost in self._broker.vhosts.values())):
            counts["bytes/received"] += totals.received_octets
            counts["bytes/sent"] += totals.sent_octets
            counts["publish/messages/received"] += totals.publishes
            counts["publish/messages/dropped"] += totals.dropped
            counts["publish/messages/sent"] += totals.delivered(TYPE)
        return counts


def wants(session):
    """Return whether a session has a filter for ``$SYS`` topics."""
    return bool(session.subscriptions) and any(is_of_broker(one) for one in session.subscriptions)


def is_of_broker(topic_filter):
    return split_shared(topic_filter)[1].startswith(BROKER_PREFIX)


class Telling(Job):
    """A job that publishes one round of values. Runs the generator ``steps`` in slices."""

    name = "telling $SYS topics"

    def __init__(self, topics, steps):
        super().__init__()
        self._topics = topics
        self._steps = steps

    def step(self):
        clock = SliceClock(every=8)
        for _ in self._steps:
            if clock.is_over():
                return True
        self._topics.told()
        return False

    def failed(self, error):
        """End this round; the next round follows."""
        self._topics.told()
        return False


class Loads:
    """Computes events per minute as in Mosquitto's ``$SYS/broker/load/...``: moving averages over 1, 5 and 15
    minutes, from the first call on. A counter may fall slightly, after a closed client was counted twice.
    """

    def __init__(self):
        self._last_s = 0.0
        self._counts = {}
        self._averages = {}  # {(name, minutes): in a minute}

    def updated(self, counts, now_s):
        """Return {"name/Nmin": events per minute} from ``counts``, {name: count}; {} at the first call."""
        if not self._counts:
            self._counts, self._last_s = counts, now_s
        elapsed_s = now_s - self._last_s
        if elapsed_s >= SHORTEST_S:
            for name, count in counts.items():
                self._update(name, max(0, count - self._counts[name]) * 60 / elapsed_s, elapsed_s)
            self._counts, self._last_s = counts, now_s
        return {f"{name}/{minutes}min": value for (name, minutes), value in self._averages.items()}

    def _update(self, name, now, elapsed_s):
        for minutes in MINUTES:
            before = self._averages.get((name, minutes), now)
            kept = math.exp(-elapsed_s / (60 * minutes))
            self._averages[name, minutes] = now + (before - now) * kept


def publish(vhost, topic, text):
    """Send a value to the subscribers of its topic in a vhost, as a QoS 0 message."""
    exchange, now_ms = vhost.extras[EXTRA].exchange, vhost.timers.now_ms()
    key = crossing.swap(topic.encode())
    targets: dict = {}
    exchange.match(key.decode(), None, targets)
    for target in targets:
        message = Message()
        message.assign(b"", key, b"", text.encode(), now_ms, 0)
        message.set_kind(crossing.KIND, crossing.record_flags(0, False))
        target.publish(message)
