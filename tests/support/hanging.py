"""Peers that hang: whoever connects comes as far as one step, and no further.

Few threads, and no processor: the kernel does most of it.
"""
import socket
from contextlib import ExitStack, contextmanager

from gomq_py.amqp.wire.methods import ConnectionStart
from tests.support.hostile_broker import HostileBroker

# As many as may wait at one listener to be accepted.
BACKLOG = 1024


@contextmanager
def full_backlog():
    """The port of a listener that takes nobody any more: to connect to it takes for ever."""
    with ExitStack() as stack:
        server = stack.enter_context(socket.create_server(("127.0.0.1", 0), backlog=0))
        while True:
            one = stack.enter_context(socket.socket())
            one.settimeout(0.3)
            try:
                one.connect(server.getsockname())
            except TimeoutError:
                break
        yield server.getsockname()[1]


@contextmanager
def hanging_peers():
    """{step at which it hangs: URI}."""
    with ExitStack() as stack:
        full = stack.enter_context(full_backlog())
        silent = stack.enter_context(
            socket.create_server(("127.0.0.1", 0), backlog=BACKLOG)).getsockname()[1]
        half = stack.enter_context(HostileBroker(_start_and_no_more))
        yield {
            "TCP": f"amqp://127.0.0.1:{full}",
            "TLS": f"amqps://127.0.0.1:{silent}",
            "start": f"amqp://127.0.0.1:{silent}",
            "tune": half.url,
        }


def _start_and_no_more(peer):
    peer.read_exactly(8)
    peer.send(0, ConnectionStart(
        version_minor=9, server_properties={}, mechanisms=b"PLAIN", locales=b"en_US"))
    peer.await_end()
