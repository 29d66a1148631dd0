"""The watch against servers that end, hang or refuse its stream: no change stays unseen."""
import json
import logging
import time
from queue import SimpleQueue

import gevent
import pytest

from gomq_py.cluster.etcd import watch as watches
from gomq_py.cluster.etcd.connection import MOST_OCTETS
from tests.support.waiting import wait_until
from tests.unit.cluster.etcd.conftest import EMPTY_VIEW, HEADER, refusal, said

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
CREATED = {"result": {"header": HEADER, "created": True}}
EVENT = {"result": {"header": HEADER, "events": [{"kv": {"key": "eA==", "mod_revision": "9"}}]}}


def chunk(octets):
    """A chunk of an answer's body."""
    return b"%x\r\n%s\r\n" % (len(octets), octets)


def line(found):
    """A chunk with a line of a stream."""
    return chunk(json.dumps(found).encode() + b"\n")


class Streams:
    """Answers watches with what the test gives for each: octets to send; None ends the stream."""

    def __init__(self):
        self.said = SimpleQueue()
        self.begun = []  # the headers of each

    def answer(self, request):
        """For HookServer."""
        if request.path != "/v3/watch":
            return said(EMPTY_VIEW)
        self.begun.append(request.headers)
        return self._stream

    def _stream(self, accepted):
        accepted.sendall(HEAD)
        while (octets := self.said.get()) is not None:
            accepted.sendall(octets)


@pytest.fixture
def streams():
    """Streams of a server; they end with the test."""
    made = Streams()
    yield made
    for _ in range(50):
        made.said.put(None)


@pytest.fixture
def watching():
    """Begins watches that are closed at the end: returns the list of the times of their wakes."""
    begun = []

    def watch(client):
        wakes = []
        begun.append(client.watch(lambda: wakes.append(time.monotonic())))
        return wakes

    yield watch
    for one in begun:
        one.close()


@pytest.fixture(autouse=True)
def slow_clock(monkeypatch):
    """Only the stream wakes in these tests, and a new one follows at once."""
    monkeypatch.setattr(watches, "POLL_S", 600)
    monkeypatch.setattr(watches, "PAUSE_S", 0.01)


def woken(wakes, count):
    """Wait until there were so many wakes."""
    wait_until(lambda: len(wakes) >= count, what=lambda: f"{count} wakes: {wakes}", sleep=gevent.sleep)


def test_wakes_when_it_has_begun_and_at_each_event(served, client, streams, watching):
    wakes = watching(client(served(streams.answer)))

    streams.said.put(line(CREATED))
    woken(wakes, 1)
    streams.said.put(line(EVENT))
    woken(wakes, 2)
    octets = line(EVENT)
    for at in range(len(octets)):
        streams.said.put(octets[at:at + 1])
    woken(wakes, 3)

    assert streams.begun[0]["grpc-metadata-hasleader"] == "true"


def test_many_events_wake_seldom(served, client, streams, watching):
    wakes = watching(client(served(streams.answer)))
    streams.said.put(line(CREATED) + line(EVENT) * 2000)

    woken(wakes, 10)

    assert wakes[9] - wakes[0] >= 9 * watches.REST_S * 0.9


