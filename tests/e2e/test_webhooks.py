"""Shovels that post to a web server: a broker in this process, a server that answers as each test says.

Whatever it answers, nothing is lost and messages arrive in their order.
"""
import hashlib
import hmac
import threading

import pytest
import requests

from gomq_py import Broker
from gomq_py.broker.transfer import engine
from gomq_py.client.backoff import Backoff
from gomq_py.links import link, webhook
from tests.support.federated import LOGIN
from tests.support.hook_server import OK, HookServer, answer
from tests.support.shovels import Shovelled
from tests.support.waiting import in_time, wait_until

QUICK = Backoff(0.01, 0.05, retries=3)


@pytest.fixture(scope="module")
def broker():
    with Broker(http_port=0, links_http_hosts_allowed="127.0.0.0/8", sync=False) as broker:
        yield broker


@pytest.fixture(autouse=True)
def _quick(monkeypatch):
    """No long waits before another attempt, nor for what is on its way at a stop."""
    monkeypatch.setattr(link, "DRAIN_S", 0.2)
    monkeypatch.setattr(webhook, "BACKOFF", QUICK)
    monkeypatch.setattr(engine, "TRY_AGAIN_MS", 20)


@pytest.fixture
def shovel(broker, request):
    shovelled = Shovelled(broker, request.node.name)
    yield shovelled
    shovelled.close()


def test_messages_are_posted_in_order_over_one_connection_with_what_belongs_to_them(shovel):
    shovel.numbers(200)
    with HookServer() as server:
        shovel.start(server.url("/in?key=1"), dest_secret="s3cret", dest_add_timestamp_header=True)
        shovel.publish(b"last", content_type="text/plain", message_id="m", headers={"tenant": "a"})
        server.wait_for(201)
        shovel.wait_for(moved=201, unconfirmed=0, state="running", error="")

    assert server.bodies == [b"%d" % number for number in range(200)] + [b"last"]
    assert {request.connection for request in server.requests} == {1}
    last = server.requests[-1]
    assert last.path == "/in?key=1"
    assert last.headers["x-signature"] == "sha256=" + hmac.new(b"s3cret", b"last", hashlib.sha256).hexdigest()
    assert (last.headers["x-shovel"], last.headers["content-type"], last.headers["x-message-id"]) == (
        shovel.name, "text/plain", "m")
    assert last.headers["x-tenant"] == "a" and int(last.headers["x-x-shovelled-timestamp"])


@pytest.mark.parametrize("said", [
    answer(500), answer(503, "Retry-After: 0"), answer(429), answer(408),
    None,  # a reset
    b"SSH-2.0-OpenSSH_9.6\r\n\r\n",
    lambda accepted: None,  # the end of the connection, without an answer
], ids=["500", "503", "429", "408", "reset", "no HTTP", "closed"])
def test_what_passes_delays_and_loses_nothing(shovel, said):
    """Each third message fails twice; in the end all have come, in their order."""
    failures = {}

    def answers(request):
        number = int(request.body)
        if number % 3 or failures.setdefault(number, 0) == 2:
            return OK
        failures[number] += 1
        return said

    shovel.numbers(10)
    with HookServer(answers) as server:
        shovel.start(server.url())
        shovel.wait_for(moved=10, unconfirmed=0)

    assert server.arrived == list(range(10)) and len(server.requests) >= 10 + 2 * 4
    assert shovel.waiting() == 0


@pytest.mark.parametrize("how", ["nothing", "a head without end", "a body without end"])
def test_a_server_that_takes_too_long(shovel, how):
    """It is given up in dest-timeout seconds; of an answer without end some is read and no more."""
    hanging = []

    def slowly(accepted):
        hanging.append(accepted)
        if how == "nothing":
            server.ended.wait()
        accepted.sendall(b"HTTP/1.1 200 OK\r\n" + (b"\r\n" if how == "a body without end" else b"X-"))
        while not server.ended.is_set():
            accepted.sendall(b"x" * 1000)

    shovel.numbers(3)
    with HookServer(lambda request: OK if hanging else slowly) as server:
        shovel.start(server.url(), **{"dest-timeout": 1})
        shovel.wait_for(moved=3)

    # what begins with 200 is an answer
    assert server.arrived == [0, 1, 2]
    assert len(server.requests) == (3 if how == "a body without end" else 4)


def test_a_trouble_that_lasts_is_shown_with_the_end_it_is_at(shovel, monkeypatch):
    monkeypatch.setattr(webhook, "BACKOFF", Backoff(60, 60, jitter=0))
    shovel.numbers(1)
    with HookServer(lambda request: answer(503)) as server:
        shovel.start(server.url())
        error = f"destination: 127.0.0.1:{server.port} answers 503 Said, once more in 60 s"
        shovel.wait_for(state="running", error=error, unconfirmed=1)


