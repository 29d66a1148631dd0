"""Management listeners of a follower: a node that keeps a copy of a leader's data folder and has no broker.

The listeners answer /api/cluster, the health checks and /metrics. Other paths get 503 or are passed on to the
leader. Nobody logs in, because the copied list of users may be incomplete. The control socket also promotes
the node.
"""
from functools import partial

from flask import Flask, request
from gevent import socket
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4 as CONTENT_TYPE

from gomq_py.http import errors
from gomq_py.http.answers import json_answer, no_content, paced_answer
from gomq_py.http.api import health
from gomq_py.http.api.cluster import change
from gomq_py.http.app import add_headers
from gomq_py.http.cluster_metrics import cluster_families
from gomq_py.http.door import CONTROL, HTTP, HTTPS, Door
from gomq_py.http.errors import Conflict, Unavailable
from gomq_py.http.exposition import rendered

# Checks of the process, which a follower passes, and of the service, for which it must pass clients on.
ALIVE = ("alarms", "local-alarms", "is-alive")
# What an operator may ask a node for that does not lead, over the control socket.
CHANGES = ("adopt", "force-leader", "transfer-leadership")
IN_SERVICE = ("virtual-hosts", "is-in-service", "ready-to-serve-clients")
# What a follower answers while it passes clients on.
OWN_PATHS = frozenset((b"/api/cluster", b"/metrics"))
OWN_HEALTH = b"/api/health/"
LINE_OCTETS = 1024


class FollowerManagement:
    """Makes the management listeners of one follower, on sockets that the caller opens.

        cluster_figures()                returns the answer to /api/cluster
        promote()                        starts a promotion of the node to leader, and returns at once
        why_not_promote(is_forced)       returns the reason against a promotion now, or ""
        forward(connection, address)     passes a client of the HTTP listener on to the leader, until its end;
                                         None: no client is passed on
        change_cluster(what)             carries out an operator's request

    A client is not passed on if its first request is for /api/cluster, /metrics or a health check. If
    ``forward`` is given, each connection ends after one answer.
    """

    def __init__(
            self, settings, cluster_figures, why_not_promote, promote, forward=None, change_cluster=None):
        self.settings = settings
        self.cluster_figures = cluster_figures
        self.why_not_promote = why_not_promote
        self.promote = promote
        self.change_cluster = change_cluster
        self._apps = {}
        self._forward = None if forward is None else _Forward(forward)

    @property
    def forwards(self):
        """Whether clients are passed on to the leader."""
        return self._forward is not None

    def door(self, protocol, listening, tls=None):
        """Return a Door (listener) that does not accept clients yet. The Door owns the listening socket."""
        is_control = protocol == CONTROL
        if is_control not in self._apps:
            self._apps[is_control] = _create_app(self, is_control)
        shown = HTTPS if tls is not None and protocol == HTTP else protocol
        forward = self._forward if shown == HTTP else None
        return Door(shown, listening, self._apps[is_control], self.settings, tls, forward=forward)


class _Forward:
    """Passes clients on to the leader, unless their first request is for this node. ``until_end(connection,
    address)`` passes one client on, until its end.
    """

    def __init__(self, until_end):
        self.until_end = until_end

    @staticmethod
    def is_own(connection):
        """Return whether a client's first request is for this node. Raises OSError. May switch greenlets."""
        return is_own(request_line(connection))


def request_line(connection):
    """Wait for a request's first line, and return it, at most 1024 bytes, without taking it from the socket.
    Raises OSError. May switch greenlets.
    """
    seen = -1
    try:
        while True:
            octets = connection.recv(LINE_OCTETS, socket.MSG_PEEK)
            line = octets.lstrip(b"\r\n")
            if b"\n" in line or len(octets) in (seen, LINE_OCTETS):  # or the client has ended
                return line.partition(b"\n")[0]
            seen = len(octets)
            # peeked octets stay readable: only more octets shall wake this greenlet
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, seen + 1)
            socket.wait_read(connection.fileno())
    finally:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, 1)


def is_own(line):
    """Return whether a follower itself answers the path in a request line (bytes)."""
    _, _, target = line.partition(b" ")
    path = target.partition(b" ")[0].partition(b"?")[0].rstrip(b"/\r")
    return path in OWN_PATHS or path.startswith(OWN_HEALTH)


def _create_app(node, is_control):
    app = Flask("gomq_py.http.follower", static_folder=None)
    app.extensions["gomq.node"] = node
    app.url_map.strict_slashes = False
    errors.register(app)
    app.after_request(add_headers)
    if node.forwards:
        app.after_request(_last_answer)

    def cluster():
        return json_answer(node.cluster_figures())

    def metrics():
        return paced_answer(rendered(cluster_families(node.cluster_figures())), CONTENT_TYPE)

    def detailed():
        # No objects are here; to Prometheus, which scrapes all nodes alike, an error is a node that is down.
        return paced_answer(rendered(()), CONTENT_TYPE)

    def promote():
        why_not = node.why_not_promote(request.args.get("force") == "true")
        if why_not:
            raise Conflict(why_not)
        node.promote()
        return no_content(202)

    def refuse(path=""):
        raise Unavailable(_reason(node))

    app.add_url_rule("/api/cluster", view_func=cluster)
    _add_checks(app, node)
    app.add_url_rule("/metrics", view_func=metrics)
    app.add_url_rule("/metrics/per-object", view_func=metrics)
    app.add_url_rule("/metrics/detailed", view_func=detailed)
    if is_control:
        app.add_url_rule("/api/cluster/promote", view_func=promote, methods=("POST",))
        for path in CHANGES:
            app.add_url_rule(
                f"/api/cluster/{path}", path, partial(change, path.replace("-", "_")), methods=("POST",))
    methods = ("GET", "POST", "PUT", "DELETE", "PATCH")
    for path in ("/", "/<path:path>"):
        app.add_url_rule(path, "refuse", refuse, methods=methods)
    return app


def _add_checks(app, node):
    def in_service():
        serves = node.forwards and node.cluster_figures().get("leader")
        return json_answer(health.OK) if serves else health.failed(_reason(node))

    checks = {
        **dict.fromkeys(ALIVE, health.alive), **dict.fromkeys(IN_SERVICE, in_service),
        "is-in-sync": health.in_sync, "node-is-quorum-critical": health.quorum_critical}
    for name, check in checks.items():
        app.add_url_rule(f"/api/health/checks/{name}", name, check)


def _last_answer(response):
    """Close the connection after this answer: the leader may have to answer the client's next request."""
    response.headers["Connection"] = "close"
    return response


def _reason(node):
    if node.settings.clustering:
        return node.cluster_figures().get("reason") or (
            "this node does not lead its cluster: ask the leader, which GET /api/cluster names")
    return (
        f"this node follows {node.settings.cluster_leader} and serves no clients: ask that one, or make this "
        "node the leader with 'gomq-py-ctl promote'")
