"""Node: the process as the management door sees it. Made by the launcher, handed to every app.

The door never uses another door: connections come from the hub's ``clients``, shovels and links from their
supervisors.
"""
import time

from gomq_py.broker.signals.totals import CHURN

CLUSTER_NAME = "cluster_name"  # a global parameter, as in RabbitMQ


class Node:
    """One running broker.

    ``listeners()`` returns the open ones, with protocol, address and port; ``name`` is the node's:
    ``gomq@host``. ``shovels``: a shovel.supervisor.Shovels, or None; ``federation``: a
    federation.supervisor.Federation, or None. ``doctor`` is a http.doctor.Doctor, ``log`` a LogRing,
    ``log_source`` wakes its followers.
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
        """The name of the cluster."""
        return self.broker.cluster_name

    def rename_cluster(self, name):
        """Rename the cluster, for new connections. Raises OSError."""
        self.broker.parameters.set_global(CLUSTER_NAME, name)

    def uptime_s(self):
        """Seconds since the start, by the monotonic clock."""
        return time.monotonic() - self.started_monotonic

    def connections(self):
        """Every open connection of every door, in order of arrival."""
        return self.clients.all()

    def connections_in(self, vhost):
        """The connections to this vhost."""
        return self.clients.in_vhost(vhost)

    def totals(self):
        """The Totals of every vhost, and those of deleted ones."""
        return [self.broker.totals, *(vhost.totals for vhost in list(self.broker.vhosts.values()))]

    def churn(self):
        """{event: count}, by the names of statistics.CHURN."""
        totals, churn = self.totals(), self.clients.churn
        return {
            name: getattr(churn, name)
            for name in ("connection_created", "connection_closed", "channel_created", "channel_closed")
        } | {name: sum(getattr(one, name) for one in totals) for name in CHURN}
