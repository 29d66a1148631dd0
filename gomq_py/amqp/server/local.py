"""Local clients: connects this process to its own broker, without a port and without a password.

Shovels and federation use an AMQP client at both ends; at an end in this broker the client connects by
``LocalClients.connect``. Rights, limits, alarms and exclusive queues apply as to every client. The pair of
sockets is made here, so that no peer from the network can come in this way.

A local client logs in as a User. The connection ends when this user is deleted or loses its permission for
the vhost. A channel ends when the user may no longer read a queue that the channel consumes.
"""
import errno

from gevent import socket as gevent_socket

from gomq_py.amqp.server.connection import Connection
from gomq_py.amqp.server.login import LOCAL
from gomq_py.broker.verbs import queues
from gomq_py.broker.verbs.entering import lost_entry
from gomq_py.errors import NoPermission
from gomq_py.hub.clients import SHUTDOWN


class LocalClients:
    """Connects AMQP clients inside this process (shovels, federation) to its own broker, without a port."""

    def __init__(self, server):
        self._server = server
        self._clients = server.hub.clients
        self._users = server.broker.users
        self._users.rights_watchers.append(self._rights_changed)
        self._count = 0

    def connect(self, user):
        """Connect a client that logs in as this User, without a password. Raises OSError. Returns the
        client's end of a socket pair, a gevent socket that the caller must close.
        """
        hub = self._server.hub
        if self._clients.is_closing or hub.is_closed:
            raise ConnectionRefusedError(errno.ECONNREFUSED, SHUTDOWN)
        ours, theirs = gevent_socket.socketpair()
        admitted = hub.admission.add(theirs.fileno(), "")  # it uses a descriptor like other clients
        if admitted is None:
            ours.close()
            theirs.close()
            raise OSError(errno.EMFILE, "the broker has as many connections as its descriptors allow")
        self._count += 1
        address = f"{LOCAL}:{self._count}"
        connection = Connection(self._server, theirs, address, admitted, user)
        connection.when_gone(theirs.close)
        connection.begin()
        return ours

    def _rights_changed(self, user):
        """Close the connections and channels that this user's rights do not allow any more."""
        # The channel is closed, not only the consumer cancelled, so that the shovel or federation link
        # reports the reason.
        if not self._clients.count_of_door(LOCAL):
            return
        for connection in self._clients.of_user(user.identity):
            if connection.door == LOCAL and connection.user is user:
                self._check(connection)

    def _check(self, connection):
        lost = lost_entry(self._users, connection.user, connection.vhost.name)
        if lost is not None:
            connection.force_close(lost)
            return
        for channel in list(connection.channels.values()):
            try:
                for consumer in channel.consumers.values():
                    queues.check_still_takes(channel.caller, consumer.source.name)
            except NoPermission as error:
                connection.fail_channel(channel, error)
