"""Webhooks: the octets of a request, what each answer means, and servers that misbehave."""
import hashlib
import hmac
import ssl
from datetime import datetime, timezone
from decimal import Decimal
from types import SimpleNamespace

import gevent
import pytest
from gevent import socket
from gevent.event import Event
from gevent.queue import Queue

from gomq_py import __version__
from gomq_py.client.backoff import Backoff
from gomq_py.content.properties import Properties
from gomq_py.errors import Malformed
from gomq_py.links import http_client, webhook
from gomq_py.links.ends import RefusedByTarget
from gomq_py.links.remote_hosts import HostRefused
from gomq_py.links.uris import URIError
from gomq_py.links.webhook import Webhook, field_value, retry_after_s
from tests.support.waiting import in_time, wait_until

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
NO_WAIT = Backoff(0.0, 0.0, retries=3)


class Server:
    """Answers each request with the next of ``answers``: octets, None for no answer and the end of the
    connection, or a function of the socket. ``requests`` has what came.
    """

    def __init__(self, *answers):
        self.answers = Queue()
        for answer in answers:
            self.answers.put(answer)
        self.requests = []
        self.connections = 0
        self._listening = socket.socket()
        self._listening.bind(("127.0.0.1", 0))
        self._listening.listen(10)
        self.port = self._listening.getsockname()[1]
        self._greenlets = [gevent.spawn(self._accept)]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        gevent.killall(self._greenlets)
        self._listening.close()

    def connect_http(self, link_uri, timeout_s, tls, account=None):
        """In the place of the Connector's."""
        return socket.create_connection(("127.0.0.1", self.port), timeout=timeout_s)

    def session(self, uri="http://hooks.example/in", name="jobs", **options):
        options = {"backoff": NO_WAIT, "timeout_s": in_time(10), **options}
        return Webhook(uri, name, self, **options).open(uri)

    def _accept(self):
        while True:
            accepted, _ = self._listening.accept()
            self.connections += 1
            self._greenlets.append(gevent.spawn(self._serve, accepted))

    def _serve(self, accepted):
        with accepted:
            while request := read_request(accepted):
                self.requests.append(request)
                answer = self.answers.get()
                if callable(answer):
                    answer = answer(accepted)
                if answer is None:
                    return
                accepted.sendall(answer)


def read_request(accepted):
    """(head, body) of a request; None at the end."""
    octets = b""
    while b"\r\n\r\n" not in octets:
        more = accepted.recv(65536)
        if not more:
            return None
        octets += more
    head, _, body = octets.partition(b"\r\n\r\n")
    length = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])
    while len(body) < length:
        body += accepted.recv(65536)
    return head, body


def message(body=b"body", **properties):
    return SimpleNamespace(body=body, properties=Properties(**properties))


def fields(server):
    """The lines of the only request's head, without the first."""
    ((head, _),) = server.requests
    return head.split(b"\r\n")[1:]


def test_the_octets_of_a_request():
    signature = hmac.new(b"key", b"body", hashlib.sha256).hexdigest()
    with Server(OK) as server:
        session = server.session("http://ann:p%40ss@hooks.example:8080/in?x=1", secret="key")
        session.send(message(
            content_type="text/plain", message_id="m1", headers={"tenant": "a", "count": 3, "live": True}))

        ((head, body),) = server.requests
    assert body == b"body"
    assert head.split(b"\r\n") == [
        b"POST /in?x=1 HTTP/1.1", b"Host: hooks.example:8080", f"User-Agent: gomq-py/{__version__}".encode(),
        b"X-Shovel: jobs", b"Authorization: Basic YW5uOnBAc3M=", b"Content-Length: 4",
        b"Content-Type: text/plain", b"X-Message-Id: m1", f"X-Signature: sha256={signature}".encode(),
        b"X-tenant: a", b"X-count: 3", b"X-live: true",
    ]


def test_a_bare_message_makes_a_bare_request():
    with Server(OK) as server:
        server.session("http://hooks.example").send(message(b""))

        ((head, body),) = server.requests
    assert body == b""
    assert head.split(b"\r\n") == [
        b"POST / HTTP/1.1", b"Host: hooks.example", f"User-Agent: gomq-py/{__version__}".encode(),
        b"X-Shovel: jobs", b"Content-Length: 0",
    ]


