"""The management door as the launcher sees it: opened on a listening socket, closed again. Importing it is what brings Flask in."""
import socket as socket_module

from gomq_py.http.app import create_app, create_metrics_app
from gomq_py.http.node import Node
from gomq_py.http.rates import Rates
from gomq_py.http.server import ManagementServer
from gomq_py.net.listener import format_address


class ManagementDoor:
    """The API on one listening socket. ``protocol``, ``address`` and ``port`` are as a Listener's."""

    protocol = "http"
    create_app = staticmethod(create_app)

    def __init__(self, listening, broker, amqp, settings, listeners, tls=None):
        """``listening`` is bound and listens already, and is owned from here on; ``listeners()`` answers what is open in this process.

        ``tls`` encrypts: anything with an SSL context's ``wrap_socket``.
        """
        rates = Rates(settings.stats_interval / 1000, settings.stats_log_size)
        node = Node(broker, amqp, settings, listeners, f"gomq@{socket_module.gethostname()}", rates)
        name = listening.getsockname()
        self.address = format_address(name)
        self.port = name[1] if isinstance(name, tuple) else 0
        if tls is not None:
            self.protocol = "https"
        self._server = ManagementServer(listening, self.create_app(node), tls)

    def start(self):
        """Begin to accept."""
        self._server.start()

    def close(self):
        """Stop accepting; requests under way have a second to end. May switch."""
        self._server.close()


class MetricsDoor(ManagementDoor):
    """The metrics alone, without a login."""

    protocol = "metrics"
    create_app = staticmethod(create_metrics_app)
