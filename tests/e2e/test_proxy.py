"""The PROXY protocol at a real broker: the address that a proxy announces is the connection's,
in the log, for guest and over TLS.
"""
import json
import socket
import ssl
import struct
import urllib.request
from contextlib import contextmanager

import pika
import pytest

from tests.support import certificates
from tests.support.broker_process import BrokerProcess
from tests.support.relay import relay
from tests.support.waiting import in_time

PROTOCOL_HEADER = b"AMQP\x00\x00\x09\x01"
FAR, NEAR = (
    b"PROXY TCP4 192.0.2.7 198.51.100.1 56324 5672\r\n", b"PROXY TCP4 127.0.0.1 127.0.0.1 56324 5672\r\n"
)
V2_FAR = bytes.fromhex("0d0a0d0a000d0a515549540a 21 11 000c c0000207 c6336401 dc04 1628")


def frame(payload):
    return struct.pack(">BHI", 1, 0, len(payload)) + payload + b"\xce"


def short(text):
    return bytes([len(text)]) + text


def table(**booleans):
    """A field table of booleans, and tables of such."""
    entries = b"".join(
        short(name.encode()) + (b"F" + table(**value) if isinstance(value, dict) else b"t" + bytes([value]))
        for name, value in booleans.items())
    return struct.pack(">I", len(entries)) + entries


def start_ok(user):
    response = b"\0" + user + b"\0" + user
    return frame(
        struct.pack(">HH", 10, 11) + table(capabilities={"authentication_failure_close": True})
        + short(b"PLAIN") + struct.pack(">I", len(response)) + response + short(b"en_US")
    )


def answer(connection):
    """(class, method) of the next method frame; None at the end."""
    head = read(connection, 7)
    if len(head) < 7:
        return None
    payload = read(connection, struct.unpack(">I", head[3:])[0] + 1)
    return struct.unpack_from(">HH", payload)


def read(connection, count):
    octets = b""
    while len(octets) < count:
        part = connection.recv(count - len(octets))
        if not part:
            break
        octets += part
    return octets


def has_ended(connection):
    """The broker closes the socket without a word; a reset when it has not read all of ours."""
    try:
        return connection.recv(100) == b""
    except ConnectionResetError:
        return True


def log_in(connection, user=b"guest"):
    """What the broker answers to the credentials: (10, 30) is tune, (10, 50) close, None a closed socket."""
    connection.sendall(PROTOCOL_HEADER)
    if answer(connection) != (10, 10):
        return "no start"
    connection.sendall(start_ok(user))
    return answer(connection)


@contextmanager
def connected(broker, octets=b"", port=None, source="127.0.0.1"):
    """A socket to the broker; faults of one source are logged once in a while,
    so each test of a line has a source of its own.
    """
    with socket.create_connection(
        ("127.0.0.1", port or broker.port), timeout=in_time(60), source_address=(source, 0)
    ) as connection:
        connection.sendall(octets)
        yield connection


@pytest.fixture(scope="module")
def proxied(tmp_path_factory):
    """A broker behind a proxy on this machine, with TLS, a unix socket and a management port."""
    folder = tmp_path_factory.mktemp("proxied")
    files = certificates.make(folder)
    config = folder / "gomq.ini"
    config.write_text("[amqp]\ntcp_proxy_protocol = true\nproxy_protocol_trusted_sources = 127.0.0.0/8\n")
    with BrokerProcess(
            folder / "data", config=config, amqps_port=0, tls_cert=files.certificate, tls_key=files.key,
            amqp_unix_path=folder / "amqp.sock", http_port=0) as broker:
        broker.authority, broker.unix_path = files.authority, str(folder / "amqp.sock")
        yield broker


@pytest.mark.parametrize("header, answered", [(NEAR, (10, 30)), (FAR, (10, 50)), (V2_FAR, (10, 50))])
def test_guest_is_let_in_by_the_announced_address(proxied, header, answered):
    with connected(proxied, header) as connection:
        assert log_in(connection) == answered


def test_announced_address_is_in_the_log(proxied):
    with connected(proxied, b"PROXY TCP4 192.0.2.77 198.51.100.1 4711 5672\r\n") as connection:
        log_in(connection, b"nobody")

    proxied.wait_for_log(r"connection 192\.0\.2\.77:4711 -> 127\.0\.0\.1:\d+ refused: user 'nobody'")


