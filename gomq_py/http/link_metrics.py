"""Link metrics: shovels and federation links, for Prometheus.

Beside own_metrics, with the same prefix. Reads the supervisors' descriptions, without URIs and error texts.
"""
from collections import Counter

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

from gomq_py.http.own_metrics import PREFIX
from gomq_py.hub.turns import paced

SHOVEL, FEDERATION = "shovel", "federation_link"
STATES = ("starting", "running", "stopped", "terminated", "error", "paused", "waiting")
FEDERATION_STATES = (*STATES[:5], "waiting")
SHOVEL_LABELS = ("vhost", "shovel")
FEDERATION_LABELS = ("vhost", "upstream", "type", "name")
# Objects between two checks of the clock.
LOOK = 10
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


class LinkFamilies:
    """Metric families over a node's present state, in the form that ``exposition.rendered`` takes."""

    def __init__(self, node):
        self._node = node

    def overview(self):
        """Number of links in each state. May switch."""
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
        """Families of each shovel. May switch."""
        described = [
            ((one.vhost.name, one.name), self._node.shovels.described(one))
            for one in paced(self._shovels(vhosts), LOOK)
        ]
        yield from _families(SHOVEL, SHOVEL_LABELS, described, "state", (*ROWS, LAG))

    def federation(self, vhosts=None):
        """Families of each federation link. May switch."""
        described = [
            ((one.vhost.name, one.upstream.name, one.type, one.name), one.described())
            for one in paced(self._links(vhosts), LOOK)
        ]
        yield from _families(FEDERATION, FEDERATION_LABELS, described, "status", ROWS)

    def per_object(self):
        """Families of each shovel and federation link. May switch."""
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
    yield GaugeMetricFamily(f"{PREFIX}{kind}_up", f"1 where the {text} runs", labels=labels), (
        (names, int(one[state] == "running")) for names, one in described)
    for field, family, name, help_ in table:
        yield family(f"{PREFIX}{kind}_{name}", help_, labels=labels), (
            (names, one[field]) for names, one in described if one[field] is not None)
