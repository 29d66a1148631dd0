"""Fuzz targets of the other doors: requests to the management API, tokens, the PROXY protocol,
the hello of TLS clients.
"""
import json
import shutil
from functools import cache
from ipaddress import ip_address
from types import SimpleNamespace

from gomq_py.auth.errors import LoginRefused
from gomq_py.auth.permissions import CONFIGURE, READ, WRITE
from gomq_py.auth.tokens import Tokens, TokenUser
from gomq_py.federation.supervisor import Federation
from gomq_py.http.app import create_control_app
from gomq_py.http.doctor import Doctor
from gomq_py.http.feed import Feed
from gomq_py.http.index import Index
from gomq_py.http.door import Node as HTTPNode
from gomq_py.http.rates import Rates
from gomq_py.http.server import ManagementHandler, _Server
from gomq_py.hub.timers import HubTimers
from gomq_py.mqtt.model.kinds import all_kinds
from gomq_py.net import client_hello, proxy_protocol
from gomq_py.net.listener import bind_tcp
from gomq_py.net.proxy_protocol import SIGNATURE, ProxyProtocolError
from gomq_py.shovel.supervisor import Shovels
from tests.fuzz.config_targets import folder
from tests.fuzz.target import Draw, Target, errors_logged
from tests.support.node import Node

# requests

NAMES = (
    b"%2F", b"q", b"nothing", b"amq.topic", b"guest", b"%C3%BC", b"%00", b"..", b"a%2Fb", b"max-queues",
    b"vhost-limits", b"~",
)
QUERIES = (
    b"", b"?page=1&page_size=2", b"?page=0", b"?name=.*&use_regex=true&page=1",
    b"?name=%28&use_regex=true&page=1", b"?sort=name&sort_reverse=true", b"?columns=name,messages",
    b"?lengths_age=60&lengths_incr=5", b"?if-empty=true&if-unused=true", b"?vhost=%2F&report=true",
    b"?family=queue_metrics", b"?msg_rates_age=1e9&msg_rates_incr=-1", b"?disable_stats=true",
    b"?page=99999999999999999999&page_size=x",
)
# Their answers go on until the client leaves, which one of these does not.
ENDLESS = ("/api/events", "/api/log")
READING = ("GET", "HEAD", "OPTIONS")
# Answers to what cannot be done just now, which are no faults.
UNAVAILABLE = b"HTTP/1.1 503"


class _Peer:
    """A client's socket: gives what it was made of in pieces, then its end; keeps what it is sent."""

    def __init__(self, pieces):
        self._pieces = list(pieces)
        self.sent = bytearray()

    def recv_into(self, buffer):
        if not self._pieces:
            return 0
        piece = self._pieces[0][:len(buffer)]
        self._pieces[0] = self._pieces[0][len(piece):]
        if not self._pieces[0]:
            del self._pieces[0]
        buffer[:len(piece)] = piece
        return len(piece)

    def send(self, data):
        self.sent += data
        return len(data)

    def sendall(self, octets):
        self.sent += octets

    def close(self):
        pass

    def fileno(self):
        return -1


class _Door:
    """A management app where everybody may do everything,
    on a broker that is made anew when a request may have changed it.
    """

    def __init__(self):
        self.broker = _Broker()
        self._app = create_control_app(self.broker.shown)
        self._server = _Server(
            bind_tcp("127.0.0.1", 0, 1), self._app, None, self.broker.node.broker.settings, None, None)
        self.rules = sorted(
            (rule.rule, method) for rule in self._app.url_map.iter_rules() for method in rule.methods
            if rule.rule not in ENDLESS
        )

    def ask(self, pieces):
        """What a client is answered that sends these octets and then no more."""
        peer = _Peer(piece for piece in pieces if piece)
        clients = self._server.clients
        client = clients.enter(peer, "127.0.0.1")
        ManagementHandler(
            client, clients, self.broker.node.broker.settings, ("127.0.0.1", 1), self._server
        ).handle()
        clients.leave(client)
        return bytes(peer.sent)

    def renew(self):
        """Another broker, in which nothing has happened."""
        self.broker.stop()
        self.broker = _Broker()
        self._app.extensions["gomq.node"] = self.broker.shown


