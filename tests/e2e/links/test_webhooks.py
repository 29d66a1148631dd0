"""Links that end at a webhook."""
from types import SimpleNamespace

import pytest
from gevent import socket
from gevent.pywsgi import WSGIServer

from gomq_py.client.backoff import Backoff
from gomq_py.content.properties import Properties
from gomq_py.links.webhook import Webhook
from tests.support.links import depth, fill, until


@pytest.fixture
def server():
    """``bodies``: what came; ``answer(body, seen)`` the status, ``seen``: how often it came before."""
    state = SimpleNamespace(bodies=[], answer=lambda body, seen: "200 OK", paths=[])

    def application(environment, start_response):
        body = environment["wsgi.input"].read()
        status = state.answer(body, state.bodies.count(body))
        state.bodies.append(body)
        state.paths.append(environment["PATH_INFO"])
        start_response(status, [("Content-Length", "0")])
        return [b""]

    listening = WSGIServer(("127.0.0.1", 0), application, log=None)
    listening.start()
    state.uri = f"http://127.0.0.1:{listening.server_port}/in"
    state.connect_http = lambda uri, timeout_s, *_: socket.create_connection((uri.host, uri.port), timeout_s)
    yield state
    listening.stop()


@pytest.fixture
def webhook(server):
    return Webhook(server.uri, "jobs", server, backoff=Backoff(0.01, 0.05, retries=5))


def test_messages_are_posted_in_order_and_then_acknowledged(queues, make_link, server, webhook):
    queue, source, _ = queues
    fill(source, queue, 500, Properties(content_type="text/plain"))
    fill(source, queue, 2, body=b"%d " + b"x" * 500_000, first=500)

    link = make_link(target=webhook)
    link.start()
    until(lambda: link.status.moved == 502)

    assert [int(body.split()[0]) for body in server.bodies] == list(range(502))
    assert {len(body) for body in server.bodies[500:]} == {500_004}
    assert set(server.paths) == {"/in"}
    assert depth(source, queue) == 0
    assert (link.status.state, link.status.error, link.status.unconfirmed) == ("running", "", 0)


def test_what_is_refused_for_good_is_dead_lettered_after_the_limit(queues, make_link, server, webhook):
    queue, source, _ = queues
    source.queue_delete(queue)
    source.queue_declare(queue + ".dead")
    source.queue_declare(queue, durable=True, arguments={
        "x-dead-letter-exchange": "", "x-dead-letter-routing-key": queue + ".dead"})
    server.answer = lambda body, seen: "422 No" if body == b"5" else "200 OK"
    fill(source, queue, 20)

    link = make_link(target=webhook, refusals=2)
    link.start()
    until(lambda: link.status.set_aside == 1 and link.status.moved == 19)

    assert depth(source, queue + ".dead") == 1
    assert server.bodies.count(b"5") == 2
    assert set(map(int, server.bodies)) == set(range(20))


def test_server_that_fails_for_a_while_is_tried_again_and_told_of(queues, make_link, server, webhook):
    queue, source, _ = queues
    server.answer = lambda body, seen: "503 Later" if seen < 9 else "200 OK"
    fill(source, queue, 2)

    link = make_link(target=webhook)
    link.start()
    errors = set()
    until(lambda: errors.add(link.status.error) or link.status.moved == 2)

    assert any("answers 503 Later" in error and error.startswith("destination: ") for error in errors)
    assert list(dict.fromkeys(server.bodies)) == [b"0", b"1"]
    assert link.status.reconnects > 0
