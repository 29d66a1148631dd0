"""TLS on a listener: handshake, versions, and peers that do not play along."""
import re
from contextlib import contextmanager, suppress

import gevent
import pytest
import trustme
from gevent import socket, ssl

from gomq_py.hub import turns as turns_module
from gomq_py.hub.scheduler import Scheduler
from gomq_py.hub.turns import SlowTurns
from gomq_py.net import openssl, tls
from gomq_py.net.listener import Listener, bind_tcp
from gomq_py.net.socket_options import SocketOptions
from tests.support import certificates
from tests.support.waiting import in_time, wait_until

MODE = 33  # SSL_CTRL_MODE: says what it is


@pytest.fixture
def listen(files):
    """A function that starts an echoing TLS listener; all are closed at the end."""
    started = []

    def start(timeout_s=in_time(30.0), handshaker=None, handle=echo, **options):
        handshaker = handshaker or tls.Handshaker(
            tls.Contexts(context(files, **options)), timeout_s, SlowTurns(Scheduler()))
        started.append(Listener(bind_tcp("127.0.0.1", 0, 16), "amqps", handle, SocketOptions(), handshaker))
        started[-1].start()
        return started[-1].port

    yield start
    for one in started:
        one.close()


def echo(connection, _address):
    while octets := connection.recv(100):
        connection.sendall(octets)


def context(files, **options):
    """A server's context from PEM files."""
    return tls.server_context(tls.TLSOptions(str(files.certificate), str(files.key), **options))


def client_context(files, identity=None):
    """A client's context that trusts the authority of ``files``,
    and shows the certificate of ``identity``.
    """
    # gevent's, where create_default_context() would give a blocking one
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_verify_locations(str(files.authority))
    if identity is not None:
        context.load_cert_chain(str(identity.certificate), str(identity.key))
    return context


@contextmanager
def connected(port, context, name="localhost"):
    """A TLS client that has asked for a host name."""
    with socket.create_connection(("127.0.0.1", port), timeout=in_time(30)) as plain:
        with context.wrap_socket(plain, server_hostname=name) as client:
            yield client


def is_served(port, context, name="localhost"):
    """Whether the handshake succeeds and the echo comes; with TLS 1.3 a client hears of its
    refusal only when it reads.
    """
    try:
        with connected(port, context, name) as client:
            client.sendall(b"hello")
            return client.recv(100) == b"hello"
    except (ssl.SSLError, ConnectionError):
        return False


def serial_of_server(port, context, name="localhost"):
    """Which certificate the server shows."""
    with connected(port, context, name) as client:
        return client.getpeercert()["serialNumber"]


def test_octets_go_both_ways_over_tls(listen, files):
    with socket.create_connection(("127.0.0.1", listen())) as plain:
        with client_context(files).wrap_socket(plain, server_hostname="localhost") as client:
            client.sendall(b"hello")

            assert client.recv(100) == b"hello"


def test_a_read_does_not_go_on_for_as_long_as_a_peer_changes_keys(listen, files):
    served = []

    def handle(connection, address):
        served.append(connection._sslobj)
        echo(connection, address)

    assert is_served(listen(handle=handle), client_context(files))

    connection = openssl._word(served[0], openssl.LIBRARY_AT)
    assert not openssl._library().SSL_ctrl(connection, MODE, 0, None) & openssl.AUTO_RETRY


def test_older_version_than_the_least_is_refused(listen, files):
    context = client_context(files)
    context.maximum_version = ssl.TLSVersion.TLSv1_2

    with socket.create_connection(("127.0.0.1", listen(least_version="1.3"))) as plain:
        with pytest.raises(ssl.SSLError):
            context.wrap_socket(plain, server_hostname="localhost")


def test_peer_that_does_not_speak_tls_is_dropped(listen, caplog):
    caplog.set_level("INFO")
    with socket.create_connection(("127.0.0.1", listen()), timeout=in_time(30)) as client:
        client.sendall(b"AMQP\x00\x00\x09\x01")

        wait_until(
            lambda: re.search("amqps connection from 127.0.0.1:[0-9]+ lost", caplog.text), sleep=gevent.sleep
        )
        with suppress(ConnectionResetError):  # octets that nobody read make a reset of the close
            while client.recv(100):  # an alert may come first
                pass


def test_peer_that_says_nothing_is_dropped_in_time(listen):
    with socket.create_connection(("127.0.0.1", listen(timeout_s=0.05)), timeout=in_time(30)) as client:
        assert client.recv(100) == b""


def test_missing_certificate_is_named(tmp_path):
    with pytest.raises(tls.TLSError, match="cannot read the certificate or key .*absent.pem: No such file"):
        tls.server_context(tls.TLSOptions(str(tmp_path / "absent.pem")))


