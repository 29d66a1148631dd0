"""A vhost without a disk: queues that keep nothing but their counts,
and a log that keeps its records in a list.
"""
from gomq_py.broker.features.queue_type import queue_type_of
from gomq_py.broker.routing.destination import Destination
from gomq_py.broker.signals.totals import QUEUE_COUNTERS
from gomq_py.broker.topology.kinds import Kinds
from gomq_py.broker.topology.vhost import VHost


class FakeQueue(Destination):
    """What a vhost asks of a queue; ``ready`` and ``consumers`` are set by the test."""

    def __init__(
        self, name, vhost="/", durable=False, exclusive_owner=None, auto_delete=False, arguments=None
    ):
        super().__init__(name, durable)
        self.vhost = vhost
        self.exclusive_owner = exclusive_owner
        self.auto_delete = auto_delete
        self.arguments = arguments or {}
        self.type = queue_type_of(self.arguments)
        self.on_unused = None
        self.ready_count = 0
        self.consumer_count = 0
        self.closed = self.paused = self.is_state = False
        self.settings = None
        self.limits = None
        for name in QUEUE_COUNTERS:
            setattr(self, name, 0)

    def __repr__(self):
        return f"<FakeQueue {self.name}>"

    def close(self, reason=""):
        self.closed = True

    def redefine(self, arguments):
        self.arguments = arguments

    def check_binding_from(self, source):
        pass

    def on_added(self, vhost):
        pass

    def redistribution(self):
        return None

    def on_deleted(self, reason):
        pass

    def lose_last_consumer(self):
        self.consumer_count = 0
        self.on_unused(self)


class FakeFactory:
    """Makes FakeQueues; ``removed`` are those that were deleted."""

    def __init__(self, kinds=None):
        self.removed = []
        self.sliced = []
        self.exchange_defaults = {}
        self.kinds = Kinds() if kinds is None else kinds
        self.scheduler = self

    def start(self, job):
        if job not in self.sliced:
            self.sliced.append(job)

    def run_once(self):
        """What the scheduler would do in one poll."""
        self.sliced = [job for job in self.sliced if job.step()]

    def run_all(self):
        """What the scheduler would do."""
        while self.sliced:
            self.run_once()

    def give_delayed_store(self, exchange, route_of, route, changed, incarnation=None):
        exchange.delayed_store = FakeQueue(f"amq.delayed-{exchange.name}")

    def remove_delayed_store(self, exchange):
        self.removed.append(exchange.delayed_store)

    def configure(self, queue, settings):
        queue.settings = settings

    def when_safe(self, callback, concerns=None, hurry=True):
        callback(None)

    def create(self, vhost, name, durable, auto_delete, owner, arguments, incarnation=None):
        return FakeQueue(name, vhost, durable, owner, auto_delete, arguments)

    def incarnation_of(self, queue):
        return b"0123456789abcdef"

    def remove(self, queue, reason, target_of=None):
        self.removed.append(queue)
        queue.close(reason)


class ListLog:
    """A log of definitions in memory; with ``error`` set every append fails with it."""

    def __init__(self):
        self.records = []
        self.error = None

    def append(self, record):
        if self.error is not None:
            raise self.error
        self.records.append(record)


def make_vhost(name="/", kinds=None):
    """(vhost, factory, log) of an empty vhost."""
    factory, log = FakeFactory(kinds), ListLog()
    return VHost(name, factory, log), factory, log


def routed(vhost, exchange, routing_key, headers=None, more_keys=()):
    """The sorted names of the queues a message reaches."""
    return sorted(
        destination.name
        for destination in vhost.route(vhost.exchange(exchange), routing_key, headers, more_keys)
    )
