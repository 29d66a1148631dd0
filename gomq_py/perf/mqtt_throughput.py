"""``gomq-py-perf mqtt throughput``: MQTT's part of a run: topics, sessions, and delivery of each message to
every subscriber, or to one of each shared subscription.
"""
from gomq_py.perf import shared
from gomq_py.perf.load import Load
from gomq_py.perf.mqtt_roles import MQTTConsumer, MQTTPublisher, connect, consumer_name


class MQTTThroughput(Load):
    """One run over the topics of ``options``."""

    consumer_kind = MQTTConsumer

    def __init__(self, options, progress):
        super().__init__(options, options.topics, progress)
        # The publishers and consumers of one topic follow each other.
        self._of_topic = [
            (range(number * options.publishers, (number + 1) * options.publishers),
             self.consumers[number * options.consumers:(number + 1) * options.consumers])
            for number in range(len(options.topics))
        ]

    def prepare(self):
        """Remove sessions of an earlier run, whose messages would be counted."""
        self.clean_up()
        if not self.options.persistent:
            connect(self.options, f"{self.options.name}-0").close()  # an error here is one line

    def clean_up(self):
        for index in range(len(self.consumers)) if self.options.persistent else ():
            connect(self.options, consumer_name(self.options, index)).close()

    def publisher(self, group, index, quota):
        return MQTTPublisher(
            self.options, self.region.counters(index), index, group, quota, len(self.publishers))

    def expected(self):
        """Messages published and not refused, times the consumers of each."""
        total = 0
        for publishers, consumers in self._of_topic:
            copies = min(1, len(consumers)) if self.options.share else len(consumers)
            for counters in map(self.region.counters, publishers):
                total += copies * (counters[shared.PUBLISHED] - counters[shared.REFUSED])
        return total

    def judge(self, result):
        """Count lost and doubled messages; both are faults if the QoS excludes them, and with --verify so are
        wrong order and unknown bodies.
        """
        options, region = self.options, self.region
        undisturbed = not (self.interrupted or result.faults)
        result.lost, result.doubled = 0, region.total(shared.DOUBLED)
        if undisturbed and self.publishers and self.consumers and not options.consume_count:
            expected = self.expected()
            result.doubled = max(result.doubled, result.consumed - expected)
            result.lost = max(0, expected - (result.consumed - result.doubled))
        unanswered = result.published - result.confirmed if options.qos and undisturbed else 0
        promised = result.lost if options.qos and options.subscribe_qos else 0
        for count, text in (
            (region.total(shared.MISORDERED), "messages out of order"),
            (region.total(shared.CORRUPT), "bodies that nobody published"),
            (result.doubled, "messages more than once"), (promised, "messages lost"),
            (unanswered, "publishes without an answer"),
        ):
            if count:
                result.faults.append(f"{count} {text}")
