"""Node: what the management door sees of the process it runs in. Made by the launcher, handed to every app.

The door never reaches for another door: connections come from the hub's ``clients``, shovels and the like
from whoever registers them here.
"""
import time

from gomq_py.broker.signals.totals import CHURN

CLUSTER_NAME = "cluster_name"  # the global parameter, as in RabbitMQ


class Node:
    """One running broker.

    ``listeners()`` answers those that are open, with protocol, address and port; ``name`` is the node's:
    ``gomq@host``. ``shovels``: a shovel.supervisor.Shovels, or None; ``federation``: a
    federation.supervisor.Federation, or None. ``doctor`` is a http.doctor.Doctor, ``log`` a LogRing,
    ``log_source`` wakes who follows it.
    """

    def __init__(
        self, broker, clients, settings, listeners, name, rates, index, feed, shovels=None, federation=None,
        doctor=None, log=None, log_source=None,
    ):
        self.broker = broker
        self.clients = clients
        self.settings = settings
        self.listeners = listeners
        self.rates = rates
        self.index = index
        self.feed = feed
        self.shovels = shovels
        self.federation = federation
        self.doctor = doctor
        self.log = log
        self.log_source = log_source
        self.name = name
        self.started_at = time.time()
        self.started_monotonic = time.monotonic()

    @property
    def cluster_name(self):
        """The broker's name among brokers."""
        return self.broker.cluster_name

    def rename_cluster(self, name):
        """Another name, for connections to come. Raises OSError."""
        self.broker.parameters.set_global(CLUSTER_NAME, name)

    def uptime_s(self):
        """Seconds since the start, by the clock that nobody sets."""
        return time.monotonic() - self.started_monotonic

    def connections(self):
        """Every open connection of every door, in the order of their coming."""
        return self.clients.all()

    def connections_in(self, vhost):
        """Those that opened this vhost."""
        return self.clients.in_vhost(vhost)

    def totals(self):
        """The Totals of every vhost and of those that are gone."""
        return [self.broker.totals, *(vhost.totals for vhost in list(self.broker.vhosts.values()))]

    def churn(self):
        """{what came or went: how often}, by the names of statistics.CHURN."""
        totals, churn = self.totals(), self.clients.churn
        return {
            name: getattr(churn, name)
            for name in ("connection_created", "connection_closed", "channel_created", "channel_closed")
        } | {name: sum(getattr(one, name) for one in totals) for name in CHURN}