@pytest.mark.parametrize("status", [400, 404, 410, 422, 301, 307])
def test_a_refused_message_is_a_dead_letter_once_the_limit_is_reached(shovel, status):
    """The others arrive, in their order, and not before it is settled."""
    def answers(request):
        return answer(status, f"Location: {elsewhere.url()}") if request.body == b"3" else OK

    with HookServer() as elsewhere, HookServer(answers) as server:
        shovel.numbers(6)
        shovel.start(server.url(), dest_refusal_limit=3)
        shovel.wait_for(moved=5, set_aside=1, refused=3, error="")

    assert server.bodies == [b"0", b"1", b"2", b"3", b"3", b"3", b"4", b"5"]
    assert elsewhere.requests == []
    method, properties, body = shovel.channel.basic_get(shovel.dead)
    assert body == b"3" and properties.headers["x-first-death-reason"] == "rejected"


def test_a_message_that_breaks_the_server_is_a_dead_letter_once_the_limit_is_reached(shovel):
    """It never gets an answer; over several URIs, too."""
    with HookServer(lambda request: None if request.body == b"1" else OK) as server:
        shovel.numbers(3)
        shovel.start([server.url("/a"), server.url("/b")], dest_refusal_limit=2)
        shovel.wait_for(moved=2, set_aside=1)

    assert server.arrived == [0, 1, 2] and shovel.waiting(shovel.dead) == 1


def test_without_a_limit_a_refused_message_is_tried_for_ever_and_no_other_overtakes_it(shovel):
    taken = threading.Event()
    with HookServer(lambda request: OK if taken.is_set() or request.body == b"0" else answer(422)) as server:
        shovel.numbers(4)
        shovel.start(server.url())
        server.wait_for(8)
        assert set(server.bodies) == {b"0", b"1"}
        assert "destination" in shovel.shown()["error"] and shovel.shown()["state"] == "running"
        taken.set()
        shovel.wait_for(moved=4, error="")

    assert server.arrived == [0, 1, 2, 3]


def test_large_messages_come_whole_and_keep_their_place(shovel):
    """Of several frames, one of them refused at first."""
    refused = []

    def answers(request):
        if request.body.startswith(b"1 ") and len(refused) < 2:
            refused.append(request)
            return answer(422)
        return OK

    bodies = [b"%d " % number + b"x" * 1_000_000 for number in range(3)]
    shovel.publish(*bodies, b"3 small")
    with HookServer(answers) as server:
        shovel.start(server.url())
        shovel.wait_for(moved=4, refused=2)

    assert server.bodies == [bodies[0], bodies[1], bodies[1], bodies[1], bodies[2], b"3 small"]


@pytest.mark.parametrize("verb", ["pause", "DELETE"])
def test_it_stops_while_a_request_hangs(shovel, verb):
    """Its message waits at the source, and comes again."""
    with HookServer(lambda request: lambda accepted: server.ended.wait()) as server:
        shovel.numbers(3)
        shovel.start(server.url())
        server.wait_for(1)
        if verb == "pause":
            assert shovel.call("PUT", "shovels", "/", shovel.name, "pause").status_code == 204
            assert shovel.shown()["state"] == "paused"
        else:
            assert shovel.call("DELETE", "shovels", "/", shovel.name).status_code == 204
        wait_until(lambda: shovel.waiting() == 3)

    if verb == "pause":
        assert shovel.call("PUT", "shovels", "/", shovel.name, "resume").status_code == 204
    with HookServer() as server:
        shovel.start(server.url())
        server.wait_for(3)
        shovel.wait_for(unconfirmed=0)
        assert server.bodies == [b"0", b"1", b"2"]


@pytest.mark.parametrize("host", [
    "127.0.0.1", "[::ffff:127.0.0.1]", "[::1]", "169.254.169.254", "[fe80::1]", "0.0.0.0"])
def test_addresses_of_this_machine_are_refused_unless_a_setting_allows_them(host):
    with Broker(http_port=0, sync=False) as broker:
        value = {"src-uri": "amqp://", "src-queue": "q", "dest-uri": f"http://{host}/in"}
        said = requests.put(
            f"{broker.http_url}/api/parameters/shovel/%2F/s", json={"value": value}, auth=LOGIN,
            timeout=in_time(30))

    assert said.status_code == 400 and "http_hosts_denied" in said.json()["reason"]


def test_a_name_for_such_an_address_gets_no_further():
    with Broker(http_port=0, sync=False) as broker, HookServer() as server:
        shovelled = Shovelled(broker, "named")
        shovelled.numbers(1)
        shovelled.start(server.url(host="localhost"))
        wait_until(lambda: "http_hosts_denied" in shovelled.shown()["error"], what=shovelled.shown)
        shown = shovelled.shown()
        shovelled.close()

    assert shown["error"].startswith("destination: localhost (") and shown["state"] == "starting"
    assert server.requests == []
