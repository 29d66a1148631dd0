"""Adoption: which clients of followers a leader serves, and under which address."""
import pytest
from gevent import socket

from gomq_py.auth.users import is_loopback
from gomq_py.cluster.adoption import Adoption, address_of
from gomq_py.cluster.wire.messages import NO_ID, Forward
from gomq_py.net.proxy_protocol import SIGNATURE, header_of


class Full:
    """A listener without room."""

    def has_room_for(self, address):
        assert address == ("192.0.2.7", 5)
        return False


def forward(proxy, name="node-b", listener="amqp"):
    return Forward(NO_ID, NO_ID, 1, bytes(32), name, listener, proxy)


@pytest.mark.parametrize("source, address", [
    (("192.0.2.7", 5), ("192.0.2.7", 5)), (("2001:db8::7", 5, 0, 0), ("2001:db8::7", 5)),
    (("127.0.0.1", 5), ("gomq@node-b", 5)), (("::1", 5, 0, 0), ("gomq@node-b", 5)),
    (("::ffff:127.1.2.3", 5, 0, 0), ("gomq@node-b", 5)), ("unix:7:1", ("gomq@node-b", 0)),
])
def test_no_client_of_another_node_has_an_address_of_this_machine(source, address):
    found = address_of(forward(header_of(source, ("192.0.2.1", 5672))))

    assert found == address
    assert not is_loopback(found[0])


@pytest.mark.parametrize("name", ["127.0.0.1", "::1", "localhost"])
def test_name_of_a_node_is_no_address(name):
    assert not is_loopback(address_of(forward(header_of("", ""), name))[0])


@pytest.mark.parametrize("proxy, text", [
    (b"", "no whole PROXY header"), (SIGNATURE, "no whole PROXY header"),
    (header_of(("192.0.2.7", 5), ("192.0.2.1", 6)) + b"AMQP", "no whole PROXY header"),
    (b"AMQP", "a header was due"), (SIGNATURE + b"\x21\x12\0\x0c" + bytes(12), "unknown address family"),
])
def test_client_without_a_whole_header_is_refused(proxy, text):
    assert text in Adoption(lambda name: Full()).why_not(forward(proxy))


def test_client_of_a_listener_that_is_not_open_is_refused():
    adoption = Adoption(lambda name: None)
    asked = forward(header_of("", ""), listener="mqtts")

    assert adoption.why_not(asked) == "the leader has no listener mqtts now"
    one, other = socket.socketpair()
    adoption.adopt(asked, other, False)  # it was closed meanwhile: the caller closes the socket
    other.close()
    assert one.recv(1) == b""
    one.close()


def test_client_for_whom_there_is_no_room_waits_at_its_follower():
    asked = forward(header_of(("192.0.2.7", 5), ("192.0.2.1", 6)))

    assert Adoption(lambda name: Full()).why_not(asked) == (
        "too many amqp clients wait for their login at the leader")
