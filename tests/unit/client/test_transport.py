"""TLS on the client's connection, with the stdlib's and gevent's sockets."""
import contextlib
import os
import socket
import ssl
import threading

import gevent.socket
import pytest

from gomq_py.amqp.wire.methods import BasicConsume, BasicConsumeOk, BasicDeliver
from gomq_py.client.connection import Connection
from gomq_py.client.transport import Transport
from gomq_py.client.url import Parameters
from tests.support import certificates
from tests.support.scripted_broker import scripted_broker
from tests.support.waiting import in_time

TIMEOUT_S = in_time(20)  # less than the scripted broker's, which waits for what its client does next
SOCKETS = pytest.mark.parametrize("socket_module", [socket, gevent.socket])


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    return certificates.make(tmp_path_factory.mktemp("certificates"))


@pytest.fixture
def server_context(files):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(files.certificate, files.key)
    return context


@SOCKETS
def test_large_bodies_pass_both_ways_over_tls(files, server_context, socket_module):
    count, body = 40, bytes(range(256)) * 1024

    def script(peer):
        peer.handshake()
        peer.channel()
        peer.expect(BasicConsume)
        peer.send(1, BasicConsumeOk(consumer_tag="t"))
        for tag in range(count):
            peer.send_content(1, BasicDeliver(consumer_tag="t", delivery_tag=tag + 1), body)
        for _ in range(count):
            bodies = [peer.frame()[2] for _ in range(5)][2:]
            assert b"".join(bodies) == body
        peer.farewell()

    with scripted_broker(script, server_context) as url:
        with Connection(
            f"{url}?cacertfile={files.authority}", socket_module=socket_module, timeout_s=TIMEOUT_S
        ) as connection:
            channel = connection.channel()
            channel.consume("q", no_ack=True)
            for _ in range(count):
                channel.publish("", "q", body)
            received = [channel.next_delivery(TIMEOUT_S).body for _ in range(count)]

    assert received == [body] * count


@SOCKETS
def test_a_certificate_of_an_unknown_authority_is_refused(server_context, socket_module):
    def script(peer):
        peer.handshake()

    with pytest.raises(OSError):  # the broker's side of the failed handshake
        with scripted_broker(script, server_context) as url:
            with pytest.raises(ssl.SSLError):
                Connection(url, socket_module=socket_module, timeout_s=TIMEOUT_S)


@SOCKETS
def test_verification_may_be_waived(server_context, socket_module):
    def script(peer):
        peer.handshake()
        peer.farewell()

    with scripted_broker(script, server_context) as url:
        Connection(f"{url}?verify=verify_none", socket_module=socket_module, timeout_s=TIMEOUT_S).close()


def test_a_context_of_the_callers_own_is_used(files, server_context):
    context = ssl.create_default_context(cafile=files.authority)

    def script(peer):
        peer.handshake()
        peer.farewell()

    with scripted_broker(script, server_context) as url:
        Connection(url, tls_context=context, timeout_s=TIMEOUT_S).close()


def test_a_tls_handshake_with_gevents_sockets_lets_others_run(files, server_context):
    """Server and client are greenlets of one thread: a handshake that blocked the hub would wait for itself.
    """
    import gevent
    import gevent.ssl
    listening = gevent.socket.socket()
    listening.bind(("127.0.0.1", 0))
    listening.listen(1)
    context = gevent.ssl.SSLContext(gevent.ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(files.certificate, files.key)

    def serve():
        accepted, _ = listening.accept()
        with context.wrap_socket(accepted, server_side=True) as wrapped:
            wrapped.sendall(b"hello")

    greenlet = gevent.spawn(serve)
    transport = Transport(gevent.socket)
    options = {"cacertfile": str(files.authority)}
    transport.connect(
        Parameters("127.0.0.1", listening.getsockname()[1], tls=True, options=options), TIMEOUT_S)

    assert transport.wait(TIMEOUT_S)
    assert transport.receive() == b"hello"
    transport.close()
    greenlet.get()
    listening.close()


@SOCKETS
@pytest.mark.parametrize("is_dripping", [False, True])
def test_a_tls_handshake_that_does_not_end_is_told(socket_module, is_dripping):
    """Also where an octet comes every now and then."""
    ours, theirs = socket_module.socketpair()
    has_ended = threading.Event()

    def drip():
        for octet in b"\x16\x03\x03\x40\x00" + bytes(10_000):  # a record of 16 KiB
            if has_ended.wait(0.01):
                break
            with contextlib.suppress(BrokenPipeError):  # the handshake has ended meanwhile
                os.write(theirs.fileno(), bytes([octet]))

    dripping = threading.Thread(target=drip)
    if is_dripping:
        dripping.start()
    transport = Transport(socket_module)
    with pytest.raises(TimeoutError, match="the TLS handshake did not end within 0.2 s"):
        transport.connect(Parameters(tls=True), 0.2, None, ours)
    has_ended.set()
    if is_dripping:
        dripping.join()
    transport.close()
    theirs.close()


@SOCKETS
def test_a_socket_that_is_connected_already_is_used(socket_module):
    ours, theirs = socket_module.socketpair()
    transport = Transport(socket_module)

    transport.connect(Parameters(), TIMEOUT_S, None, ours)
    theirs.sendall(b"hello")

    assert transport.socket is ours
    assert transport.wait(TIMEOUT_S)
    assert transport.receive() == b"hello"
    transport.close()
    theirs.close()
