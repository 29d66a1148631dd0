"""Sockets in memory do as the system's do."""
import errno
import socket

import pytest

from tests.simulation.network import Listening, Network
from tests.simulation.world import World

PORT = 5672


class Process:
    """As much of one as accepts."""

    def __init__(self, world, network):
        self.world = world
        self.machine = self
        self.tells = None
        self.network = network
        self.hub = self.loop = self
        self.sockets = {}
        self.doors = {}

    def descriptor_of(self, end):
        self.sockets[len(self.sockets)] = end
        return len(self.sockets) - 1

    def socket_is_ready(self):
        """Nobody looks."""

    def moment(self, what):
        """Nobody is killed."""


@pytest.fixture(params=range(5))
def pair(request):
    """Both ends of a connection, and a function that lets everything arrive."""
    world = World(request.param)
    network = Network(world)
    process = Process(world, network)
    listening = Listening(process, PORT)
    ours = network.connect(PORT, lambda: None)
    world.run(world.now_s + 1)
    descriptor, _ = listening._accept()
    return ours, process.sockets[descriptor], lambda: world.run(world.now_s + 100)


def test_octets_come_whole_and_in_order_through_a_narrow_window(pair):
    ours, theirs, arrive = pair
    data, received = bytes(range(256)) * 40, b""

    left = data
    while left:
        left = left[ours.send(left):]
        arrive()
        while theirs.is_readable():
            received += theirs.recv(1 << 20)
            arrive()

    assert received == data


def test_window_that_is_full_takes_nothing_until_it_is_read(pair):
    ours, theirs, arrive = pair
    while ours.is_writable():
        ours.send(bytes(1 << 20))
        arrive()

    with pytest.raises(BlockingIOError):
        ours.send(b"x")
    theirs.recv(1 << 21)
    assert ours.send(b"x") == 1


def test_end_is_not_sound_until_all_that_its_peer_was_about_to_say_has_come(pair):
    ours, theirs, arrive = pair
    left = bytes(1 << 21)
    while left:
        left = left[ours.send(left):]
        arrive()
        theirs.recv(1 << 21)
        assert theirs.is_sound() is not bool(left)


def test_end_comes_behind_the_last_octet_and_the_other_half_goes_on(pair):
    ours, theirs, arrive = pair
    ours.send(b"last")
    ours.shutdown(socket.SHUT_WR)
    arrive()

    assert (theirs.recv(10), theirs.recv(10)) == (b"last", b"")
    theirs.send(b"answer")
    arrive()
    assert ours.recv(10) == b"answer"


def test_close_with_unread_octets_resets(pair):
    ours, theirs, arrive = pair
    theirs.send(b"unread")
    arrive()
    ours.close()
    arrive()

    with pytest.raises(ConnectionResetError):
        theirs.recv(10)
    with pytest.raises(BrokenPipeError):
        theirs.send(b"x")


def test_octets_to_who_has_closed_reset(pair):
    ours, theirs, arrive = pair
    ours.close()
    arrive()
    assert theirs.recv(10) == b""

    theirs.send(b"x")
    arrive()

    with pytest.raises(ConnectionResetError):
        theirs.recv(10)


@pytest.fixture(params=range(5))
def machines(request):
    """(a Process, the network, what another machine listens with)."""
    world = World(request.param)
    network = Network(world)
    return Process(world, network), network, Listening(Process(world, network), PORT)


def arrive(network):
    """Let everything arrive."""
    network.world.run(network.world.now_s + 100)


def test_process_connects_to_another_machine(machines):
    process, network, listening = machines

    ours = network.dial(process, PORT)
    assert not ours.is_writable()
    arrive(network)
    descriptor, _ = listening._accept()
    ours.send(b"hello")
    arrive(network)

    assert ours.is_writable() and not ours.is_refused
    assert listening.process.sockets[descriptor].recv(100) == b"hello"


def test_process_is_refused_where_nobody_listens(machines):
    process, network, listening = machines
    listening.close()

    ours = network.dial(process, PORT)
    arrive(network)

    assert ours.is_refused and not ours.is_asking


def test_connection_that_is_given_up_before_it_is_there_comes_nowhere(machines):
    process, network, listening = machines

    network.dial(process, PORT).close()
    arrive(network)

    assert not listening.is_readable()


def test_nothing_comes_over_a_network_that_is_cut(machines):
    process, network, listening = machines
    ours = network.dial(process, PORT)
    arrive(network)
    theirs = listening.process.sockets[listening._accept()[0]]

    network.cut(5.0, 0)
    ours.send(b"late")
    network.world.run(network.world.now_s + 4.9)
    assert not theirs.is_readable()
    arrive(network)

    assert theirs.is_readable()


def test_nobody_connects_over_a_network_that_is_cut(machines):
    """It is refused at once, or late."""
    process, network, listening = machines
    network.cut(5.0, 0)

    for _ in range(20):
        try:
            network.dial(process, PORT)
        except OSError as error:
            assert error.errno == errno.EHOSTUNREACH
    network.world.run(network.world.now_s + 4.9)
    assert not listening.is_readable()
    arrive(network)

    assert listening.is_readable()


def test_cut_may_reset_connections(machines):
    process, network, listening = machines
    network.dial(process, PORT)
    arrive(network)
    theirs = listening.process.sockets[listening._accept()[0]]

    network.cut(5.0, 1)

    with pytest.raises(ConnectionResetError):
        theirs.recv(1)


def test_peer_of_a_machine_without_power_hears_of_it_when_it_sends(machines):
    process, network, listening = machines
    ours = network.dial(process, PORT)
    arrive(network)
    theirs = listening.process.sockets[listening._accept()[0]]

    theirs.vanish()
    theirs.close()
    arrive(network)
    assert not ours.is_readable()
    ours.send(b"anybody?")
    arrive(network)

    with pytest.raises(ConnectionResetError):
        ours.recv(1)