@pytest.mark.parametrize("uri, header, path", [
    ("http://h", "/a", b"/a"), ("http://h", "a", b"/a"), ("http://h?k=v", "/a", b"/a?k=v"),
    ("http://h/", "/a", b"/"), ("http://h/in", "/a", b"/in"),
    ("http://h", "/a b\r\nX: y", b"/a%20b%0D%0AX:%20y"), ("http://h", "/\u00e9#x", b"/%C3%A9%23x"),
    ("http://h", "//evil.example/", b"//evil.example/"), ("http://h", "http://evil/", b"/http://evil/"),
    ("http://h", "/%41?b=c&d", b"/%41?b=c&d"),
])
def test_the_path_is_the_uris_or_else_the_messages(uri, header, path):
    with Server(OK) as server:
        server.session(uri).send(message(headers={"uri_path": header}))

        assert server.requests[0][0].split(b" ")[1] == path


@pytest.mark.parametrize("header", [7, {"a": 1}, "/" + "x" * 3000])
def test_a_path_that_is_none_refuses_the_message(header):
    with Server() as server:
        with pytest.raises(RefusedByTarget, match="uri_path"):
            server.session("http://h").send(message(headers={"uri_path": header}))
        assert server.requests == []


def test_headers_that_cannot_be_fields_or_would_lie_are_left_out():
    with Server(OK) as server:
        server.session().send(message(content_type="a\r\nX-Shovel: b", message_id="m\n", headers={
            "a\r\nX-b": "1", "b": "1\r\nX-c: 2", "c d": "1", "d:": "1", "\u00e9": "1", "e": {"t": 1},
            "f": [1],
            "Shovel": "other", "SIGNATURE": "sha256=0", "message-id": "other", "forwarded-for": "10.0.0.1",
            "Real-IP": "10.0.0.1", "HTTP-Method-Override": "DELETE", "n": None, "z": "\0",
            "g": "x" * 5000,
            "ok": "\u00e9", "when": datetime(2026, 1, 1, tzinfo=timezone.utc), "price": Decimal("1.50"),
            "raw": b"abc", "blank": " y ", "": "none",
        }))

        assert fields(server)[2:] == [
            b"X-Shovel: jobs", b"Content-Length: 4", b"X-ok: \xc3\xa9", b"X-when: 2026-01-01T00:00:00+00:00",
            b"X-price: 1.50", b"X-raw: abc", b"X-blank: y", b"X-: none",
        ]


def test_headers_are_bounded_together():
    with Server(OK, OK) as server:
        session = server.session()
        session.send(message(headers={f"h{number}": "x" * 1000 for number in range(100)}))
        session.send(message(headers={f"h{number}": "" for number in range(1000)}))

        heads = [head for head, _ in server.requests]
    assert len(heads[0]) < 14000 and heads[0].count(b"X-h") == 12
    assert heads[1].count(b"X-h") == webhook.HEADERS_MAX


@pytest.mark.parametrize("name, shown", [
    ("a\r\nX-b: c", b"X-Shovel: a%0D%0AX-b%3A%20c"), ("\u00e9", b"X-Shovel: \xc3\xa9"), ("", b"X-Shovel: "),
])
def test_a_links_name_is_no_way_into_the_head(name, shown):
    with Server(OK) as server:
        server.session(name=name).send(message())

        assert shown in fields(server)


@pytest.mark.parametrize("uri, host", [
    ("http://[::1]/", b"Host: [::1]"), ("http://[::1]:8080/", b"Host: [::1]:8080"),
    ("http://h:80/", b"Host: h"),
    ("http://b%C3%BCcher.example/", b"Host: xn--bcher-kva.example"),
])
def test_the_host_as_http_writes_it(uri, host):
    with Server(OK) as server:
        server.session(uri).send(message())

        assert fields(server)[0] == host


@pytest.mark.parametrize("status", [200, 201, 202, 204, 299])
def test_2xx_settles(status):
    with Server(b"HTTP/1.1 %d\r\nContent-Length: 0\r\n\r\n" % status) as server:
        server.session().send(message())


def test_one_connection_takes_many_messages_in_order():
    with Server(*[OK] * 20) as server:
        session = server.session()
        for number in range(20):
            session.send(message(b"%d" % number))

        assert [body for _, body in server.requests] == [b"%d" % number for number in range(20)]
        assert server.connections == 1


@pytest.mark.parametrize("status", [400, 401, 403, 404, 410, 413, 422])
def test_4xx_refuses_the_message_at_once(status):
    with Server(b"HTTP/1.1 %d No\r\nContent-Length: 0\r\n\r\n" % status, OK) as server:
        session = server.session()
        with pytest.raises(RefusedByTarget, match=f"hooks.example:80 answers {status} No$"):
            session.send(message())
        session.send(message())

        assert len(server.requests) == 2


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_redirects_are_not_followed(status):
    answer = b"HTTP/1.1 %d Moved\r\nLocation: http://127.0.0.1/\r\nContent-Length: 0\r\n\r\n" % status
    with Server(answer) as server:
        with pytest.raises(RefusedByTarget, match="redirects are not followed"):
            server.session().send(message())

        assert len(server.requests) == 1