def test_announced_address_is_the_peer_in_the_management_api(proxied):
    with relay(proxied.port, b"PROXY TCP4 127.0.0.9 127.0.0.1 4712 5672\r\n") as port:
        connection = pika.BlockingConnection(pika.ConnectionParameters(port=port))
        request = urllib.request.Request(f"http://127.0.0.1:{proxied.ports['http']}/api/connections",
                                         headers={"Authorization": "Basic Z3Vlc3Q6Z3Vlc3Q="})
        (shown,) = json.load(urllib.request.urlopen(request, timeout=in_time(60)))
        connection.close()

    assert (shown["peer_host"], shown["peer_port"]) == ("127.0.0.9", 4712)
    assert shown["name"].startswith("127.0.0.9:4712 -> 127.0.0.1:")


def test_header_comes_before_tls(proxied):
    context = ssl.create_default_context(cafile=proxied.authority)
    with connected(proxied, V2_FAR, proxied.ports["amqps"]) as connection:
        with context.wrap_socket(connection, server_hostname="localhost") as encrypted:
            assert log_in(encrypted) == (10, 50)
    with connected(proxied, NEAR, proxied.ports["amqps"]) as connection:
        with context.wrap_socket(connection, server_hostname="localhost") as encrypted:
            assert log_in(encrypted) == (10, 30)


def test_client_without_a_header_is_refused_with_a_reason_in_the_log(proxied):
    with connected(proxied, PROTOCOL_HEADER, source="127.0.0.2") as connection:
        assert has_ended(connection)

    proxied.wait_for_log(
        r"warn  listener: amqp connection from 127\.0\.0\.2:\d+ refused: PROXY protocol: "
        r"a header was due, but b'AMQP"
    )


def test_slow_header_ends_with_the_login_timeout(broker_process, tmp_path):
    """Of a broker of its own: a second is little for the logins of other tests."""
    config = tmp_path / "gomq.ini"
    config.write_text(
        "[amqp]\ntcp_proxy_protocol = true\nproxy_protocol_trusted_sources = 127.0.0.0/8\nlogin_timeout = 1\n"
    )
    broker = broker_process(config=config).start()

    with connected(broker, b"PROXY TCP4 192.", source="127.0.0.3") as connection:
        assert has_ended(connection)

    broker.wait_for_log("refused: PROXY protocol: no header within 1 s")


@pytest.mark.parametrize("header, answered", [(b"", (10, 30)), (V2_FAR, (10, 50)), (NEAR, (10, 30))])
def test_unix_socket_takes_headers_and_ordinary_clients(proxied, header, answered):
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(in_time(60))
        connection.connect(proxied.unix_path)
        connection.sendall(header)
        assert log_in(connection) == answered


def test_untrusted_client_cannot_announce(broker_process, tmp_path):
    """It speaks no AMQP, and is told so as everybody is."""
    config = tmp_path / "gomq.ini"
    config.write_text(
        "[amqp]\ntcp_proxy_protocol = 2\nproxy_protocol_trusted_sources = 192.0.2.1, 2001:db8::/32\n"
    )
    broker = broker_process(config=config).start()

    with connected(broker, NEAR + PROTOCOL_HEADER) as connection:
        assert read(connection, 100) == PROTOCOL_HEADER
    with connected(broker) as connection:
        assert log_in(connection) == (10, 30)


def test_limits_per_address_count_announced_addresses(broker_process, tmp_path):
    """One proxy brings two clients, and the second connection of one of them is one too many."""
    config = tmp_path / "gomq.ini"
    config.write_text("[amqp]\ntcp_proxy_protocol = true\nmax_connections_per_address = 1\n")
    broker = broker_process(config=config).start()
    first, second = (b"PROXY TCP4 192.0.2.%d 198.51.100.1 1 2\r\n" % number for number in (1, 2))

    with connected(broker, first + PROTOCOL_HEADER) as one, connected(
        broker, second + PROTOCOL_HEADER
    ) as other:
        assert (answer(one), answer(other)) == ((10, 10), (10, 10))
        with connected(broker, first + PROTOCOL_HEADER) as third:
            assert has_ended(third)

    broker.wait_for_log(
        r"connection from 192\.0\.2\.1 refused: it has 1 already \(max_connections_per_address\)"
    )
