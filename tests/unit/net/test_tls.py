"""TLS on a listener: handshake, versions, and peers that do not play along."""
import re
from contextlib import suppress

import gevent
import pytest
from gevent import socket, ssl

from gomq_py.net import tls
from gomq_py.net.listener import Listener, SocketOptions, bind_tcp
from tests.support import certificates
from tests.support.waiting import wait_until


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    return certificates.make(tmp_path_factory.mktemp("certificates"))


@pytest.fixture
def listen(files):
    """A function that starts an echoing TLS listener; all are closed at the end."""
    started = []

    def start(timeout_s=5.0, **options):
        context = tls.server_context(str(files.certificate), str(files.key), **options)
        started.append(Listener(bind_tcp("127.0.0.1", 0, 16), "amqps", echo, SocketOptions(), tls.handshaker(context, timeout_s)))
        started[-1].start()
        return started[-1].port

    yield start
    for one in started:
        one.close()


def echo(connection, _address):
    while octets := connection.recv(100):
        connection.sendall(octets)


def client_context(files):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)  # gevent's, where create_default_context() would give a blocking one
    context.load_verify_locations(str(files.authority))
    return context


def test_octets_go_both_ways_over_tls(listen, files):
    with socket.create_connection(("127.0.0.1", listen())) as plain:
        with client_context(files).wrap_socket(plain, server_hostname="localhost") as client:
            client.sendall(b"hello")

            assert client.recv(100) == b"hello"


def test_older_version_than_the_least_is_refused(listen, files):
    context = client_context(files)
    context.maximum_version = ssl.TLSVersion.TLSv1_2

    with socket.create_connection(("127.0.0.1", listen(least_version="1.3"))) as plain:
        with pytest.raises(ssl.SSLError):
            context.wrap_socket(plain, server_hostname="localhost")


def test_peer_that_does_not_speak_tls_is_dropped(listen, caplog):
    caplog.set_level("INFO")
    with socket.create_connection(("127.0.0.1", listen()), timeout=5) as client:
        client.sendall(b"AMQP\x00\x00\x09\x01")

        wait_until(lambda: re.search("amqps connection from 127.0.0.1:[0-9]+ lost", caplog.text), sleep=gevent.sleep)
        with suppress(ConnectionResetError):  # octets that nobody read make a reset of the close
            while client.recv(100):  # an alert may come first
                pass


def test_peer_that_says_nothing_is_dropped_in_time(listen):
    with socket.create_connection(("127.0.0.1", listen(timeout_s=0.05)), timeout=5) as client:
        assert client.recv(100) == b""


def test_missing_certificate_is_named(tmp_path):
    with pytest.raises(tls.TLSError, match="cannot read the certificate or key .*absent.pem: No such file"):
        tls.server_context(str(tmp_path / "absent.pem"))


def test_missing_key_is_named(files, tmp_path):
    with pytest.raises(tls.TLSError, match="absent.key: No such file"):
        tls.server_context(str(files.certificate), str(tmp_path / "absent.key"))


def test_key_of_another_certificate_is_refused(files, tmp_path):
    other = certificates.make(tmp_path)

    with pytest.raises(tls.TLSError, match="cannot use the certificate .* with the key .*KEY_VALUES_MISMATCH"):
        tls.server_context(str(files.certificate), str(other.key))


def test_unknown_ciphers_are_named(files):
    with pytest.raises(tls.TLSError, match="no cipher of TLS 1.2 is left by 'ROT13'"):
        tls.server_context(str(files.certificate), str(files.key), ciphers="ROT13")
