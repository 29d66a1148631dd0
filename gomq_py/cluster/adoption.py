"""Adoption: the leader serves clients that a follower passes on (``cluster.forwarding``).

A connection that has logged in with FORWARD goes to the listener that the FORWARD names, which serves the
client under the client's own address.

A client with a loopback address, or without one, is on the follower's machine. Its host is shown as
"gomq@NODE", so that it cannot log in as a user who may only log in from the leader's machine.
"""
from collections.abc import Callable
from typing import Any

from gevent import socket
from gevent.event import Event

from gomq_py.cluster.wire.messages import Forward
from gomq_py.net import proxy_protocol
from gomq_py.net.pump import Pumps


class Adoption:
    """Passes forwarded clients to this node's listeners. ``find(name)`` returns a Listener, or None."""

    def __init__(self, find: Callable[[str], Any]):
        self._find = find
        self._pumps = Pumps()

    def why_not(self, forward: Forward) -> str:
        """Return the reason to refuse the client, or "" if it may be served."""
        listener = self._find(forward.listener)
        if listener is None:
            return f"the leader has no listener {forward.listener} now"
        try:
            header = proxy_protocol.parse(forward.proxy)
        except proxy_protocol.ProxyProtocolError as error:
            return str(error)
        if header is None or header.size != len(forward.proxy):
            return "a FORWARD has no whole PROXY header"
        if not listener.has_room_for(address_of(forward)):
            # the client waits at the follower, which counts it
            return f"too many {forward.listener} clients wait for their login at the leader"
        return ""

    def adopt(self, forward: Forward, connection: Any, is_tls: bool) -> None:
        """Give the connection of a client that ``why_not`` has accepted to its listener.

        May switch greenlets. Over TLS, returns when the client disconnects; otherwise at once.
        """
        # Over TLS the listener gets a socket pair, because the cluster's TLS socket shows a node's
        # certificate, not the client's.
        listener = self._find(forward.listener)
        if listener is None:
            return
        address = address_of(forward)
        if not is_tls:
            listener.adopt(int(connection.family), connection.detach(), address)
            return
        near, far = socket.socketpair()
        gone = Event()
        pump = self._pumps.join(connection, near, gone.set)
        try:
            listener.adopt(int(far.family), far.detach(), address)
            gone.wait()
        finally:
            pump.close()
            near.close()
            far.close()

    def close(self) -> None:
        """End forwarded connections over TLS. The listeners end those without TLS."""
        self._pumps.close()


def address_of(forward: Forward) -> tuple[str, int]:
    """Return (host, port) of the client. The host is "gomq@NODE" for a client on the follower's machine."""
    header = proxy_protocol.parse(forward.proxy)
    assert header is not None
    host, port = header.source or ("", 0)
    if not host or proxy_protocol.is_loopback(host):
        return f"gomq@{forward.name}", port
    return host, port
