"""Connections of links: a URI without a host is this broker, every other one is checked and connected to."""
import logging
from types import SimpleNamespace

import gevent
import gevent.ssl
import pytest
from gevent import socket

from gomq_py.client.errors import ConnectionClosed
from gomq_py.content.properties import Properties
from gomq_py.links import uris
from gomq_py.links.local import Connector
from gomq_py.links.remote_hosts import HostRefused
from gomq_py.links.uris import URIError
from gomq_py.links.webhook import Webhook
from gomq_py.net.listener import serve
from tests.support import certificates
from tests.support.door import Door
from tests.support.waiting import in_time, wait_until

OPTIONS = {"timeout_s": in_time(30)}
ADMINISTRATOR = SimpleNamespace(tags=("administrator",))


@pytest.fixture
def door(tmp_path):
    with Door(tmp_path / "data") as door:
        yield door


@pytest.fixture
def connector(door):
    return Connector(door.settings, door.server.local.connect)


@pytest.fixture
def ann(door):
    door.broker.create_vhost("v")
    door.broker.users.set_user("ann", "secret")
    for vhost in ("/", "v"):
        door.broker.users.set_permission("ann", vhost, ".*", ".*", ".*")
    return door.broker.users.get("ann")


@pytest.fixture
def port(door):
    """A port behind which is the door."""
    listening = socket.socket()
    listening.bind(("127.0.0.1", 0))
    listening.listen(5)

    def accept():
        while True:
            accepted, address = listening.accept()
            door.greenlets.append(gevent.spawn(serve_one, accepted, address))

    def serve_one(accepted, address):
        with accepted:
            serve(door.server.handle, accepted, address)

    greenlet = gevent.spawn(accept)
    yield listening.getsockname()[1]
    greenlet.kill()
    listening.close()


def test_a_uri_without_a_host_is_this_broker(door, connector, ann):
    with connector.connect("amqp://", ann, "Shovel jobs, source", "v", **OPTIONS) as connection:
        connection.channel().queue_declare("q")

        assert "q" in door.broker.vhosts["v"].queues
        one = door.connection()
        assert (one.user, one.client_properties["connection_name"]) == (ann, "Shovel jobs, source")
        assert one.limits.heartbeat_s == 0
    with connector.connect("amqp:///%2f?frame_max=8192", ann, "", "v", **OPTIONS) as connection:
        assert connection.frame_max == 8192
        connection.channel().queue_declare("q", passive=False)
        assert "q" in door.vhost.queues


def test_connections_of_this_process_write_no_line_each(door, connector, ann, port, caplog):
    """A link that fails connects again and again, and says itself what it meets."""
    with caplog.at_level(logging.INFO):
        for _ in range(3):
            connector.connect("amqp://", ann, "a link", "v", **OPTIONS).close()
        wait_until(lambda: door.hub.admission.count == 0, sleep=gevent.sleep)
        assert caplog.messages == []
        connector.connect(f"amqp://ann:secret@127.0.0.1:{port}/v", ADMINISTRATOR, **OPTIONS).close()
        wait_until(lambda: len(caplog.messages) == 2, sleep=gevent.sleep)  # others are told of


def test_nobody_logs_in_here_where_nobody_has_set_the_link(door, connector):
    with pytest.raises(URIError, match="nobody who may log in here has set the link"):
        connector.connect("amqp://")
    assert door.hub.admission.count == 0


def test_a_refusal_says_why(door, connector, ann):
    with pytest.raises(ConnectionClosed, match="vhost none not found"):
        connector.connect("amqp:///none", ann, **OPTIONS)


def test_a_uri_with_a_host_is_connected_to(door, connector, ann, port):
    uri = f"amqp://ann:secret@127.0.0.1:{port}/v"
    with connector.connect(uri, ADMINISTRATOR, name="a link", **OPTIONS) as connection:
        connection.channel().queue_declare("q")

        assert "q" in door.broker.vhosts["v"].queues
        assert door.connection().client_properties["connection_name"] == "a link"
        assert door.connection().door == "amqp"


def test_a_wrong_password_is_refused_and_not_repeated(connector, ann, port):
    with pytest.raises(ConnectionClosed) as raised:
        connector.connect(f"amqp://ann:wr0ng@127.0.0.1:{port}/v", ADMINISTRATOR, **OPTIONS)

    assert "wr0ng" not in str(raised.value)


def test_hosts_are_held_against_the_settings_at_each_attempt(door, connector, ann, port):
    door.settings.set("links_amqp_hosts_denied", (), "test")
    uri = f"amqp://ann:secret@localhost:{port}/v"
    connector.connect(uri, ADMINISTRATOR, **OPTIONS).close()

    denied = type(door.settings).checked(links_amqp_hosts_denied="127.0.0.0/8, ::1").links_amqp_hosts_denied
    door.settings.set("links_amqp_hosts_denied", denied, "test")

    with pytest.raises(HostRefused, match=r"localhost \(.*\) is in .*, which amqp_hosts_denied in \[links\]"):
        connector.connect(uri, ADMINISTRATOR, **OPTIONS)
    with pytest.raises(URIError, match="amqp_hosts_denied"):
        connector.check("amqp://127.0.0.1")


