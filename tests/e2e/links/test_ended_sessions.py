"""What a link keeps of a session that has ended: nothing, at once. In a process of the broker's own the cycle
collector may never look at it (observability.garbage).
"""
import gc
import weakref
from functools import partial

import pytest
from gevent.event import Event

from gomq_py.links import link as links_link
from gomq_py.links import wire
from gomq_py.links.ends import TargetEnd
from tests.e2e.links.test_webhooks import server, webhook  # noqa: F401 (fixtures)
from tests.support.links import connect, ended, fill, until


@pytest.fixture
def uncollected():
    """Nothing is collected that holds itself in a circle."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


@pytest.fixture
def ends(queues, make_link, uncollected, monkeypatch):
    """``ends(target, how)``: the session to it ends, with messages that are unconfirmed, after ``how(link)``
    or by a stop; then nothing of it is left.
    """
    monkeypatch.setattr(links_link, "DRAIN_S", 0.1)
    monkeypatch.setattr(wire, "PARTING_S", 0.1)
    queue, source, _ = queues

    def check(target, how=lambda link: None, body=b"%d " + bytes(10_000)):
        link = make_link(target=target, connect=partial(connect, heartbeat_s=0))
        fill(source, queue, 10, body=body)
        link.start()
        until(lambda: link._session is not None and (
            link.status.unconfirmed or link.status.refused), what=lambda: link.status)
        session = link._session
        kept = [weakref.ref(one) for one in (session, session.reader, session.writer)]
        del session
        how(link)
        ended(link)

        until(lambda: [one() for one in kept] == [None] * 3, what=lambda: [one() for one in kept])
    return check


def test_stop_while_a_broker_confirms_nothing(ends, taking_nothing, name):
    ends(TargetEnd(taking_nothing.url, "", name))


def test_broker_that_confirms_nothing_and_ends_the_connection(ends, taking_nothing, name):
    def cut(link):
        taking_nothing.cut()
        until(lambda: link.status.reconnects)

    ends(TargetEnd(taking_nothing.url, "", name), cut)


def test_broker_that_refuses(ends, queues, pair, name):
    _, _, target = queues
    target.queue_delete(name)
    target.queue_declare(name, arguments={"x-max-length": 1, "x-overflow": "reject-publish"})

    ends(TargetEnd(pair[1].amqp_url, "", name), lambda link: until(lambda: link.status.refused))


@pytest.mark.parametrize("size", [10_000, 300_000])
def test_stop_while_a_web_server_does_not_answer(ends, server, webhook, size):  # noqa: F811
    let_go = Event()
    server.answer = lambda body, seen: let_go.wait() and "200 OK"

    ends(webhook, body=b"%d " + bytes(size))
    let_go.set()


@pytest.mark.parametrize("status", ["400 No", "503 Later"])
def test_web_server_that_refuses(ends, server, webhook, status):  # noqa: F811
    server.answer = lambda body, seen: status

    ends(webhook, lambda link: until(lambda: link.status.reconnects or link.status.refused > 1))
