"""TLS at a real broker, with pika: clients' certificates, the EXTERNAL login, host names, and certificates
that are replaced while it runs.
"""
import contextlib
import http.client
import json
import socket
import ssl
import struct

import pika
import pytest
import requests
import trustme

from tests.support import certificates
from tests.support.waiting import in_time
from tests.support.wire_encoding import HEARTBEAT, frame as frame_of
from tests.support.wire_script import Wire

REFUSED = (
    "ACCESS_REFUSED - Login was refused using authentication mechanism EXTERNAL. "
    "For details see the broker logfile."
)


@pytest.fixture(scope="module")
def authority():
    return trustme.CA()


@pytest.fixture
def server(tmp_path, authority):
    """The broker's own files."""
    return certificates.make(tmp_path / "server", authority=authority)


def client(folder, authority, *names, **options):
    """A client's context with a certificate of its own."""
    return context(certificates.make_client(folder, authority, *names, **options), show=True)


def context(files, show=False):
    """A client's context that trusts the authority of ``files``, and shows their certificate."""
    made = ssl.create_default_context(cafile=files.authority)
    if show:
        made.load_cert_chain(files.certificate, files.key)
    return made


@pytest.fixture
def start(broker_process, server, tmp_path):
    """A function from the text of an INI file to a running broker with TLS ports and a management API."""

    def start_(text="", **options):
        config = tmp_path / "gomq.ini"
        config.write_text(text)
        return broker_process(
            config=config, amqps_port=0, http_port=0, tls_cert=server.certificate, tls_key=server.key,
            **options,
        ).start()

    return start_


def mutual(server, more=""):
    """INI text for a broker that asks for certificates."""
    return f"[main]\ntls_verify_peer = true\ntls_ca_cert = {server.authority}\n{more}\n"


def add_user(broker, name, **body):
    """A user without a password, who may do everything in the default vhost."""
    api, login = f"http://127.0.0.1:{broker.ports['http']}/api", ("guest", "guest")
    quoted = requests.utils.quote(name, safe="")
    assert requests.put(
        f"{api}/users/{quoted}", json={"password_hash": "", "tags": "", **body}, auth=login,
        timeout=in_time(60),
    ).status_code == 201
    rights = {"configure": ".*", "write": ".*", "read": ".*"}
    assert requests.put(
        f"{api}/permissions/%2F/{quoted}", json=rights, auth=login, timeout=in_time(60)
    ).status_code == 201


def connect(broker, context, credentials=None, name="localhost"):
    """pika over TLS, by default with EXTERNAL."""
    credentials = credentials or pika.credentials.ExternalCredentials()
    return pika.BlockingConnection(pika.ConnectionParameters(
        port=broker.ports["amqps"], ssl_options=pika.SSLOptions(context, name), credentials=credentials))


@pytest.mark.parametrize("options, setting, user", [
    (
        {"organization_name": "Example", "organization_unit_name": "Ops", "common_name": "jane"}, "",
        "CN=jane,OU=Ops,O=Example",
    ),
    ({"common_name": "jane"}, "ssl_cert_login_from = common_name", "jane"),
    ({}, "ssl_cert_login_from = subject_alternative_name", "jane.example.com"),
    (
        {},
        (
            "ssl_cert_login_from = subject_alternative_name\nssl_cert_login_san_type = email\n"
            "ssl_cert_login_san_index = 1"
        ),
        "b@example.com",
    ),
])
def test_certificate_logs_its_user_in(start, server, authority, tmp_path, options, setting, user):
    broker = start(mutual(server, setting))
    add_user(broker, user)

    connection = connect(
        broker,
        client(tmp_path / "jane", authority, "jane.example.com", "a@example.com", "b@example.com", **options),
    )

    channel = connection.channel()
    channel.queue_declare("mine", exclusive=True)
    channel.basic_publish("", "mine", b"hello", pika.BasicProperties(user_id=user))
    assert channel.basic_get("mine", auto_ack=True)[2] == b"hello"
    (shown,) = requests.get(
        f"http://127.0.0.1:{broker.ports['http']}/api/connections", auth=("guest", "guest"),
        timeout=in_time(60),
    ).json()
    assert (shown["user"], shown["auth_mechanism"], shown["ssl"]) == (user, "EXTERNAL", True)
    assert shown["peer_cert_issuer"].startswith("OU=Testing CA")
    connection.close()


def test_unknown_user_of_a_good_certificate_is_refused(start, server, authority, tmp_path):
    broker = start(mutual(server, "ssl_cert_login_from = common_name"))

    with pytest.raises(pika.exceptions.ProbableAuthenticationError, match=REFUSED.replace(".", r"\.")):
        connect(broker, client(tmp_path / "jane", authority, "x.example.com", common_name="jane"))
    broker.wait_for_log("refused: user 'jane', whom the client's certificate names, does not exist")