class _Broker:
    def __init__(self):
        root = folder() / "http"
        shutil.rmtree(root, ignore_errors=True)
        kinds = all_kinds()
        federation = Federation(kinds)
        self.node = Node(root, kinds=kinds)
        federation.open(self.node.broker, self.node.hub, None)
        shovels = Shovels(self.node.broker, self.node.hub, None)  # not started: none of them connects
        shovels.take_over({})
        self.node.vhost.declare_queue("q", durable=True)
        settings = self.node.broker.settings
        rates = Rates(settings.stats_interval / 1000, settings.stats_log_size)
        self._index = Index(HubTimers(), settings.stats_interval / 1000)
        self._feed = Feed(self.node.broker.events)
        self.shown = HTTPNode(
            self.node.broker, self.node.hub.clients, settings, lambda: [], "gomq@fuzz", rates, self._index,
            self._feed, shovels, federation, Doctor(),
            backup=lambda: SimpleNamespace(figures=dict, begin=dict))

    def stop(self):
        self._feed.close()
        self._index.close()
        self.node.stop()


@cache
def _door():
    return _Door()


def run_http(data):
    """Whatever is asked, in whatever pieces, it is answered in HTTP and no fault of ours."""
    draw = Draw(data)
    raw = draw.octet() % 4 == 0
    cut = draw.short()
    octets = draw.rest() if raw else _request(draw)
    with errors_logged() as errors:
        answer = _door().ask((octets[:cut], octets[cut:]))
    if raw or octets.split(b" ", 1)[0].decode() not in READING:
        _door().renew()
    assert not answer or answer.startswith(b"HTTP/1.1 "), answer[:100]
    assert not answer.startswith(b"HTTP/1.1 5") or answer.startswith(UNAVAILABLE), (octets, answer[:200])
    assert not errors, errors


def _request(draw):
    """A request to one of the routes there are."""
    rule, method = _door().rules[draw.short() % len(_door().rules)]
    path = b""
    for part in rule.encode().split(b"/")[1:]:
        path += b"/" + (draw.choice(NAMES) if part.startswith(b"<") else part)
    query, body = draw.choice(QUERIES), draw.rest()
    if method in READING:
        return b"%s %s%s HTTP/1.1\r\nHost: x\r\n\r\n" % (method.encode(), path, query)
    head = b"%s %s%s HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
    return head % (method.encode(), path, query, len(body)) + body


BODIES = (
    {}, {"durable": True, "arguments": {"x-max-length": 1}}, {"type": "topic", "durable": "yes"},
    {"password": "x", "tags": "administrator"},
    {"configure": ".*", "write": "(", "read": ""},
    {"pattern": "^q", "definition": {"max-length": 5}, "apply-to": "queues", "priority": 1},
    {"value": 5}, {"value": {"a": [1]}, "component": "x"},
    {"properties": {}, "routing_key": "q", "payload": "x", "payload_encoding": "string"},
    {
        "properties": {"headers": {"a": None}, "delivery_mode": "2"}, "routing_key": "q", "payload": "eA==",
        "payload_encoding": "base64",
    },
    {"count": 5, "ackmode": "ack_requeue_true", "encoding": "auto", "truncate": 3},
    {"vhosts": [{"name": "/"}], "queues": [{"name": "q"}]},
    {"routing_key": "k", "arguments": {"x-match": "all"}}, {"users": ["guest"]},
    {"destination": "q", "count": 1, "from": "x"}, [], "text",
    None, 1e400,
)


