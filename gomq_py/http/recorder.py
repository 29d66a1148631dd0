"""Samples the counters of the broker, its vhosts and its busy queues from the start on, so that the web page
can show the last ten minutes as soon as it is opened.

A round every half a minute gives the counters to ``Rates``, which keeps them. A round works in slices.
"""
from collections import OrderedDict
from itertools import islice
from operator import attrgetter

import gevent

from gomq_py.broker.signals.totals import QUEUE_COUNTERS
from gomq_py.http.rates import RECORD_INTERVAL_S
from gomq_py.http.statistics import NODE_CHURN, QUEUE, THE_NODE, VHOST, WHOLE, vhost_values, whole_values
from gomq_py.hub.turns import paced
from gomq_py.observability.log import logger

LOG = logger("http")
# A round reads each queue in some 2 us; with more queues than 20 000 rounds are further apart, so that they
# take at most 0.15 % of a core.
QUEUES_A_SECOND = 20_000 / RECORD_INTERVAL_S
# Busy queues that are recorded: 3.4 KiB each, so 3.4 MiB at most. Beyond it, a queue that becomes busy
# replaces the queue without traffic for the longest time.
QUEUES_MAX = 1000
# Recorded vhosts: some 4 KiB each.
VHOSTS_MAX = 100
# Queues between two checks of the clock: below 1 us each.
LOOK = 20

_counters = attrgetter(*QUEUE_COUNTERS)


class Recorder:
    """Records one broker's counters in ``rates``, a Rates. ``spawn`` starts the greenlet."""

    def __init__(self, rates, node, spawn=gevent.spawn):
        self._rates = rates
        self._node = node
        self._spawn = spawn
        self._greenlet = None
        self._vhosts = set()  # recorded
        self._queues = OrderedDict()  # {queue: None}, recorded, the longest without traffic first
        self._counts = {}  # {id of a queue with traffic in this run: sum of its counters in the last round}

    def begin(self):
        """Start the rounds. A second call does nothing."""
        if self._greenlet is None:
            self._greenlet = self._spawn(self._record)
            self._greenlet.name = "recorder"

    def close(self):
        """End the rounds. May switch greenlets."""
        if self._greenlet is not None:
            gevent.kill(self._greenlet)
        self._queues.clear()

    def _record(self):
        while True:
            try:
                self.round()
            except Exception:  # the next round may do better
                LOG.exception("the figures of this half minute are not recorded")
            gevent.sleep(max(RECORD_INTERVAL_S, self._queue_count() / QUEUES_A_SECOND))

    def _queue_count(self):
        return sum(len(vhost.queues) for vhost in self._node.broker.vhosts.values())

    def round(self):
        """Take one sample of each recorded entity. May switch greenlets."""
        node, rates = self._node, self._rates
        rates.record(THE_NODE, node, THE_NODE.read(node))
        rates.record(NODE_CHURN, node, NODE_CHURN.read(node))
        vhosts = list(node.broker.vhosts.values())
        values = [vhost_values((vhost, node)) for vhost in vhosts]
        rates.record(WHOLE, (None, node), whole_values(node.broker, values))
        for vhost, figures in islice(zip(vhosts, values), VHOSTS_MAX):
            rates.record(VHOST, (vhost, node), figures)
        recorded = set(vhosts[:VHOSTS_MAX])
        for vhost in self._vhosts - recorded:
            rates.end_record(VHOST, (vhost, node))
        self._vhosts = recorded
        self._record_queues(vhosts)

    def _record_queues(self, vhosts):
        busy, there, counts = [], set(), {}
        for vhost in vhosts:
            for queue in paced(list(vhost.queues.values()), LOOK):
                count = sum(_counters(queue))
                if count:
                    counts[id(queue)] = count
                    if count != self._counts.get(id(queue)):
                        busy.append(queue)
                if queue in self._queues:
                    there.add(queue)
        self._counts = counts
        for queue in [queue for queue in self._queues if queue not in there]:
            self._end(queue)  # it was deleted
        # Those that are recorded already stay, in the order of their last traffic.
        for queue in [queue for queue in busy if queue in self._queues]:
            self._queues.move_to_end(queue)
        still = len(self._queues) - sum(queue in self._queues for queue in busy)
        for queue in busy:
            if queue in self._queues:
                continue
            if len(self._queues) >= QUEUES_MAX:
                if not still:
                    break
                self._end(next(iter(self._queues)))
                still -= 1
            self._queues[queue] = None
        for queue in paced(list(self._queues), LOOK):
            self._rates.record(QUEUE, queue, QUEUE.read(queue))

    def _end(self, queue):
        del self._queues[queue]
        self._rates.end_record(QUEUE, queue)