def test_certificate_without_the_name_that_is_asked_for_is_refused(start, server, authority, tmp_path):
    broker = start(mutual(server, "ssl_cert_login_from = common_name"))

    with pytest.raises(pika.exceptions.ProbableAuthenticationError):
        connect(broker, client(tmp_path / "nameless", authority, "x.example.com"))
    broker.wait_for_log("refused: EXTERNAL login: no user name found in the client's certificate")


def test_passwords_work_beside_certificates(start, server, authority, tmp_path):
    broker = start(mutual(server))

    connect(
        broker, client(tmp_path / "jane", authority, "x.example.com"), pika.PlainCredentials("guest", "guest")
    ).close()


@pytest.mark.parametrize("shows, reason", [
    (False, "PEER_DID_NOT_RETURN_A_CERTIFICATE"), (True, "CERTIFICATE_VERIFY_FAILED")
])
def test_certificate_of_another_authority_or_none_ends_in_the_handshake(
    start, server, tmp_path, shows, reason
):
    broker = start(mutual(server))
    stranger = certificates.make_client(
        tmp_path / "stranger", trustme.CA(), "x.example.com", common_name="guest"
    )

    with pytest.raises(pika.exceptions.AMQPConnectionError):
        connect(
            broker, context_showing(server, stranger) if shows else context(server),
            pika.PlainCredentials("guest", "guest"),
        )
    broker.wait_for_log(f"amqps connection from 127.0.0.1:[0-9]+ lost: .*{reason}")


def context_showing(server, identity):
    made = context(server)
    made.load_cert_chain(identity.certificate, identity.key)
    return made


# what is offered, and what a client that asks all the same is told

def frame(payload):
    return struct.pack(">BHI", 1, 0, len(payload)) + payload + b"\xce"


def table(**fields):
    octets = b"".join(
        bytes([len(name)]) + name.encode() + (
            b"F" + table(**value) if isinstance(value, dict) else b"t" + bytes([value])
        )
        for name, value in fields.items()
    )
    return struct.pack(">I", len(octets)) + octets


def method(connection):
    """The payload of the next method frame; empty at the end."""
    octets = b""
    while len(octets) < 7 or len(octets) < 8 + struct.unpack(">I", octets[3:7])[0]:
        part = connection.recv(65536)
        if not part:
            return b""
        octets += part
    return octets[7:-1]


@contextlib.contextmanager
def strangers(broker, server, kind):
    """A socket on which nobody has logged in yet."""
    port = broker.ports["amqp" if kind == "plain" else "amqps"]
    with socket.create_connection(("127.0.0.1", port), timeout=in_time(60)) as connection:
        if kind == "plain":
            yield connection
        else:
            with context(server).wrap_socket(connection, server_hostname="localhost") as encrypted:
                yield encrypted


@pytest.mark.parametrize("kind", ["plain", "tls without a certificate"])
def test_external_is_neither_offered_nor_taken_without_a_certificate(start, server, kind):
    broker = start(mutual(server, "tls_fail_if_no_peer_cert = false"))

    with strangers(broker, server, kind) as connection:
        connection.sendall(b"AMQP\x00\x00\x09\x01")
        assert method(connection).endswith(b"\x00\x00\x00\x0eAMQPLAIN PLAIN\x00\x00\x00\x05en_US")
        connection.sendall(frame(
            struct.pack(">HH", 10, 11) + table(capabilities={"authentication_failure_close": True})
            + b"\x08EXTERNAL" + struct.pack(">I", 5) + b"guest" + b"\x05en_US"
        ))
        close = method(connection)

    assert close[:6] == struct.pack(">HHH", 10, 50, 403)
    assert close[7:7 + close[6]].decode() == REFUSED
    broker.wait_for_log("refused: EXTERNAL login without a verified client certificate")


def test_user_of_this_machine_only_needs_more_than_a_certificate(start, server, authority, tmp_path):
    """guest by certificate from an address that a proxy announces:
    the rule about addresses holds for it as well.
    """
    broker = start(
        mutual(server, "ssl_cert_login_from = common_name") + "[amqp]\ntcp_proxy_protocol = true\n"
    )
    shown = client(tmp_path / "guest", authority, "x.example.com", common_name="guest")
    for header, refused in (
        (b"PROXY TCP4 127.0.0.1 127.0.0.1 1 2\r\n", False), (b"PROXY TCP4 192.0.2.7 127.0.0.1 1 2\r\n", True)
    ):
        with socket.create_connection(("127.0.0.1", broker.ports["amqps"]), timeout=in_time(60)) as plain:
            plain.sendall(header)
            with shown.wrap_socket(plain, server_hostname="localhost") as connection:
                connection.sendall(b"AMQP\x00\x00\x09\x01")
                assert b"AMQPLAIN PLAIN EXTERNAL" in method(connection)
                connection.sendall(
                    frame(struct.pack(">HH", 10, 11) + table() + b"\x08EXTERNAL" + bytes(4) + b"\x05en_US")
                )
                assert (method(connection)[:4] != struct.pack(">HH", 10, 30)) == refused


