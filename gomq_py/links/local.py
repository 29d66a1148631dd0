"""Connections of links: opens a client's connection for any URI, and finds the user whose rights a link has.

A URI without a host means this broker. The connection is then a socket pair. The AMQP server serves the
pair's other end like any client's socket, logged in as the user who set the link. So rights, limits, alarms
and exclusive queues apply as to every client, and a link has no more rights than the user who set it.

This package does not import the AMQP server. The node gives the Connector the function of
``amqp.server.local`` that makes the socket pair.
"""
import os
from typing import Any

from gevent import socket

from gomq_py.auth.permissions import Permission
from gomq_py.auth.users import User
from gomq_py.broker.policies.parameters import OPERATOR
from gomq_py.broker.routing.route import ExchangeState
from gomq_py.links import remote_hosts, uris
from gomq_py.net.connecting import Lookups

ADMINISTRATOR, POLICYMAKER = "administrator", "policymaker"
CONNECT_TIMEOUT_S = 30.0
# Cached TLS contexts: one with the system's authorities takes 10 ms and half a megabyte to make.
CONTEXTS_MAX = 64


class MachineOperator(User):
    """A User with all rights, for links that this machine's operator has set (in the configuration file, for
    example). This user is not in the broker's list of users.
    """

    __slots__ = ()

    def __init__(self):
        # impersonator: messages keep their user-id
        super().__init__("gomq-py", "", "", (ADMINISTRATOR, "impersonator"), ExchangeState())

    def permission(self, vhost):
        """Return a Permission with all rights in this vhost."""
        return Permission(self.name, vhost, ".*", ".*", ".*")


class Setters:
    """Finds the user who set a link, and whose rights the link has in this broker."""

    def __init__(self, broker):
        self._broker = broker
        self._operator = MachineOperator()

    def user_of(self, by, what):
        """Return the User named ``by``, or the MachineOperator if ``by`` is OPERATOR. ``what``: the link in
        words, for errors. Raises ValueError if ``by`` is None, the user was deleted, or has neither tag
        administrator nor policymaker.
        """
        if by == OPERATOR:
            return self._operator
        user = None if by is None else self._broker.users.get(by)
        if user is None:
            raise ValueError(
                f"an end in this broker works with the rights of the user who set {what}: " + (
                    "whoever set it is no user of this broker's own, or was deleted" if by is None
                    else f"user '{by}' is gone"))
        if not {ADMINISTRATOR, POLICYMAKER} & set(user.tags):
            raise ValueError(f"user '{by}', who set {what}, has not the tag policymaker")
        return user


