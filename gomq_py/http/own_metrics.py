"""Prometheus metrics that RabbitMQ lacks: message ages and returns, flush times, event loop latency, shovels,
federation.

Costly values, such as the event loop's latency, are measured only during a scrape.
"""
import time
from collections import Counter

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily

from gomq_py.broker.features.arguments import STREAM, queue_type_of
from gomq_py.broker.queues.peeking import describe_groups
from gomq_py.http import sums
from gomq_py.http.cluster_metrics import cluster_families
from gomq_py.hub.threads import in_thread
from gomq_py.hub.turns import give_way, paced
from gomq_py.mqtt.model import administration
from gomq_py.mqtt.wire.constants import VERSION_NAMES as MQTT_VERSIONS

PREFIX = "gomq_"
# Bounds of the distribution of returns per message.
RETURNS = (1, 2, 3, 5, 10, 20)
# Unacknowledged messages of one channel that are searched for the oldest of each queue.
LOOKED_AT = 2000
# Turns of the loop that are timed.
LAG_SAMPLES = 5
LABELS = ("vhost", "queue")
# (field of describe_groups(), metric, help)
GROUPS = (
    ("groups_out", "queue_message_groups_out", "Groups of which a consumer has messages"),
    ("messages_out", "queue_message_groups_messages_out", "Messages of these groups that consumers have"),
    ("groups_waiting", "queue_message_groups_waiting", "Groups with messages that wait"),
    ("messages_waiting", "queue_message_groups_messages", "Messages that wait in their group"),
    ("longest_wait_s", "queue_message_groups_longest_wait_seconds", "Age of the oldest of these messages"),
    ("deepest_group_messages", "queue_message_groups_deepest", "Waiting messages of the group with the most"),
)
# (field of broker.transfer.schedules.Schedules, kind of family, end of the name, help)
SCHEDULES = (
    ("count", GaugeMetricFamily, "schedules", "Schedules of the exchange"),
    ("sent_count", CounterMetricFamily, "schedule_messages_sent", "Messages that schedules have sent"),
    ("missed_count", CounterMetricFamily, "schedule_times_missed",
     "Times of schedules that were left out, successive ones as one"),
)
SET_ASIDE = "Messages that are set aside, because they cannot go where they should"
# Queues between two checks of the clock: some 2 us each, more if messages came back.
LOOK = 10
# shovels and federation links
SHOVEL, FEDERATION = "shovel", "federation_link"
STATES = ("starting", "running", "stopped", "terminated", "error", "paused", "waiting")
FEDERATION_STATES = (*STATES[:5], "waiting")
SHOVEL_LABELS = ("vhost", "shovel")
FEDERATION_LABELS = ("vhost", "upstream", "type", "name")
# field of the description, kind of family, end of the name, help
ROWS = (
    ("moved", CounterMetricFamily, "messages_moved", "Messages that arrived and left their source"),
    ("unconfirmed", GaugeMetricFamily, "messages_unconfirmed", "Messages sent that are not confirmed yet"),
    ("refused", CounterMetricFamily, "refusals", "Times that the destination refused a message"),
    (
        "set_aside", CounterMetricFamily, "messages_rejected",
        "Messages rejected to their source, because the destination refused them too often",
    ),
    ("reconnects", CounterMetricFamily, "reconnects", "Attempts to connect after the first"),
)
LAG = ("lag", GaugeMetricFamily, "lag", "Messages that are ready at the source, where that is known")