def test_missing_key_is_named(files, tmp_path):
    with pytest.raises(tls.TLSError, match="absent.key: No such file"):
        tls.server_context(tls.TLSOptions(str(files.certificate), str(tmp_path / "absent.key")))


def test_key_of_another_certificate_is_refused(files, tmp_path):
    other = certificates.make(tmp_path)

    with pytest.raises(
        tls.TLSError, match="cannot use the certificate .* with the key .*KEY_VALUES_MISMATCH"
    ):
        tls.server_context(tls.TLSOptions(str(files.certificate), str(other.key)))


def test_unknown_ciphers_are_named(files):
    with pytest.raises(tls.TLSError, match="no cipher of TLS 1.2 is left by 'ROT13'"):
        context(files, ciphers="ROT13")


def test_keylog_file_that_cannot_be_written_is_named(files, tmp_path):
    with pytest.raises(tls.TLSError, match="cannot write TLS keys to .*/absent/keys"):
        context(files, keylog_file=str(tmp_path / "absent" / "keys"))


def test_keys_are_logged_where_asked_for(listen, files, tmp_path):
    port = listen(keylog_file=str(tmp_path / "keys"))

    assert is_served(port, client_context(files))
    assert "SERVER_HANDSHAKE_TRAFFIC_SECRET" in (tmp_path / "keys").read_text()


def test_only_the_ciphers_that_were_named_are_spoken(listen, files):
    port = listen(ciphers="ECDHE-ECDSA-AES256-GCM-SHA384:ECDHE-RSA-AES256-GCM-SHA384")
    speaker = client_context(files)
    speaker.maximum_version = ssl.TLSVersion.TLSv1_2
    with connected(port, speaker) as client:
        assert client.cipher()[0].endswith("AES256-GCM-SHA384")

    speaker.set_ciphers("ECDHE+AES128")
    assert not is_served(port, speaker)


def test_kernel_is_asked_for_only_on_demand(files):
    assert not context(files).options & openssl.ENABLE_KTLS
    assert context(files, kernel=True).options & openssl.ENABLE_KTLS


def test_tls_works_where_the_kernel_is_asked_for(listen, files):
    """It says so in no way that a program can see; where it cannot, the library goes on by itself."""
    assert is_served(listen(kernel=True), client_context(files))


# clients' certificates

@pytest.fixture(scope="module")
def identity(tmp_path_factory):
    """A client's certificate of an authority that the server may be told to trust."""
    return certificates.make_client(
        tmp_path_factory.mktemp("client"), trustme.CA(), "client.example.com", common_name="client"
    )


def test_certificate_is_asked_for_and_shown(listen, files, identity):
    seen = []
    port = listen(
        handle=lambda connection, address: (seen.append(connection.getpeercert()), echo(connection, address)),
        verify_peer=True, authorities=str(identity.authority),
    )

    assert is_served(port, client_context(files, identity))
    assert ("DNS", "client.example.com") in seen[0]["subjectAltName"]


def test_client_without_a_certificate_is_turned_away(listen, files, identity):
    assert not is_served(listen(verify_peer=True, authorities=str(identity.authority)), client_context(files))


def test_client_without_a_certificate_is_let_in_where_it_is_not_required(listen, files, identity):
    port = listen(verify_peer=True, authorities=str(identity.authority), certificate_required=False)

    assert is_served(port, client_context(files))


@pytest.mark.parametrize("required", [True, False])
def test_certificate_of_another_authority_is_turned_away(listen, files, identity, tmp_path, required):
    stranger = certificates.make_client(tmp_path / "stranger", trustme.CA(), "client.example.com")

    port = listen(verify_peer=True, authorities=str(identity.authority), certificate_required=required)

    assert not is_served(port, client_context(files, stranger))


def test_asking_for_certificates_needs_authorities(files, tmp_path):
    with pytest.raises(tls.TLSError, match="tls_verify_peer needs tls_ca_cert"):
        context(files, verify_peer=True)
    with pytest.raises(tls.TLSError, match="cannot read the authorities in .*absent.pem: No such file"):
        context(files, verify_peer=True, authorities=str(tmp_path / "absent.pem"))
    with pytest.raises(tls.TLSError, match="cannot use the authorities in "):
        context(files, verify_peer=True, authorities=str(files.key))


# host names

def test_context_is_found_by_the_host_name():
    contexts = tls.Contexts(
        "default", {"a.example.com": "a", "*.Example.com.": "any", "sub.example.org": "sub"}
    )

    asked = {
        "a.example.com": "a", "b.example.com": "any", "a.b.example.com": "default", "example.com": "default",
        "": "default", "sub.example.org": "sub", "example.org": "default",
    }
    assert {name: contexts.of(name) for name in asked} == asked