@pytest.mark.parametrize("status", [408, 425, 429, 500, 502, 503, 504, 507])
def test_what_may_pass_is_tried_again(status):
    later = b"HTTP/1.1 %d Later\r\nContent-Length: 0\r\n\r\n" % status
    with Server(later, later, OK) as server:
        session = server.session()
        session.send(message())

        assert [body for _, body in server.requests] == [b"body"] * 3
        assert session.trouble is None


@pytest.mark.parametrize("status", [503, 507])
def test_what_does_not_pass_ends_the_session(status):
    """A server whose disk is full (507) is none the better for another message."""
    with Server(*[b"HTTP/1.1 %d Later\r\nContent-Length: 0\r\n\r\n" % status] * 4) as server:
        with pytest.raises(OSError, match=f"hooks.example:80 answers {status} Later, 4 times in a row"):
            server.session().send(message())


def test_it_waits_as_long_as_the_server_says_and_says_why():
    with Server(b"HTTP/1.1 429 Slow\r\nRetry-After: 250\r\nContent-Length: 0\r\n\r\n") as server:
        session = server.session()
        sending = gevent.spawn(session.send, message())
        wait_until(lambda: session.trouble, sleep=gevent.sleep)

        assert session.trouble == "hooks.example:80 answers 429 Slow, once more in 250 s"
        session.close()
        with pytest.raises(OSError, match="stopped"):
            sending.get(timeout=in_time(10))
        assert session.trouble is None


@pytest.mark.parametrize("text, seconds", [
    ("", 0), ("7", 7), (" 7 ", 7), ("-1", 0), ("7.5", 0), ("soon", 0), ("9" * 5000, 300), ("\u0667", 0),
    ("Sun, 06 Nov 1994 08:49:37 GMT", 0), ("Fri, 31 Dec 9999 23:59:59 GMT", 300),
    ("Fri, 31 Dec 99999 23:59:59 GMT", 0),
])
def test_retry_after(text, seconds):
    assert retry_after_s(text) == seconds


def test_a_kept_connection_that_has_ended_is_made_anew():
    with Server(OK, None, OK) as server:
        session = server.session()
        session.send(message(b"1"))
        session.send(message(b"2"))

        assert [body for _, body in server.requests] == [b"1", b"2", b"2"]
        assert server.connections == 2