class OwnFamilies:
    """Makes the metric families that RabbitMQ lacks, in the form for ``exposition.rendered``."""

    def __init__(self, node):
        self._node = node

    def overview(self):
        """Yield the families of the whole broker, without samples per object. May switch greenlets."""
        yield from self.sync()
        yield from cluster_families(self._node.cluster_figures())
        yield from self.loop()
        yield from self.damage()
        yield self.failed_jobs()
        yield from self.mqtt()
        asides = [one.aside for one in paced(self._movers(), LOOK) if one.aside is not None]
        yield _gauge("messages_set_aside", f"{SET_ASIDE}, of all queues and delayed exchanges",
                     sum(aside.count for aside in asides))
        yield _gauge("schedules", "Schedules of all delayed exchanges", sum(
            schedules.count for _, schedules in self._schedules()))
        now_ms = time.time() * 1000
        ready = max(
            (_age_s(_oldest_ready_ms(queue), now_ms) for queue in paced(self._queues(), LOOK)), default=0
        )
        yield _gauge("oldest_ready_age_seconds", "Age of the oldest ready message of all queues", ready)
        unacked = self.oldest_unacked()
        yield _gauge(
            "oldest_unacked_age_seconds",
            "Time since the delivery of the message that waits longest for its acknowledgement",
            max((_age_s(since_s * 1000, now_ms) for since_s in unacked.values()), default=0),
        )

    def sync(self, _vhosts=None):
        """Yield a histogram: how long flushes take. Confirms wait for flushes."""
        taken = self._node.broker.durability.disk.sync_seconds
        family = HistogramMetricFamily(
            f"{PREFIX}sync_duration_seconds", "Time of a group commit's flush; confirms wait for one"
        )
        family.add_metric((), taken.cumulative(), taken.total)
        yield family

    def damage(self, _vhosts=None):
        """Yield the number of damaged messages on disk, and the number of files kept for an operator. May
        switch greenlets.
        """
        count, kept = in_thread(self._node.broker.damage)  # it lists folders
        yield _counter(
            "damaged_messages",
            "Flushed messages that were found damaged, or gone with their files, since the start", count)
        yield _gauge(
            "kept_files",
            "Files kept of damage, or because they were not where they belong, until an operator deletes "
            "them", len(kept),
        )

    def failed_jobs(self):
        family = CounterMetricFamily(
            f"{PREFIX}jobs_failed", "Slices of background work that ended with an error", labels=("job",)
        )
        for name, count in sorted(self._node.broker.scheduler.failed_jobs.items()):
            family.add_metric((name,), count)
        return family

    def mqtt(self):
        """Yield the numbers of MQTT clients, sessions, subscriptions, retained messages and dropped messages.
        May switch greenlets.
        """
        connected = Counter(
            one.protocol for one in paced(self._node.clients.all(), LOOK) if one.door == "mqtt")
        clients = GaugeMetricFamily(
            f"{PREFIX}mqtt_connections", "Clients that are connected over MQTT", labels=("protocol",))
        for version in MQTT_VERSIONS.values():
            clients.add_metric((version,), connected[version])
        yield clients
        sessions = subscriptions = topics = octets = 0
        for vhost in list(self._node.broker.vhosts.values()):
            for session in paced(administration.sessions_of(vhost), LOOK):
                sessions += 1
                subscriptions += len(session.subscriptions)
            more_topics, more_octets = administration.retained_totals(vhost)
            topics, octets = topics + more_topics, octets + more_octets
        yield _gauge("mqtt_sessions", "Sessions of MQTT clients, connected or not", sessions)
        yield _gauge("mqtt_subscriptions", "Subscriptions of all sessions", subscriptions)
        yield _gauge("mqtt_retained_messages", "Topics that a message is retained for", topics)
        yield _gauge("mqtt_retained_bytes", "Bytes of the payloads that are retained", octets)
        yield _counter(
            "mqtt_messages_dropped",
            "Messages that clients did not get because they do not read, or do not take so large ones",
            sums.of_dropped(self._node.totals(), self._node.clients.all()))

    def loop(self, _vhosts=None):
        """Yield the latency of the event loop, measured now. May switch greenlets."""
        yield _gauge(
            "event_loop_lag_seconds",
            f"Longest of {LAG_SAMPLES} turns of the event loop, timed during the scrape", loop_lag_s())

    def ages(self, vhosts=None):
        """Yield the ages of each queue's oldest ready and oldest unacknowledged message. May switch
        greenlets.
        """
        now_ms = time.time() * 1000
        queues = self._queues(vhosts)
        yield _series("queue_oldest_ready_age_seconds", "Age of the oldest ready message", LABELS, (
            ((queue.vhost, queue.name), _age_s(_oldest_ready_ms(queue), now_ms)) for queue in queues))
        unacked = self.oldest_unacked()
        yield _series(
            "queue_oldest_unacked_age_seconds",
            "Time since the delivery of the oldest unacknowledged message", LABELS,
            (((queue.vhost, queue.name), _age_s(unacked.get(queue, 0) * 1000, now_ms)) for queue in queues))

    def returns(self, vhosts=None):
        """Yield for each queue a cumulative histogram of its messages by the number of times they came back.
        Queues without returned messages are left out.
        """
        queues = (queue for queue in paced(self._queues(vhosts), LOOK) if not _is_stream(queue))
        yield _series(
            "queue_messages_returned", "Messages in the queue that came back at most le times, cumulative",
            (*LABELS, "le"), (sample for queue in queues for sample in _returned(queue)))

    def lags(self, vhosts=None):
        """Yield for each consumer of a stream the number of messages that it has not got yet. May switch
        greenlets.
        """
        samples = []
        for queue in paced(self._queues(vhosts), LOOK):
            if _is_stream(queue) and not queue.closed:
                readers = queue.describe()["consumers"]
                samples += [
                    ((queue.vhost, queue.name, reader["consumer_tag"]), reader["lag"])
                    for reader in readers if "lag" in reader
                ]
        yield _series(
            "stream_consumer_lag", "Messages of the stream that the consumer has not got yet",
            (*LABELS, "consumer_tag"), iter(samples))

    def set_aside(self, vhosts=None):
        """Yield each queue's number of messages that could not be moved and were set aside."""
        queues = paced(self._queues(vhosts), LOOK)
        yield _series("queue_messages_set_aside", SET_ASIDE, LABELS, (
            ((queue.vhost, queue.name), queue.aside.count) for queue in queues if queue.aside is not None))

    def groups(self, vhosts=None):
        described = [
            ((queue.vhost, queue.name), groups) for queue in paced(self._queues(vhosts), LOOK)
            if (groups := describe_groups(queue)) is not None
        ]
        for field, name, text in GROUPS:
            yield _series(name, text, LABELS, ((names, groups[field]) for names, groups in described))

    def schedules(self, vhosts=None):
        found = list(self._schedules(vhosts))
        for field, family, name, text in SCHEDULES:
            yield family(f"{PREFIX}exchange_{name}", text, labels=("vhost", "exchange")), (
                (names, getattr(schedules, field)) for names, schedules in found)

    def per_object(self, vhosts=None):
        """Yield all families that have samples per queue, consumer or exchange. May switch greenlets."""
        for part in (
            self.ages(vhosts), self.returns(vhosts), self.lags(vhosts), self.set_aside(vhosts),
            self.groups(vhosts), self.schedules(vhosts),
        ):
            yield from part

    def _queues(self, vhosts=None):
        found = []
        for vhost in list(self._node.broker.vhosts.values()):
            if vhosts is None or vhost.name in vhosts:
                found += vhost.queues.values()
        return found

    def _delayed(self, vhosts=None):
        return [
            one for vhost in list(self._node.broker.vhosts.values())
            if vhosts is None or vhost.name in vhosts
            for one in list(vhost.exchanges.values()) if one.delayed_store is not None]

    def _schedules(self, vhosts=None):
        """Yield ((vhost, exchange), Schedules) of delayed exchanges that have or had schedules. May switch
        greenlets.
        """
        for one in paced(self._delayed(vhosts), LOOK):
            if one.delayed_store.schedules is not None:
                yield (one.vhost, one.name), one.delayed_store.schedules

    def _movers(self):
        """Return all objects that may set messages aside: queues, and the stores of delayed exchanges."""
        return self._queues() + [one.delayed_store for one in self._delayed()]

    def oldest_unacked(self):
        """Return {queue: Unix seconds of the delivery of its oldest unacknowledged message}. Searches at most
        LOOKED_AT messages per channel. May switch greenlets.
        """
        oldest = {}
        for connection in paced(self._node.clients.all()):
            for channel in paced(list(getattr(connection, "channels", {}).values())):
                unacked = channel.unacked
                sought = unacked.queues()
                for _, holder, _, since_s, _ in unacked.entries(
                    1 if len(sought) == 1 else LOOKED_AT
                ) if sought else ():
                    if since_s < oldest.get(holder.queue, since_s + 1):
                        oldest[holder.queue] = since_s
        return oldest


