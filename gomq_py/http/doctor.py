"""Serves /api/doctor: present and coming problems of this broker, with remedies. Specific to gomq-py.

The Doctor examines the broker at most once in two seconds, however many clients ask. It reads the broker's
state in slices, and diagnosis.checks decides what is a problem. The growth of a queue is its change between
two examinations, so the first examination finds no growth.
"""
import time
from collections import defaultdict

from flask import Blueprint, g
from gevent.lock import BoundedSemaphore

from gomq_py.broker.features.arguments import STREAM, queue_type_of
from gomq_py.http import answers, shapes
from gomq_py.http.api.health import certificates
from gomq_py.http.api.nodes import node_shape
from gomq_py.http.login import MANAGEMENT, MONITORING, POLICYMAKER, access, sees_vhost
from gomq_py.http.own_metrics import OwnFamilies, loop_lag_s
from gomq_py.hub.threads import in_thread
from gomq_py.hub.turns import paced
from gomq_py.diagnosis import checks, clusters
from gomq_py.diagnosis.checks import QueueChecks

blueprint = Blueprint("doctor", __name__)
# Visibility of findings without a virtual host: users with the tag monitoring; policymakers, too.
OF_NODE, OF_LINKS = "node", "links"
# Queues between two checks of the clock: about a microsecond each.
LOOK = 20
# Queues whose growth is watched: the first ones with this many messages.
WATCHED_MAX, WATCHED_FROM = 1000, 100
# Growth is measured over at least GROWTH_FROM_S, and at most about twice GROWTH_UNTIL_S.
GROWTH_FROM_S, GROWTH_UNTIL_S = 10.0, 30.0
DAY_S = 86400
EXAMINED_FOR_S = 2.0


class Doctor:
    """Looks for problems of a broker, and keeps its findings for ``interval_s`` seconds. A finding is
    (visibility, Finding). The visibility is a vhost's name, OF_NODE or OF_LINKS; the view shows users only
    what they may see.
    """

    def __init__(self, interval_s=EXAMINED_FOR_S, now_s=time.monotonic):
        self._interval_s = interval_s
        self._now_s = now_s
        self._lock = BoundedSemaphore(1)
        self._found = None
        self._at_s = 0.0
        self._lengths = {}  # (vhost, queue): (earlier, later), each (when, ready messages)
        self._flushes = 0, 0.0

    def examined(self, node):
        """Return the findings about the Node, a list of (visibility, Finding), at most ``interval_s`` old.
        May switch greenlets.
        """
        with self._lock:  # concurrent callers share the result
            if self._found is None or self._now_s() - self._at_s >= self._interval_s:
                self._found = list(self._examine(node))
                self._at_s = self._now_s()
        return self._found

    def close(self):
        self._found, self._lengths = None, {}

    def _examine(self, node):
        yield from ((OF_NODE, one) for one in self._of_node(node) if one is not None)
        yield from ((OF_LINKS, one) for one in self._of_links(node) if one is not None)
        now_s, lengths, unacked = time.time(), {}, defaultdict(list)
        for queue, since_s in OwnFamilies(node).oldest_unacked().items():
            unacked[queue.vhost].append((queue.name, now_s - since_s))
        for vhost in list(node.broker.vhosts.values()):
            queue_checks = QueueChecks(vhost.name)
            for queue in paced(list(vhost.queues.values()), LOOK):
                self._check(queue_checks, queue, lengths)
            for name, age_s in paced(unacked[vhost.name], LOOK):
                queue_checks.look_at_age(name, age_s)
            yield from ((vhost.name, one) for one in queue_checks.findings())
            yield from ((vhost.name, checks.of_store(vhost.name, name)) for name in vhost.stores.closed())
        self._lengths = lengths

    def _check(self, queue_checks, queue, lengths):
        if queue_type_of(queue.arguments) == STREAM:
            # a stream keeps its messages and grows
            queue_checks.look(queue.name, shapes.queue_state(queue), 0, True)
            return
        ready_count = queue.ready_count
        queue_checks.look(queue.name, shapes.queue_state(queue), ready_count, queue.consumer_count > 0)
        if queue.aside is not None:
            queue_checks.look_at_aside(queue.name, queue.aside.count, queue.aside.reasons)
        if ready_count >= WATCHED_FROM and len(lengths) < WATCHED_MAX:
            now = self._now_s(), ready_count
            earlier, later = self._lengths.get((queue.vhost, queue.name), (now, now))
            if now[0] - later[0] >= GROWTH_UNTIL_S:
                earlier, later = later, now
            lengths[queue.vhost, queue.name] = earlier, later
            if now[0] - earlier[0] >= GROWTH_FROM_S:
                queue_checks.look_at_growth(queue.name, ready_count, earlier[1], now[0] - earlier[0])

    def _of_node(self, node):
        yield from checks.of_node(node_shape())
        yield from clusters.findings(node.cluster_figures())
        ends = [ends_s for _, ends_s in certificates()]
        if ends:
            yield checks.of_certificate((min(ends) - time.time()) / DAY_S)
        yield checks.of_blocked(sum(
            getattr(one, "flow", None) == "blocked" for one in paced(node.clients.all(), LOOK)))
        damaged, kept = in_thread(node.broker.damage)  # it lists folders
        yield from checks.of_damage(damaged, len(kept), kept)
        yield checks.of_flushes(self._mean_flush_s(node))
        yield checks.of_loop(loop_lag_s())

    @staticmethod
    def _of_links(node):
        shovels, federation = node.shovels, node.federation
        for shovel in paced([] if shovels is None else map(shovels.described, shovels.all())):
            yield checks.of_link(
                "shovel", shovel["vhost"], shovel["name"], shovel["state"], shovel.get("error"))
        for link in paced([] if federation is None else (one.described() for one in federation.links())):
            yield checks.of_link(
                "federation", link["vhost"], link["upstream"], link["status"], link.get("error"))

    def _mean_flush_s(self, node):
        """Return the mean duration in seconds of the flushes since the last examination; 0.0 if none."""
        taken = node.broker.durability.disk.sync_seconds
        count, total = sum(taken.counts), taken.total
        before, self._flushes = self._flushes, (count, total)
        return (total - before[1]) / (count - before[0]) if count > before[0] else 0.0


@blueprint.get("/api/doctor")
@access(MANAGEMENT)
def examine():
    """Return the problems that the user may see, the worst first: of queues in vhosts that the user sees,
    with the tag policymaker or monitoring also of shovels and federation links there, and with monitoring of
    the node. An empty list means that no problem was found.
    """
    found = [one for scope, one in answers.node().doctor.examined(answers.node()) if _is_seen(scope, one)]
    found.sort(key=lambda one: one.level != checks.BAD)
    return answers.json_answer({"findings": [one._asdict() for one in found]})


def _is_seen(scope, finding):
    if scope == OF_NODE:
        return MONITORING in g.tags
    if scope == OF_LINKS:
        return bool({MONITORING, POLICYMAKER} & g.tags) and sees_vhost(finding.vhost)
    return sees_vhost(scope)
