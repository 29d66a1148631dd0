"""Connected gevent sockets on which a test plays the peer."""
import socket as system_socket

import gevent
from gevent import socket, ssl
from gevent.event import Event

from gomq_py.net import tls
from tests.support.waiting import TIMEOUT_S


def socket_pair(buffer_octets=None):
    """(ours, theirs): connected sockets; ``buffer_octets`` keeps the kernel's buffers small, so that a peer
    that does not read is noticed soon.
    """
    ours, theirs = socket.socketpair()
    if buffer_octets is not None:
        for each in (ours, theirs):
            each.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, buffer_octets)
            each.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer_octets)
    return ours, theirs


def read_all(stream, lane, handler, rest=b""):
    """Has a Stream read until its peer closes or it is stopped; raises the error that ended it."""
    ended = Event()
    stream.begin(lane, handler, rest, ended.set)
    try:
        ended.wait()
    finally:
        stream.end()
    stream.finish()


def tls_pair(files, kernel=False):
    """(ours, theirs): the same over TLS, with the PEM ``files`` of an authority, a certificate and its key;
    ``kernel``: which decrypts for us, where it can.
    """
    ours, theirs = socket.socketpair()
    context = tls.server_context(tls.TLSOptions(str(files.certificate), str(files.key), kernel=kernel))
    clients = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    clients.load_verify_locations(str(files.authority))
    serving = gevent.spawn(context.wrap_socket, ours, server_side=True)
    theirs = clients.wrap_socket(theirs, server_hostname="localhost")
    return serving.get(timeout=TIMEOUT_S), theirs


def unblocked_pair():
    """(ours, theirs): connected sockets of the system's own that do not wait."""
    ours, theirs = system_socket.socketpair()
    ours.setblocking(False)
    theirs.setblocking(False)
    return ours, theirs


def receive_exactly(peer, count, timeout_s=TIMEOUT_S):
    """Read ``count`` octets; fails after ``timeout_s`` without any."""
    peer.settimeout(timeout_s)
    parts, left = [], count
    while left:
        part = peer.recv(min(left, 65536))
        assert part, f"closed with {left} octets missing, after {b''.join(parts)[-1000:]!r}"
        parts.append(part)
        left -= len(part)
    return b"".join(parts)