class LinkFamilies:
    """Makes the metric families of shovels and federation links, in the form for ``exposition.rendered``. No
    label contains a URI or an error text. ``vhosts`` are the names of the wanted vhosts, None for all.
    """

    def __init__(self, node):
        self._node = node

    def overview(self):
        """Yield the number of shovels and of federation links in each state. May switch greenlets."""
        for kind, states, found in (
            (SHOVEL, STATES, (one.state for one in paced(self._shovels(), LOOK))),
            (FEDERATION, FEDERATION_STATES, (one.state for one in paced(self._links(), LOOK))),
        ):
            counts = Counter(found)
            family = GaugeMetricFamily(
                f"{PREFIX}{kind}s", f"{kind.replace('_', ' ').capitalize()}s by state", labels=("state",))
            for state in states:
                family.add_metric((state,), counts[state])
            yield family

    def shovels(self, vhosts=None):
        """Yield families with one sample per shovel, such as its moved messages. May switch greenlets."""
        described = [
            ((one.vhost.name, one.name), self._node.shovels.described(one))
            for one in paced(self._shovels(vhosts), LOOK)
        ]
        yield from _families(SHOVEL, SHOVEL_LABELS, described, "state", (*ROWS, LAG))

    def federation(self, vhosts=None):
        """Yield families with one sample per federation link, such as its moved messages. May switch
        greenlets.
        """
        described = [
            ((one.vhost.name, one.upstream.name, one.type, one.name), one.described())
            for one in paced(self._links(vhosts), LOOK)
        ]
        yield from _families(FEDERATION, FEDERATION_LABELS, described, "status", ROWS)

    def per_object(self):
        """Yield the families of ``shovels()`` and ``federation()``. May switch greenlets."""
        yield from self.shovels()
        yield from self.federation()

    def _shovels(self, vhosts=None):
        shovels = self._node.shovels
        return [] if shovels is None else [
            one for one in shovels.all() if vhosts is None or one.vhost.name in vhosts]

    def _links(self, vhosts=None):
        federation = self._node.federation
        return [] if federation is None else [
            one for one in federation.links() if vhosts is None or one.vhost.name in vhosts]


