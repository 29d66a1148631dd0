"""AMQP server: the door itself: serves each accepted socket, and has what its connections share.

Handed to a listener by the node; below it one connection per accepted socket. What connections of every
protocol share is the hub's (hub.context), who is connected too (hub.clients); here is what is AMQP's: timeouts
of consumers, what clients are told of alarms. Never accepts and never parses.
"""
import socket as socket_module
import time

from gomq_py.amqp.server import events
from gomq_py.amqp.server.confirms import Confirms
from gomq_py.amqp.server.connection import Connection
from gomq_py.amqp.server.consumer_timeouts import ConsumerTimeouts, LookAgain
from gomq_py.hub.job import Job
from gomq_py.hub.slice_clock import SliceClock
from gomq_py.net.listener import host_of
from gomq_py.observability.log import logger
from gomq_py.observability.quiet_log import QuietLog


class AMQPServer:
    """Serves AMQP 0-9-1 clients of ``broker``, in ``hub``."""

    def __init__(self, broker, settings, hub):
        self.broker = broker
        self.hub = hub
        self.settings = settings
        self._node_name = f"gomq@{socket_module.gethostname()}"
        self.tables = broker.tables
        self.timeouts = ConsumerTimeouts()
        hub.at_close(self.timeouts.close)
        look_again = LookAgain(hub.clients)
        broker.on_consumer_timeout(lambda: look_again.begin(hub.scheduler))
        # a log with a limit of rate, for events that peers who have not logged in can trigger at will
        self.strangers = QuietLog(logger("amqp"))
        # what answers the publishes of a channel; gomq_py.testing puts a less reliable one here
        self.make_confirms = Confirms
        self._blocked_reason = None
        self._alarm_news = AlarmNews()
        broker.alarms.subscribe(self._alarmed)

    @property
    def cluster_name(self):
        """What clients are told: the name that an operator gave the broker, or else the node's."""
        given = self.broker.parameters.global_.get("cluster_name")
        return given if isinstance(given, str) and given else self._node_name

    def handle(self, socket, address):
        """Serve one client; the caller closes the socket. May switch."""
        if self.hub.clients.is_closing:
            return
        admitted = self.hub.admission.identify(socket, host_of(address))
        if admitted is not None:
            try:
                Connection(self, socket, address, admitted).run()
            finally:
                self.hub.admission.leave(admitted)

    def register(self, connection):
        """A login is complete."""
        self.hub.clients.register(connection)
        if self._blocked_reason is not None:
            connection.block(self._blocked_reason)

    def _alarmed(self, reason):
        """An alarm of the broker is on, and publishers are to be held; None: it is over."""
        before, self._blocked_reason = self._blocked_reason, reason
        self.broker.events.emit(
            "alarm.cleared" if reason is None else "alarm.set", events.alarm, reason or before
        )
        self._alarm_news.begin(self.hub.clients.all(), reason, self.hub.scheduler)


class AlarmNews(Job):
    """Connections are told of an alarm, or that it is over."""

    name = "telling connections of an alarm"

    def __init__(self):
        super().__init__()
        self._untold = []
        self._reason = None

    def begin(self, connections, reason, scheduler):
        """Tell these, anew: what is left of an earlier round would be told of what is over.

        ``reason`` is None where the alarm is over.
        """
        self._untold, self._reason = connections, reason
        if self.step():
            scheduler.start(self)

    def step(self):
        """Tell some, for some milliseconds of the processor's time."""
        clock = SliceClock(clock=time.thread_time)
        while self._untold:
            connection = self._untold.pop()
            if self._reason is None:
                connection.unblock()
            else:
                connection.block(self._reason)
            if clock.is_over():
                break
        return bool(self._untold)

    def failed(self, error):
        """One could not be told; the others are."""
        return bool(self._untold)
