"""MQTT server: the door itself: serves each accepted socket.

Handed to a listener by the node; below it one connection per accepted socket. What connections of every
protocol share is the hub's (hub.context). Never accepts and never parses.
"""
from gomq_py.mqtt.server.connection import Connection
from gomq_py.net.listener import host_of
from gomq_py.observability.log import logger
from gomq_py.observability.quiet_log import QuietLog


class MQTTServer:
    """Serves MQTT clients of ``broker``, in ``hub``."""

    def __init__(self, broker, settings, hub):
        self.broker = broker
        self.hub = hub
        self.settings = settings
        self.gate = hub.admission.gate("mqtt_")
        # a log with a limit of rate, for events that peers who have not logged in can trigger at will
        self.strangers = QuietLog(logger("mqtt"))

    def handle(self, socket, address):
        """Serve one client; the caller closes the socket. May switch."""
        if self.hub.clients.is_closing:
            return
        admitted = self.gate.identify(socket, host_of(address))
        if admitted is not None:
            try:
                Connection(self, socket, address, admitted).run()
            finally:
                self.gate.leave(admitted)