def sample_http():
    rules = _door().rules
    for number, (_, method) in enumerate(rules):
        if method in ("HEAD", "OPTIONS"):
            continue
        body = json.dumps(BODIES[number % len(BODIES)]).encode()
        yield bytes((1, 255, 255)) + number.to_bytes(2, "big") + bytes((0, 1, number % len(QUERIES))) + body
    for rule, name in (("exchanges/<vhost>/<exchange:name>/publish", 3), ("queues/<vhost>/<name>/get", 1)):
        target = rules.index((f"/api/{rule}", "POST")).to_bytes(2, "big")
        for body in BODIES:
            yield bytes((1, 0, 30)) + target + bytes((0, name, 0)) + json.dumps(body).encode()
    yield b"\x00\x00\x09GET /api/overview HTTP/1.1\r\nHost: x\r\n\r\nGET /nothing HTTP/1.1\r\n\r\n"
    yield (
        b"\x00\x00\x40PUT /api/queues/%2f/n HTTP/1.1\r\nTransfer-Encoding: "
        b"chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n"
    )
    form = b"Content-Type: multipart/form-data; boundary=b\r\nContent-Length: 20\r\n\r\n--b\r\nContent-Disp"
    yield b"\x00\x00\x40POST /api/definitions HTTP/1.1\r\n" + form
    yield b"\x00\x00\x05GET / HTTP/0.9\r\n" + b"A: b\r\n" * 101 + b"\r\n"


# tokens

SETTINGS = SimpleNamespace(
    oauth_issuer="https://issuer", oauth_jwks_cache_ttl=60, oauth_verify_aud=True, oauth_audience="",
    oauth_resource_server_id="gomq", oauth_preferred_username_claims=("sub", "client_id"),
    oauth_additional_scopes_keys=("more",), oauth_scope_prefix="")


class _NoKeys:
    def key(self, kid):
        raise LoginRefused(f"no key {kid}")


def run_tokens(data):
    """Any text is refused as a token; any claims that were signed make a user or are refused,
    and a user's rights can be asked for.
    """
    tokens = Tokens(SETTINGS, lambda: SimpleNamespace(revision=0), _NoKeys())
    try:
        tokens.verify(data.decode("utf-8", "surrogateescape"))
        raise AssertionError("a token without a key was taken")
    except LoginRefused as error:
        assert str(error)
    try:
        payload = json.loads(data)
    except (ValueError, RecursionError):
        return
    if not isinstance(payload, dict):
        return
    payload["exp"] = 4_000_000_000
    try:
        tokens._check_issuer(payload)
        tokens._check_audience(payload)
        user = TokenUser(tokens._claims(payload), SimpleNamespace(revision=0))
    except LoginRefused as error:
        assert str(error)
        return
    for vhost in ("/", "v", ""):
        permission = user.permission(vhost)
        if permission is not None:
            for verb in (CONFIGURE, WRITE, READ):
                permission.allows(verb, "q")
        user.topic_permission(vhost, "amq.topic")


def sample_tokens():
    claims = {"iss": "https://issuer/", "aud": "gomq", "sub": "ann", "exp": 1}
    for scope in (
        "gomq.tag:administrator gomq.read:*/*", "gomq.write:%2F/a*b/k*", ["gomq.configure:v/%zz", 5],
        "gomq.read:/", "",
    ):
        yield json.dumps({**claims, "scope": scope}).encode()
    roles = {"gomq": {"roles": ["gomq.read:*/**"]}}
    yield json.dumps(
        {**claims, "aud": ["gomq", 1], "resource_access": roles, "more": {"gomq": "gomq.tag:x"}}
    ).encode()
    yield json.dumps({**claims, "sub": None, "client_id": 5, "more": ["gomq.write:a/b/c/d"]}).encode()
    yield b"eyJhbGciOiJSUzI1NiIsImtpZCI6ImEifQ.eyJpc3MiOiJ4In0.AAAA"
    yield b"e30.e30."
    yield b"..\xff"


# the PROXY protocol