class Connector:
    """Connects the links of one broker.

    ``settings``: the broker's Settings; each attempt reads those of section [links]. ``connect_local(user)``
    returns one end of a socket pair, whose other end the AMQP server serves as a connection of this user.
    """

    def __init__(self, settings: Any, connect_local: Any, lookups: Any = None):
        self._settings = settings
        self._connect_local = connect_local
        self._lookups = Lookups() if lookups is None else lookups
        self._contexts: dict[Any, Any] = {}

    def connect(
        self, uri: str, user: Any = None, name: str = "", vhost: str = "/", account: Any = None,
        **options: Any,
    ) -> Any:
        """Return a client's connection to the broker at ``uri``. May switch greenlets.

        Raises URIError (retrying cannot help), ClientError and OSError.

            user       the User who set the link, or None. A connection to this broker is logged in as this
                       user. If the user is an administrator, the link may connect to more hosts
            name       connection name shown at the other side
            vhost      the virtual host, if a URI of this broker has none
            account    (user who set the link, virtual host): accounts take turns in name lookups
            options    further arguments of client.connection.Connection
        """
        from gomq_py.client.connection import Connection  # imported here: only brokers with links load it

        link_uri = uris.parse(uri)
        parameters = uris.parameters(link_uri, self._settings.links_tls_folder, vhost)
        if link_uri.is_local:
            connected = self._local(user, parameters)
            options.setdefault("heartbeat_s", 0)  # no heartbeats: a socket pair ends with the process
        else:
            timeout_s = parameters.options.get("connection_timeout", CONNECT_TIMEOUT_S * 1000) / 1000
            connected = self._remote(link_uri, timeout_s, account, user)
            if parameters.tls:
                try:
                    options.setdefault("tls_context", self._context(parameters.options))
                except BaseException:
                    connected.close()
                    raise
        return Connection(
            parameters, socket_module=socket, connected=connected, name=name, wary=True, **options)

    def connect_http(
        self, link_uri: uris.LinkURI, timeout_s: float, tls: dict[str, Any] | None = None,
        account: Any = None,
    ) -> Any:
        """Return a connected socket for HTTP, with TLS for https. May switch greenlets.

        ``tls``: options for checking the server's certificate, named as in AMQP URIs. ``account``: as in
        ``connect``. Raises URIError, OSError.
        """
        options = uris.tls_options(tls or {}, self._settings.links_tls_folder)
        connected = self._remote(link_uri, timeout_s, account)
        try:
            connected.settimeout(timeout_s)
            connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if link_uri.tls:
                # imported here: a broker without TLS does not load OpenSSL
                from gevent import ssl

                from gomq_py.client import transport

                connected = transport.handshake(
                    ssl, connected, self._context(options), link_uri.host, options, timeout_s)
        except BaseException:
            connected.close()
            raise
        return connected

    def check(
        self, value: Any, schemes: tuple[str, ...] = uris.AMQP, tls: dict[str, Any] | None = None,
        user: Any = None,
    ) -> None:
        """Check a URI, or each URI of a list, without connecting. Raises URIError. ``user``: the User who
        sets a link with this URI. ``tls``: options for checking the certificates of web servers.
        """
        uris.tls_options(tls or {}, self._settings.links_tls_folder)
        for link_uri in uris.parse_list(value, schemes):
            if not link_uri.is_local:
                try:
                    self._rules(link_uri, user).check_literal(link_uri.host)
                except remote_hosts.HostRefused as error:
                    raise uris.URIError(str(error)) from None
            if link_uri.scheme in uris.AMQP:
                uris.parameters(link_uri, self._settings.links_tls_folder)

    @staticmethod
    def is_local(uri: str) -> bool:
        """True if the URI means this broker. Raises URIError."""
        return uris.parse(uri, uris.DESTINATIONS).is_local

    def _local(self, user: Any, parameters: Any) -> Any:
        if user is None:
            raise uris.URIError(
                "the URI has no host and means this broker, but nobody who may log in here has set the link")
        parameters.options["auth_mechanism"] = "EXTERNAL"
        return self._connect_local(user)

    def _remote(self, link_uri: uris.LinkURI, timeout_s: float, account: Any, user: Any = None) -> Any:
        rules = self._rules(link_uri, user)
        return remote_hosts.connect(
            link_uri.host, link_uri.port, timeout_s, rules, self._lookups, self._settings.tcp_keepalive,
            account)

    def _rules(self, link_uri: uris.LinkURI, user: Any) -> remote_hosts.HostRules:
        settings = self._settings
        if link_uri.scheme in uris.HTTP:
            return remote_hosts.HostRules(
                settings.links_http_hosts_denied, settings.links_http_hosts_allowed, "http_hosts_denied")
        denied, key = settings.links_amqp_hosts_denied, "amqp_hosts_denied"
        if user is None or ADMINISTRATOR not in user.tags:
            # A broker may treat connections from its own machine as trusted (guest, for example).
            denied = (*denied, *settings.links_http_hosts_denied)
            key += ", or http_hosts_denied for a link that no administrator has set,"
        return remote_hosts.HostRules(denied, settings.links_amqp_hosts_allowed, key)

    def _context(self, options: dict[str, Any]) -> Any:
        """Return the TLS context for a URI's options, cached until their files change. Raises OSError."""
        from gevent import ssl

        from gomq_py.client import transport

        files = [options.get(key, "") for key in ("cacertfile", "certfile", "keyfile")]
        names_none = options.get("server_name_indication") == transport.NO_NAME
        key = (
            *files, *map(_changed_at, files), options.get("password"), options.get("verify"), names_none)
        if key not in self._contexts:
            if len(self._contexts) >= CONTEXTS_MAX:
                self._contexts.clear()
            try:
                self._contexts[key] = transport.tls_context(ssl, options)
            except OSError as error:
                named = " or ".join(name for name in uris.FILES if name in options)
                raise OSError(f"{named or 'the authorities of the system'}: {error}") from None
        return self._contexts[key]


def _changed_at(path: str) -> int:
    """Return the file's modification time in ns; 0 for an empty path. Raises OSError if it is missing."""
    return os.stat(path).st_mtime_ns if path else 0