def _families(kind, labels, described, state, table):
    text = kind.replace("_", " ")
    yield _series(f"{kind}_up", f"1 where the {text} runs", labels, (
        (names, int(one[state] == "running")) for names, one in described))
    for field, family, name, help_ in table:
        yield family(f"{PREFIX}{kind}_{name}", help_, labels=labels), (
            (names, one[field]) for names, one in described if one[field] is not None)


def loop_lag_s():
    """Return the event loop's latency in seconds: the longest of LAG_SAMPLES turns. May switch greenlets."""
    worst = 0.0
    for _ in range(LAG_SAMPLES):
        began = time.perf_counter()
        give_way()
        worst = max(worst, time.perf_counter() - began)
    return worst


def _is_stream(queue):
    return queue_type_of(queue.arguments) == STREAM


def _oldest_ready_ms(queue):
    return 0 if queue.closed or _is_stream(queue) else queue.store.oldest_ready_ms()


def _age_s(since_ms, now_ms):
    return max(0.0, (now_ms - since_ms) / 1000) if since_ms else 0


def _returned(queue):
    if queue.closed:
        return
    counted = queue.store.failed_deliveries(RETURNS)
    if any(counted):
        total = 0
        for bound, count in zip((*map(str, RETURNS), "+Inf"), counted):
            total += count
            yield (queue.vhost, queue.name, bound), total


def _gauge(name, text, value):
    return GaugeMetricFamily(PREFIX + name, text, value=value)


def _counter(name, text, value):
    family = CounterMetricFamily(PREFIX + name, text)
    family.add_metric((), value)
    return family


def _series(name, text, labels, samples):
    return GaugeMetricFamily(PREFIX + name, text, labels=labels), samples
