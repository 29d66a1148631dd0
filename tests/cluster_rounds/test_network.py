"""The relays of the rounds: they know who connects, and cut, slow and end what they are told to."""
import contextlib
import socket
import threading

import pytest

from gomq_py.cluster.wire import frames
from gomq_py.cluster.wire.messages import NO_ID, NONCE_OCTETS, Hello
from tests.cluster_rounds.network import Network
from tests.support.ports import reserve
from tests.support.waiting import TIMEOUT_S, wait_until

NAMES = {b"1" * 16: "one", b"2" * 16: "two"}


@pytest.fixture
def network():
    made = Network(NAMES.get)
    yield made
    made.end()


@contextlib.contextmanager
def connected(network, node_id=b"1" * 16):
    """(the caller's socket, the node's) over a relay in front of node two."""
    with socket.create_server(("127.0.0.1", 0)) as listening, contextlib.ExitStack() as opened:
        relay = network.to_node("two", listening.getsockname()[1], 0)
        near = opened.enter_context(socket.create_connection(("127.0.0.1", relay.port), TIMEOUT_S))
        near.sendall(hello(node_id))
        listening.settimeout(TIMEOUT_S)
        far = opened.enter_context(listening.accept()[0])
        for each in (near, far):
            each.settimeout(TIMEOUT_S)
        assert far.recv(1000) == hello(node_id)
        yield near, far


def hello(node_id):
    return frames.encode(frames.HELLO, Hello(
        node_id, NO_ID, 0, NO_ID, 0, bytes(NONCE_OCTETS), "name").encode())


def has_come(receiver):
    """Whether there is something to read, or the end."""
    receiver.setblocking(False)
    try:
        return receiver.recv(1, socket.MSG_PEEK) is not None
    except BlockingIOError:
        return False
    finally:
        receiver.settimeout(TIMEOUT_S)


def test_octets_pass_both_ways_and_are_counted(network):
    with connected(network) as (near, far):
        near.sendall(b"there")
        far.sendall(b"back")

        assert (far.recv(10), near.recv(10)) == (b"there", b"back")
        assert network.way("two", "one").octets == 4


def test_cut_way_holds_and_the_other_one_passes(network):
    with connected(network) as (near, far):
        network.way("one", "two").cut()
        near.sendall(b"there")
        far.sendall(b"back")

        assert near.recv(10) == b"back"
        assert not has_come(far)
        network.heal()
        assert far.recv(10) == b"there"


def test_end_of_a_connection_waits_for_a_cut_way(network):
    with connected(network) as (near, far):
        network.way("one", "two").cut()
        near.shutdown(socket.SHUT_WR)
        far.sendall(b"back")

        assert near.recv(10) == b"back"
        assert not has_come(far)
        network.heal()
        assert far.recv(10) == b""


def test_slow_way_takes_its_time(network):
    with connected(network) as (near, far):
        network.way("one", "two").slow(1)
        near.sendall(b"x" * 1000)

        far.sendall(b"back")
        assert near.recv(10) == b"back"
        assert not has_come(far)
        network.heal()
        assert far.recv(1000)


def test_reset_ends_connections_over_a_way_alone(network):
    with connected(network) as (near, far), connected(network, b"2" * 16) as (other, _):
        network.reset(network.way("one", "two"))

        assert (near.recv(10), far.recv(10)) == (b"", b"")
        assert not has_come(other)


def test_node_that_nobody_knows_is_refused_and_kept_in_mind(network):
    relay = network.to_node("two", reserve(), 0)
    with socket.create_connection(("127.0.0.1", relay.port), TIMEOUT_S) as near:
        near.sendall(hello(b"3" * 16))

        with pytest.raises(ConnectionResetError):
            near.recv(10)
    wait_until(lambda: network.strangers)


def test_closed_relay_refuses_and_opens_on_the_same_port(network):
    relay = network.to_node("two", reserve(), reserve())
    relay.close()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", relay.port), TIMEOUT_S)

    relay.open()

    socket.create_connection(("127.0.0.1", relay.port), TIMEOUT_S).close()


def test_nothing_is_left_running_at_the_end(network):
    before = threading.active_count()
    with connected(network):
        network.way("one", "two").cut()

        network.end()

        wait_until(lambda: threading.active_count() <= before)
