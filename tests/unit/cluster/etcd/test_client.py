"""The client against servers that fail in every way: what it takes for done, not done, and unknown; which
server it asks next, and how long it waits.
"""
import logging
import time
from base64 import b64encode

import gevent
import pytest

from gomq_py.cluster.core.transactions import CREATE, Compare, CoordinatorError, Put, Transaction, Unanswered
from gomq_py.cluster.etcd import client as etcd_client
from gomq_py.net.connecting import Lookups
from tests.support.hook_server import answer
from tests.support.waiting import TIMEOUT_S, in_time, wait_until
from tests.unit.cluster.etcd.conftest import DONE, EMPTY_VIEW, HEADER, refusal, said

TRANSACTION = Transaction((Compare("leader", CREATE, 0),), (Put("leader", b"x", 7),))
NO_LEADER = refusal(14, "etcdserver: no leader", 503)


def by_path(view=EMPTY_VIEW, done=DONE):
    """Answers reads and transactions."""
    return lambda request: said(done if request.path == "/v3/kv/txn" else view)


def endless(octets, head=b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"):
    """An answer that has no end."""
    def send(accepted):
        accepted.sendall(head)
        while True:
            accepted.sendall(octets)
    return send


def after(octets):
    """An answer behind which the server closes the connection."""
    return lambda accepted: accepted.sendall(octets)


WRONG = {
    "reset": None,
    "closed": after(b""),
    "no HTTP": after(b"220 smtp.example.com ESMTP\r\n"),
    "half a head": after(b"HTTP/1.1 200 OK\r\nContent-Le"),
    "half a body": after(b'HTTP/1.1 200 OK\r\nContent-Length: 90\r\n\r\n{"header"'),
    "bad chunk": after(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n"),
    "two lengths": after(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\n{}"),
    "another protocol": after(b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: h2c\r\n\r\n"),
    "large head": endless(b"x-a: " + b"b" * 60_000 + b"\r\n", b"HTTP/1.1 200 OK\r\n"),
    "heads without end": endless(b"HTTP/1.1 100 Continue\r\n\r\n" * 1000, b""),
    "large body": endless(b"10000\r\n" + b" " * 65536 + b"\r\n"),
    "small chunks": endless(b"1\r\n \r\n" * 10_000),
    "empty": answer(200),
    "no JSON": answer(200, body=b"<html></html>"),
    "another JSON": said([]),
    "deep JSON": answer(200, body=b"[" * 500_000),
    "no header": said({}),
    "redirect": answer(302, "Location: http://127.0.0.1:1/"),
    "a proxy's error": answer(404, "Content-Type: text/html", body=b"<html>not here</html>"),
    "timed out": refusal(14, "etcdserver: request timed out", 503),
    "no space": refusal(8, "etcdserver: mvcc: database space exceeded", 429),
    "an error of no code": said({"error": "x"}, 400),
    "an error with 200": said({"error": {"code": 14, "message": "x"}}),
}


@pytest.mark.parametrize("wrong", WRONG.values(), ids=WRONG)
def test_transaction_with_an_answer_that_says_nothing_may_be_done_and_is_sent_once(wrong, served, client):
    first, second = served(lambda request: wrong), served(by_path())

    with pytest.raises(Unanswered):
        client(first, second).transact(TRANSACTION)

    assert (len(first.requests), len(second.requests)) == (1, 0)


@pytest.mark.parametrize("wrong", WRONG.values(), ids=WRONG)
def test_read_with_an_answer_that_says_nothing_goes_to_the_next_server(wrong, served, client):
    first, second = served(lambda request: wrong), served(by_path())
    made = client(first, second, timeout_s=in_time(20))

    assert made.read().revision == 9
    assert made.transact(TRANSACTION).is_done  # the next call begins there

    assert (len(first.requests), len(second.requests)) == (1, 2)


@pytest.mark.parametrize("code, text, status", [
    (3, "etcdserver: duplicate key given in txn request", 400),
    (5, "etcdserver: requested lease not found", 404),
    (7, "etcdserver: permission denied", 403),
    (16, "etcdserver: invalid auth token", 401),
    (3, "etcdserver: user name is empty", 400),
])
def test_refused_transaction_is_not_done_and_goes_nowhere_else(code, text, status, served, client):
    first, second = served(lambda request: refusal(code, text, status)), served(by_path())

    with pytest.raises(CoordinatorError, match=text):
        client(first, second).transact(TRANSACTION)

    assert (len(first.requests), len(second.requests)) == (1, 0)


def test_transaction_goes_on_from_servers_that_have_not_had_it(served, client, nobody):
    isolated, whole = served(lambda request: NO_LEADER), served(by_path())

    outcome = client(nobody, isolated, whole).transact(TRANSACTION)

    assert outcome.is_done
    assert (len(isolated.requests), len(whole.requests)) == (1, 1)


def test_transaction_that_no_server_has_had_is_not_done(served, client, nobody):
    isolated = served(lambda request: NO_LEADER)

    with pytest.raises(CoordinatorError) as caught:
        client(nobody, isolated).transact(TRANSACTION)

    assert nobody in str(caught.value) and "no leader" in str(caught.value)


class Clock:
    """The clients' clock, which goes on only while they wait for an answer of ``mute``: for as long as they
    are ready to.
    """

    def __init__(self, mute):
        self.mute, self.now_s = mute, 0.0

    def monotonic(self):
        return self.now_s

    def within(self, seconds, function, *arguments):
        if function.__name__ != "_exchange" or arguments[0].endpoint.authority != self.mute:
            return function(*arguments)
        self.now_s += seconds
        raise TimeoutError("no answer")


@pytest.fixture
def clock(mute, monkeypatch):
    made = Clock(mute)
    monkeypatch.setattr(etcd_client, "time", made)
    monkeypatch.setattr(etcd_client, "within", made.within)
    return made


def test_time_limit_is_one_for_all_servers(client, mute, clock):
    made = client(mute, mute, mute, timeout_s=0.6)

    for call in (made.read, lambda: made.transact(TRANSACTION), lambda: made.keep_alive(7)):
        began_s = clock.now_s
        with pytest.raises(Unanswered):
            call()
        assert clock.now_s - began_s == pytest.approx(0.6)


def test_server_that_hangs_costs_a_read_its_share_of_the_time(served, client, mute, clock):
    made = client(mute, served(by_path()), timeout_s=in_time(3))

    assert made.read().revision == 9

    assert clock.now_s == pytest.approx(in_time(3) / 2)


def test_servers_that_are_all_slower_than_their_share_get_the_whole_time_in_turn(served, client):
    def slowly(request):
        servers[0].ended.wait(0.5)
        return said(EMPTY_VIEW)

    servers = [served(slowly) for _ in range(3)]
    made = client(*servers, timeout_s=0.9)

    with pytest.raises(Unanswered):
        made.read()

    wait_until(lambda: answers(made.read), sleep=gevent.sleep)


def answers(call):
    """Whether a call has an answer now."""
    try:
        call()
    except (CoordinatorError, Unanswered):
        return False
    return True


def test_answer_that_drips_ends_with_the_time_limit(served, client):
    def drip(accepted):
        accepted.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n")
        while not server.ended.wait(0.02):
            accepted.sendall(b" ")

    server = served(lambda request: drip)

    with pytest.raises(Unanswered, match="no answer within"):
        client(server, timeout_s=0.5).read()


def test_hub_goes_on_while_a_long_answer_comes(served, client):
    """An answer in 60 000 chunks is read in slices: a timer of 5 ms never waits for all of it."""
    server = served(lambda request: after(
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + b"1\r\n \r\n" * 60_000 + b"0\r\n\r\n"))
    ticks, timer = [], gevent.get_hub().loop.timer(0.005, 0.005)
    timer.start(lambda: ticks.append(time.monotonic()))
    with pytest.raises(Unanswered):
        client(server, timeout_s=in_time(60)).read()
    timer.stop()
    timer.close()

    assert len(ticks) > 10


def test_large_key_stops_no_read_and_is_told(served, client, caplog):
    """etcd takes values of 1.5 MiB; whoever may write below the prefix may write such a one."""
    def kept(key, value):
        return {
            "key": b64encode(key).decode(), "value": b64encode(value).decode(), "create_revision": "3",
            "mod_revision": "4"}

    view = {"header": HEADER, "kvs": [kept(b"gomq/isr", b"1"), kept(b"gomq/other", bytes(3 << 19))]}
    server = served(by_path(view))

    assert client(server, timeout_s=in_time(20)).read().in_sync.value == b"1"

    assert "most of them gomq/other" in caplog.text and "forget_cluster_node" in caplog.text


def test_connection_is_kept_for_calls_in_turn_and_left_when_the_server_has_closed_it(served, client):
    server = served(by_path())
    made = client(server)

    for _ in range(5):
        made.read()
    assert {request.connection for request in server.requests} == {1}
    server.hang_up()
    made.transact(TRANSACTION)  # not lost on a connection that is closed

    assert server.requests[-1].connection == 2


def test_octets_behind_an_answer_end_the_connection(served, client):
    server = served(lambda request: said(EMPTY_VIEW) + b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}")
    made = client(server)

    assert made.read().revision == made.read().revision == 9

    assert [request.connection for request in server.requests] == [1, 2]


def test_calls_side_by_side_have_connections_of_their_own(served, client):
    server = served(by_path())
    made = client(server, timeout_s=in_time(20))

    readers = [gevent.spawn(made.read) for _ in range(10)]
    views = [reader.get() for reader in readers]

    assert [view.revision for view in views] == [9] * 10
    assert len(made._idle) <= 3


def test_killed_caller_leaves_no_connection_behind(served, client):
    """The end of the test finds every socket that was left open."""
    server = served(lambda request: lambda accepted: server.ended.wait())
    made = client(server, timeout_s=in_time(60))
    caller = gevent.spawn(made.read)
    wait_until(lambda: server.requests, sleep=gevent.sleep)

    caller.kill()

    assert made._idle == []


def test_closed_client_asks_nobody(served, client):
    server = served(by_path())
    made = client(server)
    made.read()

    made.close()

    with pytest.raises(CoordinatorError, match="closed"):
        made.read()
    assert len(server.requests) == 1


# leases


def test_lease_is_granted_in_whole_seconds(served, client):
    server = served(lambda request: said({"header": HEADER, "ID": "77", "TTL": "5"}))

    assert client(server).grant(4.2) == 77

    assert server.bodies == [b'{"TTL": "5"}']


@pytest.mark.parametrize("result, is_alive", [({"ID": "77", "TTL": "5"}, True), ({"ID": "77"}, False)])
def test_keepalive_of_an_unknown_lease_is_a_no(result, is_alive, served, client):
    server = served(lambda request: said({"result": {"header": HEADER, **result}}))

    assert client(server).keep_alive(77) is is_alive


def test_lease_that_has_ended_may_be_revoked(served, client):
    server = served(lambda request: refusal(5, "etcdserver: requested lease not found", 404))

    client(server).revoke(77)

    assert server.bodies == [b'{"ID": "77"}']


# logins


class Accounts:
    """A server with logins: user gomq, password pw; tokens count up."""

    def __init__(self):
        self.token = "token-0"
        self.logins = 0

    def answer(self, request):
        """What etcd answers."""
        if request.path == "/v3/auth/authenticate":
            if b'"pw"' not in request.body:
                return refusal(3, "etcdserver: authentication failed, invalid user ID or password")
            self.logins += 1
            self.token = f"token-{self.logins}"
            return said({"header": HEADER, "token": self.token})
        if request.headers.get("authorization") != self.token:
            return refusal(16, "etcdserver: invalid auth token", 401)
        return by_path()(request)


def test_token_is_fetched_once_and_again_when_it_has_ended(served, client):
    accounts = Accounts()
    server = served(accounts.answer)
    made = client(server, user="gomq", password="pw")

    made.read()
    made.read()
    assert accounts.logins == 1
    accounts.token = "another"
    outcome = made.transact(TRANSACTION)

    assert outcome.is_done and accounts.logins == 2
    assert [request.path for request in server.requests].count("/v3/kv/txn") == 2  # refused, done


def test_calls_side_by_side_log_in_once(served, client):
    accounts = Accounts()
    made = client(served(accounts.answer), user="gomq", password="pw", timeout_s=in_time(20))

    gevent.joinall([gevent.spawn(made.read) for _ in range(5)], raise_error=True)

    assert accounts.logins == 1


def test_token_that_is_always_refused_is_asked_for_twice_only(served, client):
    def answer_(request):
        if request.path == "/v3/auth/authenticate":
            return said({"header": HEADER, "token": "never"})
        return refusal(16, "etcdserver: invalid auth token", 401)

    server = served(answer_)

    with pytest.raises(CoordinatorError, match="invalid auth token"):
        client(server, user="gomq", password="pw").transact(TRANSACTION)

    assert len(server.requests) == 4


def test_login_that_takes_longer_than_a_call_serves_a_later_one(served, client):
    """etcd computes for a tenth of a second on purpose; a call of a busy machine's cluster has less."""
    accounts = Accounts()

    def slowly(request):
        if request.path == "/v3/auth/authenticate":
            servers[0].ended.wait(0.9)
        return accounts.answer(request)

    servers = [served(slowly), served(slowly)]
    made = client(*servers, user="gomq", password="pw", timeout_s=0.5)

    with pytest.raises(CoordinatorError):
        made.read()

    wait_until(lambda: answers(made.read), sleep=gevent.sleep)
    assert accounts.logins <= 2


def test_wrong_password_is_told_without_the_password(served, client, caplog):
    made = client(served(Accounts().answer), user="gomq", password="hunter2")

    with caplog.at_level(logging.DEBUG), pytest.raises(CoordinatorError) as caught:
        made.read()

    assert "authentication failed" in str(caught.value)
    assert "hunter2" not in str(caught.value) + caplog.text + repr(made)


@pytest.mark.parametrize("user, code, text, told", [
    ("gomq", 3, "etcdserver: authentication failed, invalid user ID or password",
     "(user 'gomq'; see etcd_user and etcd_password of [clustering])"),
    ("", 3, "etcdserver: user name is empty",
     "(no etcd_user; set etcd_user and etcd_password of [clustering])"),
    ("gomq", 7, "etcdserver: permission denied",
     "(user 'gomq'; it needs rights to read and write all keys below gomq/, see etcd_prefix)"),
])
def test_refused_login_says_who_was_refused_and_what_to_do(user, code, text, told, served, client):
    server = served(lambda request: refusal(code, text))

    with pytest.raises(CoordinatorError) as caught:
        client(server, user=user, password="pw").read()

    assert str(caught.value).endswith(f"refuses: {text} {told}")


def test_connection_that_ends_without_an_answer_may_want_tls(served, client):
    """A server with TLS ends a connection that begins otherwise."""
    with pytest.raises(Unanswered, match="as one with TLS does for http://"):
        client(served(lambda request: after(b""))).read()


def test_user_is_left_out_while_etcd_has_no_logins(served, client):
    def answer_(request):
        if request.path == "/v3/auth/authenticate":
            return refusal(9, "etcdserver: authentication is not enabled", 412)
        assert "authorization" not in request.headers
        return said(EMPTY_VIEW)

    server = served(answer_)
    made = client(server, user="gomq", password="pw")

    assert made.read().revision == made.read().revision == 9
    assert len(server.requests) == 3


def test_transaction_behind_a_login_without_an_answer_is_not_done(served, client, mute):
    """Only the login was sent to the first server."""
    accounts = Accounts()
    second = served(accounts.answer)
    made = client(mute, second, user="gomq", password="pw", timeout_s=in_time(2))

    assert made.transact(TRANSACTION).is_done


# names


def test_name_that_is_not_found_is_not_done(client):
    def fail(*_, **__):
        raise OSError(-2, "Name or service not known")

    made = client("etcd.example:2379")
    made._lookups = Lookups(fail)

    with pytest.raises(CoordinatorError, match="not known"):
        made.transact(TRANSACTION)


@pytest.mark.parametrize("host", ["a" * 64, "a..b"])
def test_host_that_is_no_name_is_not_done(host, client):
    with pytest.raises(CoordinatorError):
        client(f"{host}:2379").read()


def test_addresses_found_before_serve_while_name_servers_hang(served, client):
    import threading
    server = served(by_path())
    made = client(f"localhost:{server.port}")
    made.read()
    released, calls = threading.Event(), []

    def hang(host, *_):
        calls.append(host)
        released.wait(TIMEOUT_S)
        return []

    lookups = made._lookups = Lookups(hang)
    for _ in range(3):
        server.hang_up()
        assert made.read().revision == 9

    assert len(calls) == 1  # one thread waits, however many ask
    released.set()
    wait_until(lambda: not lookups._running, sleep=gevent.sleep)