def test_a_server_that_closes_each_connection():
    with Server(*[b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"] * 3) as server:
        session = server.session()
        for _ in range(3):
            session.send(message())

        assert server.connections == 3


def test_an_answer_that_lasts_until_the_connection_ends():
    def answer(accepted):
        accepted.sendall(b"HTTP/1.0 200 OK\r\n\r\nsome text")

    with Server(answer, OK) as server:
        session = server.session()
        session.send(message())
        session.send(message())


@pytest.mark.parametrize("answer", [
    b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
    b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early\r\nLink: x\r\n\r\n" + OK,
    b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n" + b"x" * 100000,
    b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\nHTTP/1.1 500 unasked\r\nContent-Length: 0\r\n\r\n",
])
def test_answers_of_other_forms(answer):
    with Server(answer, OK) as server:
        session = server.session()
        session.send(message())
        session.send(message())


@pytest.mark.parametrize("answer", [
    b"SSH-2.0-OpenSSH_9.6\r\n", b"\0" * 100, b"HTTP/1.1 999999 x\r\n\r\n",
    b"HTTP/1.1 200 OK\r\nno colon\r\n\r\n",
    b"HTTP/1.1 101 Switching\r\n\r\n", b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n",
    b"HTTP/1.1 200 OK\r\n" + b"X-a: b\r\n" * 10000, b"AMQP\x00\x00\x09\x01",
])
def test_what_is_no_http_is_no_answer(answer):
    def answers(accepted):
        accepted.sendall(answer)

    with Server(*[answers] * 4) as server:
        with pytest.raises(RefusedByTarget, match="hooks.example:80: .* 4 times in a row"):
            server.session().send(message())


class TLSServer(Server):
    """What it sees of plain HTTP it ends without a word, as some do; what begins as TLS it answers."""

    def __init__(self, *answers, hello=b"\x16\x03\x03\x00\x04\x02\x00\x00\x00"):
        super().__init__(*answers)
        self._hello = hello
        self.hellos = 0

    def _serve(self, accepted):
        with accepted:
            octets = accepted.recv(65536)
            if octets.startswith(b"\x16\x03"):
                self.hellos += 1
                accepted.sendall(self._hello)
            elif self.answers.qsize():
                self.requests.append(octets)
                accepted.sendall(self.answers.get())


NGINX = b"<html>\r\n<head><title>400 The plain HTTP request was sent to HTTPS port</title></head>\r\n"
APACHE = b"Reason: You're speaking plain HTTP to an SSL-enabled server port.<br />\n"
GO = b"HTTP/1.0 400 Bad Request\r\n\r\nClient sent an HTTP request to an HTTPS server.\n"


@pytest.mark.parametrize("answer", [
    b"\x15\x03\x01\x00\x02\x02\x46", b"", GO,
    *(b"HTTP/1.1 400 No\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body) for body in (NGINX, APACHE)),
], ids=["alert", "end", "go", "nginx", "apache"])
def test_plain_http_to_a_port_that_expects_tls_ends_the_session_at_once(answer):
    with TLSServer(*[answer] * bool(answer)) as server:
        with pytest.raises(OSError, match=(
                "^hooks.example:80: what answers speaks TLS: the URI begins with https://$")) as raised:
            server.session().send(message())

    assert not isinstance(raised.value, RefusedByTarget)
    assert server.hellos == (not answer.startswith(b"\x15"))


def test_of_several_uris_one_that_expects_tls_is_passed_over():
    with TLSServer() as tls, Server(OK) as plain:
        servers = {"a": tls, "b": plain}
        connector = SimpleNamespace(
            connect_http=lambda uri, *more: servers[uri.host].connect_http(uri, *more))
        hook = Webhook(["http://a/x", "http://b/x"], "jobs", connector, backoff=NO_WAIT)
        hook.open("http://a/x").send(message())

        assert len(plain.requests) == 1


def test_several_uris_that_expect_tls_end_the_session_and_do_not_refuse_the_message():
    with TLSServer() as server:
        session = Webhook(["http://a/x", "http://b/x"], "jobs", server, backoff=NO_WAIT).open("http://a/x")
        with pytest.raises(OSError, match="speaks TLS: the URI begins with https://, 8 times in a row"):
            session.send(message())

        assert server.hellos == 2


@pytest.mark.parametrize("hello", [b"", b"HTTP/1.1 400 Bad Request\r\n\r\n"])
def test_server_that_ends_the_connection_and_speaks_no_tls_may_do_so_for_the_messages_sake(hello):
    with TLSServer(hello=hello) as server:
        with pytest.raises(RefusedByTarget, match="ended before the answer, 4 times in a row"):
            server.session().send(message())


def test_server_that_repeats_a_message_which_speaks_of_tls_refuses_the_message():
    body = b"Client sent an HTTP request to an HTTPS server."
    answer = b"HTTP/1.1 400 No\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body)
    with TLSServer(answer, hello=b"") as server:
        with pytest.raises(RefusedByTarget, match="hooks.example:80 answers 400 No"):
            server.session().send(message(body))

        assert len(server.requests) == 1


def test_port_that_expects_tls_is_not_asked_for_where_it_has_answered():
    with Server(OK, *[None] * 5) as server:
        session = server.session()
        session.send(message())
        with pytest.raises(RefusedByTarget, match="ended before the answer, 4 times in a row"):
            session.send(message())

        assert server.connections == 5


def test_a_server_that_does_not_answer_is_given_up():
    with Server(*[lambda accepted: Event().wait(in_time(60))] * 4) as server:
        with pytest.raises(RefusedByTarget, match="no answer within 0 s, 4 times in a row"):
            server.session(timeout_s=0.05).send(message())


def test_a_server_that_answers_octet_by_octet_is_given_up():
    def slowly(accepted):
        accepted.sendall(b"HTTP/1.1 200 OK\r\nX-")
        while True:
            accepted.sendall(b"x")
            Event().wait(0.01)

    with Server(*[slowly] * 4) as server:
        with pytest.raises(RefusedByTarget, match="4 times in a row"):
            server.session(timeout_s=0.1).send(message())


def test_an_answer_before_the_body_was_read_counts():
    def early(accepted):
        accepted.sendall(b"HTTP/1.1 413 Too Large\r\nConnection: close\r\nContent-Length: 0\r\n\r\n")
        accepted.shutdown(socket.SHUT_WR)

    class Impatient(Server):
        def _serve(self, accepted):
            with accepted:
                accepted.recv(1000)
                early(accepted)
                while accepted.recv(65536):
                    pass

    with Impatient() as server:
        with pytest.raises(RefusedByTarget, match="413"):
            server.session().send(message(b"x" * 10_000_000))


def test_a_large_body_arrives():
    with Server(OK) as server:
        server.session().send(message(bytes(range(256)) * 40000))

        assert server.requests[0][1] == bytes(range(256)) * 40000


def test_nobody_listens():
    with Server() as server:
        session = server.session()
    session._connection.close()

    with pytest.raises(OSError, match="refused, 4 times in a row"):
        session.send(message())


def test_of_several_uris_the_next_is_tried_at_once():
    later = b"HTTP/1.1 503 Later\r\nRetry-After: 300\r\nContent-Length: 0\r\n\r\n"
    with Server(later, None, OK, OK) as server:
        uris = ["http://a/x", "http://b/y"]
        session = Webhook(uris, "jobs", server, backoff=NO_WAIT).open(uris[1])
        session.send(message())
        session.send(message())

        assert [head.split(b" ")[1] for head, _ in server.requests] == [b"/y", b"/x", b"/y", b"/y"]


def test_a_certificate_that_is_refused_is_not_the_messages_fault():
    """It is a ValueError, as what makes no request is."""
    with Server(b"HTTP/1.1 503 Later\r\nConnection: close\r\nContent-Length: 0\r\n\r\n") as server:
        session = server.session()
        server.connect_http = refuse_certificate
        with pytest.raises(OSError, match="hooks.example:80: .*, 4 times in a row"):
            session.send(message())


def refuse_certificate(*_):
    raise ssl.SSLCertVerificationError(1, "certificate verify failed")


@pytest.mark.parametrize("uris, requests", [(["http://a/x"], 4), (["http://a/x", "http://b/x"], 8)])
def test_what_the_message_may_have_brought_about_refuses_it_in_the_end(uris, requests):
    with Server(*[b"HTTP/1.1 500 Oops\r\nContent-Length: 0\r\n\r\n"] * requests, OK) as server:
        session = Webhook(uris, "jobs", server, backoff=NO_WAIT).open(uris[0])
        with pytest.raises(RefusedByTarget, match=f"answers 500 Oops, {requests} times in a row"):
            session.send(message())
        session.send(message())


def test_a_host_that_is_refused_is_not_tried_again():
    def connect(link_uri, timeout_s, tls, account):
        raise HostRefused("h is denied")

    with pytest.raises(HostRefused):
        Webhook("http://h/x", "jobs", SimpleNamespace(connect_http=connect)).open("http://h/x")


def test_no_uri_of_a_broker():
    with pytest.raises(URIError):
        Webhook("amqp://h", "jobs", None).open("amqp://h")


def test_properties_that_cannot_be_read_refuse_the_message():
    class Broken:
        body = b""

        @property
        def properties(self):
            raise Malformed("malformed basic properties")

    with Server() as server, pytest.raises(RefusedByTarget, match="malformed"):
        server.session().send(Broken())


def test_closing_ends_a_post_that_is_under_way():
    with Server(lambda accepted: Event().wait(in_time(60))) as server:
        session = server.session()
        sending = gevent.spawn(session.send, message())
        wait_until(lambda: server.requests, sleep=gevent.sleep)

        session.close()

        with pytest.raises(OSError):
            sending.get(timeout=in_time(10))


def test_a_field_has_no_more_than_its_bound():
    assert field_value("x" * webhook.VALUE_OCTETS_MAX) is not None
    assert field_value("x" * (webhook.VALUE_OCTETS_MAX + 1)) is None
    assert field_value("\u00e9" * webhook.VALUE_OCTETS_MAX) is None


def test_the_largest_answer_that_is_read(monkeypatch):
    """What is beyond it costs the connection, not the message."""
    monkeypatch.setattr(http_client, "ANSWER_OCTETS_MAX", 10)
    with Server(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n" + b"x" * 100, OK) as server:
        session = server.session()
        session.send(message())
        session.send(message())

        assert server.connections == 2


@pytest.mark.parametrize(
    "name", ["Remote-User", "remote_user", "Auth-Request-User", "Forwarded_For", "Real.IP"])
def test_no_publisher_says_whose_request_it_is(name):
    """Servers of WSGI and CGI take _ for -."""
    assert webhook._publishers_headers({name: "admin", "kind": "k"}) == [("X-kind", b"k")]