def run_proxy(data):
    """A header is the same however much of it is there, and names an address or nobody;
    nothing else is taken for one.
    """
    try:
        header = proxy_protocol.parse(data)
    except ProxyProtocolError as error:
        assert len(str(error).splitlines()) == 1
        return
    if header is None:
        assert len(data) < proxy_protocol.V2_MAX_OCTETS
        return
    assert 0 < header.size <= min(len(data), proxy_protocol.V2_MAX_OCTETS)
    assert proxy_protocol.parse(data[:header.size]) == header
    for size in {*range(1, min(header.size, 20)), header.size - 1}:
        assert proxy_protocol.parse(data[:size]) is None, size
    if header.source is not None:
        host, port = header.source
        assert str(ip_address(host)) == host and 0 <= port <= 65535


def sample_proxy():
    yield b"PROXY TCP4 192.0.2.7 198.51.100.1 56324 5672\r\nAMQP"
    yield b"PROXY TCP6 2001:db8::7 ::ffff:1.2.3.4 1 2\r\n"
    yield b"PROXY UNKNOWN whatever\r\n"
    addresses = bytes.fromhex("c0000207c6336401dc041628")
    yield SIGNATURE + b"\x21\x11\x00\x0c" + addresses
    yield SIGNATURE + b"\x21\x11\x00\x13" + addresses + b"\x03\x00\x04\x00\x00\x00\x00"
    yield SIGNATURE + b"\x21\x21\x00\x27" + bytes(36) + b"\x04\x00\x00rest"
    yield SIGNATURE + b"\x21\x31\x00\xd8" + bytes(216)
    yield SIGNATURE + b"\x20\x00\x00\x00"


# the hello of a TLS client

def run_hello(data):
    """A name is ASCII, and the same however much follows; what is no hello has none."""
    try:
        name = client_hello.server_name(data)
    except client_hello.Incomplete:
        return
    assert name.isascii() and name == name.lower()
    assert client_hello.server_name(data + b"\x16\x03\x01") == name


def sample_hello():
    host = b"\x00\x0e\x00\x00\x0b" + b"Example.com"
    extensions = b"\x00\x2b\x00\x01\x00" + b"\x00\x00" + len(host).to_bytes(2, "big") + host
    hello = b"\x03\x03" + bytes(32) + b"\x00" + b"\x00\x02\x13\x01" + b"\x01\x00" + len(extensions).to_bytes(
        2, "big"
    ) + extensions
    message = b"\x01" + len(hello).to_bytes(3, "big") + hello
    yield b"\x16\x03\x01" + len(message).to_bytes(2, "big") + message
    yield b"\x16\x03\x01\x00\x05" + message[:5] + b"\x16\x03\x01" + (
        len(message) - 5
    ).to_bytes(2, "big") + message[5:]
    yield b"\x16\x03\x01\x00\x00"
    yield b"\x15\x03\x01\x00\x02\x02\x28"


HTTP_WORDS = (
    b" HTTP/1.1\r\n", b"Content-Length: ", b"Transfer-Encoding: chunked\r\n", b"Expect: 100-continue\r\n",
    b"Connection: close\r\n", b"\r\n\r\n", b"GET /api/", b"PUT /api/", b"POST /api/", b"DELETE /api/", b"%2F",
    b'"arguments"', b'"durable"', b'"definition"', b'"payload_encoding"', b"null", b"1e999",
)
TOKEN_WORDS = (
    b'"scope"', b'"aud"', b'"iss"', b'"sub"', b"gomq.", b"tag:", b"read:", b"%2F", b"**",
    b'"resource_access"', b'"roles"',
)

TARGETS = {
    "http": Target(run_http, sample_http, 2048, HTTP_WORDS),
    "tokens": Target(run_tokens, sample_tokens, 1024, TOKEN_WORDS),
    "proxy": Target(run_proxy, sample_proxy, 512, (SIGNATURE, b"PROXY TCP4 ", b"\r\n", b"::ffff:")),
    "hello": Target(run_hello, sample_hello, 512, (b"\x16\x03\x01", b"\x00\x00")),
}