# host names

def test_host_names_have_certificates_of_their_own(start, server, authority, tmp_path):
    strict = certificates.make(tmp_path / "strict", "strict.example.com", authority=authority)
    api = certificates.make(tmp_path / "api", "api.example.com", authority=authority)
    broker = start(
        f"[sni:strict.example.com]\ntls_cert = {strict.certificate}\ntls_key = {strict.key}\n"
        f"amqp_tls_verify_peer = true\ntls_ca_cert = {strict.authority}\n[sni:*.example.com]\nhttp_tls_cert "
        f"= {api.certificate}\nhttp_tls_key = {api.key}\n",
        https_port=0)
    guest = pika.PlainCredentials("guest", "guest")

    connect(broker, context(server), guest).close()
    connect(
        broker, client(tmp_path / "jane", authority, "x.example.com"), guest, "strict.example.com"
    ).close()
    with pytest.raises(pika.exceptions.AMQPConnectionError):
        connect(broker, context(server), guest, "strict.example.com")
    with pytest.raises(ssl.SSLCertVerificationError):  # the section is for https alone
        connect(broker, context(server), guest, "api.example.com")
    assert json.loads(
        get_over_tls(broker.ports["https"], context(server), "api.example.com", "/api/whoami")
    )["name"] == "guest"
    assert json.loads(
        get_over_tls(broker.ports["https"], context(server), "localhost", "/api/whoami")
    )["name"] == "guest"
    assert json.loads(
        get_over_tls(broker.ports["https"], context(server), "strict.example.com", "/api/whoami")
    )["name"] == "guest"


def test_cookie_of_a_session_that_began_over_tls_is_for_tls_alone(start, server):
    broker = start("", https_port=0)
    connection = http.client.HTTPSConnection(
        "localhost", broker.ports["https"], context=context(server), timeout=in_time(60)
    )

    with contextlib.closing(connection):
        connection.request("POST", "/api/session", headers={"Authorization": "Basic Z3Vlc3Q6Z3Vlc3Q="})
        cookie = connection.getresponse().headers["Set-Cookie"]

    assert "; Secure; HttpOnly; Path=/; SameSite=Strict" in cookie


def get_over_tls(port, context, name, path):
    """The body of a GET; the name is asked for in the handshake."""
    with socket.create_connection(("127.0.0.1", port), timeout=in_time(60)) as plain:
        with context.wrap_socket(plain, server_hostname=name) as encrypted:
            encrypted.sendall(f"GET {path} HTTP/1.0\r\nHost: localhost\r\nAuthorization: Basic Z3Vlc3Q6Z3Vlc3Q=\r\n\r\n".encode())
            octets = b""
            while part := encrypted.recv(65536):
                octets += part
    return octets.partition(b"\r\n\r\n")[2]


def test_mistake_in_a_section_is_one_line_that_names_it(start, tmp_path):
    with pytest.raises(
        AssertionError,
        match=r"gomq-py: \[sni:a\.example\.com\]: cannot read the certificate or key .*absent\.pem",
    ):
        start(f"[sni:a.example.com]\ntls_cert = {tmp_path}/absent.pem\n")


class Sealer:
    """A client's TLS, as a socket for Wire, that also hands out what it would send."""

    def __init__(self, port, made):
        self.plain = socket.create_connection(("127.0.0.1", port), timeout=in_time(60))
        self.settimeout = self.plain.settimeout
        self._come, self._go = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = made.wrap_bio(self._come, self._go, server_hostname="localhost")
        self._done(self._tls.do_handshake)
        self.plain.sendall(self._go.read())

    def _done(self, do, *arguments):
        while True:
            try:
                return do(*arguments)
            except ssl.SSLWantReadError:
                self.plain.sendall(self._go.read())
                self._come.write(self.plain.recv(65536))

    def recv(self, count):
        return self._done(self._tls.read, count)

    def sealed(self, octets):
        """They as a record."""
        self._tls.write(octets)
        return self._go.read()

    def sendall(self, octets):
        self.plain.sendall(self.sealed(octets))

    def end(self):
        """The record that says that nothing follows."""
        with contextlib.suppress(ssl.SSLWantReadError):
            self._tls.unwrap()
        return self._go.read()


@pytest.mark.parametrize("is_orderly", [True, False])
def test_an_end_of_tls_right_behind_a_record_ends_the_connection(start, server, is_orderly):
    client = Sealer(start().ports["amqps"], context(server))
    wire = Wire(client)
    with contextlib.closing(client.plain):
        wire.login()
        wire.send_method(0, "connection.open", virtual_host="/")
        wire.expect(0, "connection.open-ok")
        wire.channel(1)

        client.plain.sendall(
            client.sealed(frame_of(HEARTBEAT, 0, b"")) + (client.end() if is_orderly else b"\x17\3\3\0\x20" + bytes(32)))

        with contextlib.suppress(ConnectionResetError):
            while client.plain.recv(65536):  # TimeoutError while it is served
                pass