@pytest.mark.parametrize(
    "user", [None, SimpleNamespace(tags=("policymaker",))], ids=["nobody", "policymaker"])
def test_only_administrators_links_come_to_a_broker_from_its_own_machine(door, connector, ann, port, user):
    """Whose users, guest for one, may log in from there alone."""
    for host in ("127.0.0.1", "localhost", "[::ffff:127.0.0.1]"):
        with pytest.raises(HostRefused, match="http_hosts_denied for a link that no administrator has set"):
            connector.connect(f"amqp://ann:secret@{host}:{port}/v", user, **OPTIONS)
    with pytest.raises(URIError, match="no administrator"):
        connector.check("amqp://127.0.0.1", user=user)

    allowed = type(door.settings).checked(links_amqp_hosts_allowed="127.0.0.1").links_amqp_hosts_allowed
    door.settings.set("links_amqp_hosts_allowed", allowed, "test")

    connector.connect(f"amqp://ann:secret@127.0.0.1:{port}/v", user, **OPTIONS).close()


def test_what_sets_a_link_is_checked_ahead(door, connector):
    connector.check("amqp://")
    connector.check(["amqp://h", "amqps://h"])
    connector.check(["amqp://", "http://h/x"], uris.DESTINATIONS)
    for value in ("http://h", "amqps://h?cacertfile=x", [], None):
        with pytest.raises(URIError):
            connector.check(value)
    with pytest.raises(URIError, match="http_hosts_denied"):
        connector.check("http://127.0.0.1/x", uris.DESTINATIONS)
    assert Connector.is_local("amqp:///x")
    assert not Connector.is_local("http://h")


def test_tls_with_a_file_of_the_folder(tmp_path, connector, ann, door):
    files = certificates.make(tmp_path)
    door.settings.set("links_tls_folder", str(tmp_path), "test")
    context = gevent.ssl.SSLContext(gevent.ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(files.certificate, files.key)
    listening = socket.socket()
    listening.bind(("127.0.0.1", 0))
    listening.listen(5)
    port = listening.getsockname()[1]

    def serve_all():
        for _ in range(3):
            accepted, address = listening.accept()
            try:
                with context.wrap_socket(accepted, server_side=True) as wrapped:
                    serve(door.server.handle, wrapped, address)
            except OSError:
                accepted.close()

    greenlet = gevent.spawn(serve_all)
    uri = f"amqps://ann:secret@localhost:{port}/v"
    with pytest.raises(gevent.ssl.SSLCertVerificationError):
        connector.connect(uri, ADMINISTRATOR, **OPTIONS)
    for _ in range(2):
        with connector.connect(f"{uri}?cacertfile={files.authority}", ADMINISTRATOR, **OPTIONS) as connection:
            connection.channel()
    assert len(connector._contexts) == 2  # one for both that name a file
    greenlet.get()
    listening.close()


@pytest.fixture
def https(tmp_path):
    """A server of HTTPS on the loopback, which answers one request on each connection: (port, its
    authority).
    """
    files = certificates.make(tmp_path)
    context = gevent.ssl.SSLContext(gevent.ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(files.certificate, files.key)
    listening = socket.socket()
    listening.bind(("127.0.0.1", 0))
    listening.listen(5)

    def serve_all():
        while True:
            accepted, _ = listening.accept()
            try:
                with context.wrap_socket(accepted, server_side=True) as wrapped:
                    wrapped.recv(65536)
                    wrapped.sendall(b"HTTP/1.1 204 No Content\r\n\r\n")
            except OSError:
                accepted.close()

    greenlet = gevent.spawn(serve_all)
    yield listening.getsockname()[1], str(files.authority)
    greenlet.kill()
    listening.close()


def test_a_webhook_posts_to_no_service_of_this_machine_unless_allowed(door, connector, https):
    uri = uris.parse(f"https://localhost:{https[0]}/", uris.HTTP)

    with pytest.raises(HostRefused, match="http_hosts_denied"):
        connector.connect_http(uri, 10)

    allowed = type(door.settings).checked(links_http_hosts_allowed="127.0.0.1, ::1").links_http_hosts_allowed
    door.settings.set("links_http_hosts_allowed", allowed, "test")
    with pytest.raises(gevent.ssl.SSLCertVerificationError):
        connector.connect_http(uri, in_time(10))


def test_a_webhook_over_tls(door, connector, https, monkeypatch):
    """The system's authorities vouch for certificates; here one of the test's is made one of them."""
    port, authority = https
    monkeypatch.setenv("SSL_CERT_FILE", authority)
    allowed = type(door.settings).checked(links_http_hosts_allowed="127.0.0.1, ::1").links_http_hosts_allowed
    door.settings.set("links_http_hosts_allowed", allowed, "test")
    uri = f"https://localhost:{port}/in"
    session = Webhook(uri, "jobs", connector).open(uri)

    for _ in range(2):
        session.send(SimpleNamespace(body=b"body", properties=Properties()))
    session.close()
