"""MQTT server: makes a Connection for each accepted socket.

Called by a listener. Never accepts sockets and never parses packets.
"""
from functools import partial

from gomq_py.broker.verbs.access import Access, AllAccess
from gomq_py.mqtt.model import source
from gomq_py.mqtt.model.session_kind import EXTRA
from gomq_py.mqtt.server import will
from gomq_py.mqtt.server.broker_topics import BrokerTopics
from gomq_py.mqtt.server.connection import Connection
from gomq_py.mqtt.server.fast_lane import LaneParts
from gomq_py.mqtt.server.flows import Inbound
from gomq_py.mqtt.server.login import DOOR
from gomq_py.net.listener import host_of
from gomq_py.observability.log import logger
from gomq_py.observability.quiet_log import QuietLog

LOG = logger("mqtt")


class MQTTServer:
    """Serves MQTT clients of ``broker``. ``hub``: the event loop and the state that all protocols share."""

    def __init__(self, broker, settings, hub):
        self.broker = broker
        self.hub = hub
        self.settings = settings
        self.make_inbound = Inbound
        self.gate = hub.admission.gate("mqtt_")
        self.broker_topics = BrokerTopics(self)
        self._lane_parts = {}
        for vhost in broker.vhosts.values():
            self.look_after(vhost)
            source.say_fault(vhost)
        # a log with a limit of rate, for events that peers can trigger at will
        self.strangers = QuietLog(LOG)
        broker.users.rights_watchers.append(self._rights_changed)
        if settings.mqtt_anonymous_user:
            LOG.warning(
                "MQTT clients without a user name have the rights of user %r (mqtt anonymous_user)",
                settings.mqtt_anonymous_user)
        if not settings.mqtt_permission_check_enabled:
            LOG.warning(
                "MQTT clients may publish and subscribe to everything: permission_check_enabled is false")

    def _rights_changed(self, user):
        """Drop cached rights of a user's sessions. Forget the wills of a deleted user."""
        for connection in self.hub.clients.of_user(user.identity):
            if connection.door == DOOR and connection.session is not None:
                connection.session.interests.rights_changed()
        if self.broker.users.get(user.name) is not user:
            for vhost in self.broker.vhosts.values():
                vhost.extras[EXTRA].wills.user_deleted(user)

    def access_of(self, user, vhost, client_id):
        """Return the Access that checks a user's rights in a vhost, with this client id."""
        checked = self.settings.mqtt_permission_check_enabled
        return (Access if checked else AllAccess)(user, vhost.name, client_id)

    def lane_parts(self, version):
        if version not in self._lane_parts:
            self._lane_parts[version] = LaneParts(version)
        return self._lane_parts[version]

    def look_after(self, vhost):
        """Apply the settings' limits to a vhost, and begin to publish its wills. Called at each login."""
        settings, sessions = self.settings, vhost.extras[EXTRA]
        sessions.retained.max_messages = settings.mqtt_max_retained_messages
        sessions.retained.max_octets = settings.mqtt_max_retained_octets
        if not sessions.wills.is_started:
            sessions.wills.start(partial(will.publish, self, vhost), settings.mqtt_will_grace * 1000)

    def handle(self, socket, address):
        """Serve a client on an accepted socket. Returns None if the client is refused; the caller then closes
        the socket. Otherwise returns ``when_gone(callback)``, a function whose callback is called at the
        connection's end.
        """
        if self.hub.clients.is_closing:
            return None
        admitted = self.gate.identify(socket, host_of(address))
        if admitted is None:
            return None
        connection = Connection(self, socket, address, admitted)
        connection.begin()
        return connection.when_gone