@pytest.mark.parametrize("octets", [
    None, b"rubbish\r\n", chunk(b"rubbish\n"), chunk(b"[]\n"), line({}), line({"result": None}),
    line({"result": {"canceled": True, "cancel_reason": "etcdserver: permission denied"}}),
    line({"error": {"grpc_code": 14, "http_code": 503, "message": "etcdserver: no leader"}}),
    chunk(b"x" * 70_000) * (MOST_OCTETS // 65_536),
])
def test_stream_that_ends_or_says_nonsense_wakes_and_is_replaced(octets, served, client, streams, watching):
    wakes = watching(client(served(streams.answer)))
    streams.said.put(line(CREATED))
    woken(wakes, 1)

    streams.said.put(octets)
    woken(wakes, 2)
    for _ in range(3):  # an end for the server's thread that still waits, and a line for the next
        streams.said.put(None)
    wait_until(lambda: len(streams.begun) > 1, sleep=gevent.sleep)
    streams.said.put(line(CREATED))

    woken(wakes, 3)


def test_it_wakes_in_time_whatever_the_stream_says(served, client, streams, watching, monkeypatch):
    monkeypatch.setattr(watches, "POLL_S", 0.1)
    wakes = watching(client(served(streams.answer)))
    streams.said.put(line(CREATED))

    woken(wakes, 4)

    assert len(streams.begun) == 1


def test_octets_without_a_line_do_not_keep_it_from_waking(served, client, streams, watching, monkeypatch):
    monkeypatch.setattr(watches, "POLL_S", 0.1)
    wakes = watching(client(served(streams.answer)))
    streams.said.put(line(CREATED))

    while len(wakes) < 4:
        streams.said.put(chunk(b" "))
        wait_until(streams.said.empty, sleep=gevent.sleep)

    assert len(streams.begun) == 1


def test_silent_stream_is_replaced(served, client, streams, watching, monkeypatch):
    monkeypatch.setattr(watches, "POLL_S", 0.05)
    monkeypatch.setattr(watches, "SILENCE_S", 0.2)
    wakes = watching(client(served(streams.answer)))

    streams.said.put(line(CREATED))
    wait_until(lambda: len(streams.begun) > 1, sleep=gevent.sleep)

    assert len(wakes) >= 2


def test_stream_that_does_not_begin_is_replaced(served, client, mute, streams, watching, monkeypatch):
    monkeypatch.setattr(watches, "BEGIN_S", 0.2)
    wakes = watching(client(mute, served(streams.answer)))

    wait_until(lambda: streams.begun, sleep=gevent.sleep)
    streams.said.put(line(CREATED))

    woken(wakes, 2)


def test_watch_follows_the_calls_to_another_server(served, client, streams, watching, monkeypatch):
    monkeypatch.setattr(watches, "POLL_S", 0.05)
    hung, answering = served(streams.answer), served(streams.answer)
    made = client(hung, answering)
    wakes = watching(made)
    streams.said.put(line(CREATED))
    woken(wakes, 1)

    made.failed(made.endpoint)

    wait_until(lambda: answering.requests, sleep=gevent.sleep)


def test_operator_is_told_once_that_events_do_not_come_and_once_that_they_do(
        client, served, streams, watching, caplog):
    def answer(request):
        if len(server.requests) < 5:
            return refusal(7, "etcdserver: permission denied", 403)
        return streams.answer(request)

    with caplog.at_level(logging.INFO):
        server = served(answer)
        wakes = watching(client(server))
        streams.said.put(line(CREATED))
        woken(wakes, 5)
        wait_until(lambda: "come again" in caplog.text, sleep=gevent.sleep)

    assert [record.levelname for record in caplog.records] == ["WARNING", "INFO"]


def test_token_that_has_ended_is_replaced(served, client, streams, watching):
    tokens = iter(("one", "two"))
    reason = "rpc error: code = Unauthenticated desc = etcdserver: invalid auth token"

    def answer(request):
        if request.path == "/v3/auth/authenticate":
            return said({"header": HEADER, "token": next(tokens)})
        return streams.answer(request)

    wakes = watching(client(served(answer), user="gomq", password="pw"))
    streams.said.put(line({"result": {"created": True, "canceled": True, "cancel_reason": reason}}))
    streams.said.put(None)
    wait_until(lambda: len(streams.begun) > 1, sleep=gevent.sleep)
    streams.said.put(line(CREATED))
    woken(wakes, 2)

    assert [headers["authorization"] for headers in streams.begun] == ["one", "two"]


def test_fault_of_its_own_is_logged_and_it_goes_on(served, client, streams, watching, caplog, monkeypatch):
    faults, cancel_reason = [KeyError("a fault")], watches.messages.cancel_reason

    def fail_once(found):
        if faults:
            raise faults.pop()
        return cancel_reason(found)

    monkeypatch.setattr(watches.messages, "cancel_reason", fail_once)
    wakes = watching(client(served(streams.answer)))
    streams.said.put(line(CREATED))
    woken(wakes, 1)
    streams.said.put(None)
    streams.said.put(line(CREATED))

    wait_until(lambda: len(streams.begun) > 1, sleep=gevent.sleep)
    assert "the watch of etcd has failed" in caplog.text