def test_each_host_name_has_a_certificate_and_rules_of_its_own(listen, files, identity, tmp_path):
    """Everything follows the name: certificate, least version, and whether a client has to show one; a
    resumed session of one opens no other.
    """
    strict = certificates.make(tmp_path / "strict", "strict.example.com")
    contexts = tls.Contexts(context(files), {
        "strict.example.com": context(
            strict, verify_peer=True, authorities=str(identity.authority), least_version="1.3"
        )})
    port = listen(handshaker=tls.Handshaker(contexts, 30.0, SlowTurns(Scheduler())))

    assert is_served(port, client_context(files))
    assert is_served(port, client_context(strict, identity), "strict.example.com")
    assert not is_served(port, client_context(strict), "strict.example.com")
    old = client_context(strict, identity)
    old.maximum_version = ssl.TLSVersion.TLSv1_2
    assert not is_served(port, old, "strict.example.com")


def test_hello_in_pieces_is_waited_for(listen, files, tmp_path):
    named = certificates.make(tmp_path / "named", "named.example.com")
    port = listen(
        handshaker=tls.Handshaker(
            tls.Contexts(context(files), {"named.example.com": context(named)}), 30.0, SlowTurns(Scheduler()))
    )
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = client_context(named).wrap_bio(incoming, outgoing, server_hostname="named.example.com")
    with pytest.raises(ssl.SSLWantReadError):
        client.do_handshake()

    with socket.create_connection(("127.0.0.1", port), timeout=in_time(30)) as plain:
        for octet in outgoing.read():
            plain.sendall(bytes([octet]))
            gevent.sleep(0)
        incoming.write(plain.recv(65536))
        while True:
            try:
                client.do_handshake()
                break
            except ssl.SSLWantReadError:
                incoming.write(plain.recv(65536))

    assert ("DNS", "named.example.com") in client.getpeercert()["subjectAltName"]


@pytest.mark.parametrize("octets, close", [
    (b"", True), (b"\x16\x03\x01", True), (b"\x16\x03\x01\x02\x00\x01", False), (b"", False)
])
def test_hello_that_does_not_come_ends_in_time(listen, files, octets, close):
    port = listen(
        handshaker=tls.Handshaker(
            tls.Contexts(context(files), {"x.example.com": context(files)}), 0.05, SlowTurns(Scheduler()))
    )

    with socket.create_connection(("127.0.0.1", port), timeout=in_time(30)) as plain:
        plain.sendall(octets)
        if close:
            plain.shutdown(socket.SHUT_WR)
        with suppress(ConnectionResetError):
            while plain.recv(100):
                pass


# new certificates

def test_replaced_certificate_is_for_connections_to_come(listen, files, tmp_path):
    newer = certificates.make(tmp_path / "newer")
    handshaker = tls.Handshaker(tls.Contexts(context(files)), 30.0, SlowTurns(Scheduler()))
    port = listen(handshaker=handshaker)
    with connected(port, client_context(files)) as old:
        before = serial_of_server(port, client_context(files))

        handshaker.replace(tls.Contexts(context(newer)), 30.0)

        old.sendall(b"still here")
        assert old.recv(100) == b"still here"
        assert serial_of_server(port, client_context(newer)) != before
        assert not is_served(port, client_context(files))


def test_handshakes_that_come_together_have_the_time_of_one_in_each_poll(listen, files, monkeypatch):
    """Connections that say hello at once: a step of a handshake takes most of a millisecond. Here a poll has
    time for the first one who asks.
    """
    monkeypatch.setattr(turns_module, "WALK_S", 0)
    turns, polls = SlowTurns(Scheduler()), []
    take = turns.take

    def noted():
        take()
        polls.append(gevent.get_hub().loop.iteration)

    turns.take = noted
    port = listen(handshaker=tls.Handshaker(tls.Contexts(context(files)), in_time(30.0), turns))
    hello = client_hello()
    clients = [socket.create_connection(("127.0.0.1", port)) for _ in range(20)]
    wait_until(lambda: len(polls) == len(clients), sleep=gevent.sleep)

    for one in clients:
        one.sendall(hello)
    for one in clients:
        assert one.recv(1) == b"\x16"

    assert len(polls) == len(set(polls)) == 2 * len(clients)
    for one in clients:
        one.close()


def client_hello():
    """The first octets of a handshake."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    with suppress(ssl.SSLWantReadError):
        context.wrap_bio(incoming, outgoing).do_handshake()
    return outgoing.read()
