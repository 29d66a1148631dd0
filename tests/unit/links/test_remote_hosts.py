"""Remote hosts: which addresses are refused, at the moment they are connected to."""
from ipaddress import ip_network

import pytest
from gevent import socket

from gomq_py.config.settings import Settings
from gomq_py.links import remote_hosts
from gomq_py.links.remote_hosts import HostRefused, HostRules
from gomq_py.net.connecting import Lookups
from tests.support.hanging import full_backlog
from tests.support.waiting import in_time

DEFAULT = HostRules(Settings().links_http_hosts_denied, (), "http_hosts_denied")
ANY = HostRules((), (), "amqp_hosts_denied")


def networks(*texts):
    return tuple(ip_network(text) for text in texts)


def answering(*addresses):
    """A Lookups whose name server says that every name stands for these."""
    def getaddrinfo(host, port, *_):
        return [
            (family, socket.SOCK_STREAM, 6, "", (address, port))
            for address in addresses
            for family in (socket.AF_INET6 if ":" in address else socket.AF_INET,)
        ]

    return Lookups(getaddrinfo=getaddrinfo)


@pytest.fixture
def listening():
    server = socket.socket()
    server.bind(("127.0.0.1", 0))
    server.listen(5)
    yield server
    server.close()


@pytest.mark.parametrize("address", [
    "127.0.0.1", "127.255.255.254", "0.0.0.0", "0.1.2.3", "169.254.169.254", "::", "::1", "fe80::1",
    "fe80::1%eth0",
    "::ffff:127.0.0.1", "::ffff:169.254.169.254", "::127.0.0.1", "64:ff9b::7f00:1", "64:ff9b::a9fe:a9fe",
    "2002:7f00:1::", "2002:a9fe:a9fe::1", "2001:0:808:808:0:0:80ff:fffe", "2001:0:7f00:1::1",
    "64:ff9b:1::7f00:1", "64:ff9b:1:7f00:0:100::", "64:ff9b:1:7f:0:1::", "64:ff9b:1:0:7f:0:100::",
    "2001:db8::5efe:127.0.0.1", "2001:db8::200:5efe:169.254.169.254", "::ffff:0:127.0.0.1",
])
def test_this_machines_and_link_local_addresses_are_refused_by_default(address):
    with pytest.raises(HostRefused, match="http_hosts_denied"):
        DEFAULT.check("h", address)


@pytest.mark.parametrize(
    "address", [
        "10.0.0.1", "192.168.1.1", "8.8.8.8", "2001:db8::1", "fd00::1", "::ffff:8.8.8.8", "2002:808:808::1",
        "64:ff9b::808:808", "64:ff9b:1::808:808", "2001:0:808:808:0:0:f7f7:f7f7", "2001:db8::5efe:8.8.8.8"])
def test_others_are_not(address):
    DEFAULT.check("h", address)


def test_what_is_allowed_goes_before_what_is_denied():
    rules = HostRules(networks("0.0.0.0/0", "::/0"), networks("10.0.0.0/8"), "amqp_hosts_denied")

    rules.check("h", "10.1.1.1")
    rules.check("h", "::ffff:10.1.1.1")
    with pytest.raises(HostRefused):
        rules.check("h", "11.1.1.1")
    with pytest.raises(HostRefused):
        rules.check("h", "2001:db8::1")


def test_an_address_that_may_mean_two_is_refused_if_one_of_them_is_denied_and_not_allowed():
    rules = HostRules(networks("127.0.0.0/8"), networks("10.0.0.0/8"), "amqp_hosts_denied")

    rules.check("h", "64:ff9b:1::a01:101")
    with pytest.raises(HostRefused):
        rules.check("h", "64:ff9b:1:7f00:0:100:a01:101")


def test_an_address_in_a_uri_is_looked_at_ahead_and_a_name_is_not():
    DEFAULT.check_literal("localhost")
    with pytest.raises(HostRefused):
        DEFAULT.check_literal("127.0.0.1")


@pytest.mark.parametrize("host", ["localhost", "127.1", "2130706433", "0x7f000001", "0177.0.0.1"])
def test_a_name_that_stands_for_this_machine_is_refused_when_it_is_connected_to(host, listening):
    with pytest.raises(HostRefused):
        remote_hosts.connect(host, listening.getsockname()[1], 5, DEFAULT, Lookups())


def test_of_several_addresses_one_that_may_be_connected_to_is(listening):
    rules = HostRules(networks("127.0.0.9/32"), (), "amqp_hosts_denied")

    with remote_hosts.connect(
            "h", listening.getsockname()[1], 5, rules, answering("127.0.0.9", "127.0.0.1")) as connected:
        assert connected.getpeername() == listening.getsockname()


def test_the_first_that_answers_is_connected_to(listening):
    port, lookups = listening.getsockname()[1], answering("::1", "127.0.0.1")

    with remote_hosts.connect("h", port, 5, ANY, lookups) as connected:
        assert connected.getpeername() == listening.getsockname()


def test_nobody_answers(listening):
    port = listening.getsockname()[1]
    listening.close()

    with pytest.raises(ConnectionRefusedError):
        remote_hosts.connect("127.0.0.1", port, 5, ANY, Lookups())


@pytest.mark.parametrize("host", ["no-such-host.invalid", "a..b", "x" * 64 + ".com", "bü" * 40])
def test_a_name_that_stands_for_nothing(host):
    with pytest.raises(OSError):
        remote_hosts.connect(host, 1, 30, ANY, Lookups())


@pytest.fixture
def full():
    with full_backlog() as port:
        yield port


def test_an_address_that_does_not_answer_is_told(full):
    with pytest.raises(TimeoutError, match=f"no TCP connection to h:{full} within 0.1 s"):
        remote_hosts.connect("h", full, 0.1, ANY, answering("127.0.0.1"))


def test_an_address_that_does_not_answer_leaves_time_for_the_next(full):
    """Whoever listens at the second address has the same port."""
    listening = socket.socket()
    listening.bind(("127.0.0.2", full))
    listening.listen(1)

    addresses = answering("127.0.0.1", "127.0.0.2")
    with remote_hosts.connect("h", full, in_time(4), ANY, addresses) as connected:
        assert connected.getpeername() == listening.getsockname()
    listening.close()


def test_a_peer_that_has_gone_without_a_word_is_probed(listening):
    port = listening.getsockname()[1]
    keepalive = Settings().tcp_keepalive

    with remote_hosts.connect("127.0.0.1", port, 5, ANY, Lookups(), keepalive) as connected:
        assert connected.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
        assert connected.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE) == keepalive.idle_s
        assert connected.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL) == keepalive.interval_s
        assert connected.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT) == keepalive.probes
