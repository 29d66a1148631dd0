"""A link's greenlet, with what it connects replaced."""
import logging
from types import SimpleNamespace

import gevent
import pytest
from gevent.event import Event

from gomq_py.client.backoff import Backoff
from gomq_py.client.errors import ConnectionClosed
from gomq_py.hub.turns import PacedTurns
from gomq_py.links.ends import SourceEnd, TargetEnd
from gomq_py.links.link import Link
from tests.support.queues import HandTimers
from tests.support.waiting import in_time


class LinkSession:
    """What a link has made of two connections; ``ended`` says how it ended."""

    failure, is_done = None, False

    def __init__(self, over=True):
        self.ended = []
        self.over = over
        self.ticks = []

    def is_over(self):
        return self.over

    def tick(self):
        self.ticks.append(len(self.ticks))
        return 5.0

    def stop(self):
        self.over = True

    def abort(self):
        self.ended.append("abort")

    def end(self):
        self.ended.append("end")


def join(link):
    """Wait for the end of its greenlet."""
    if link._greenlet is not None:
        link._greenlet.join()


class StandInHub(SimpleNamespace):
    """What a link asks of a hub; it can be referred to weakly, and hashed, as a hub can."""

    __slots__ = ("__weakref__",)
    __hash__ = object.__hash__


@pytest.fixture
def link():
    closing, timers = {}, HandTimers(SimpleNamespace(now_ms=0))
    hub = StandInHub(
        spawn=gevent.spawn, is_closed=False, timers=timers, closing=closing, link_turns=PacedTurns(),
        at_close=lambda function: closing.setdefault(function), not_at_close=lambda function:
        closing.pop(function, None))
    source, target = SourceEnd(["amqp://a"], "q"), TargetEnd(["amqp://b"])
    return Link(hub, "l", source, target, backoff=Backoff(0.01), connect=None)


def test_connections_made_in_the_turn_in_which_it_is_stopped_are_closed(link, monkeypatch):
    session, is_made = LinkSession(), Event()

    def opened():
        link.stop()
        gevent.sleep(0)  # the link's greenlet gives up; the kill comes only after this
        is_made.set()
        return session, "q"

    monkeypatch.setattr(link, "_open", opened)
    link.start()
    join(link)
    assert is_made.wait(in_time(60))

    assert session.ended == ["abort"]


@pytest.mark.parametrize("is_closed, how", [(False, "end"), (True, "abort")])
def test_connections_end_in_order_unless_the_hub_has_closed(link, monkeypatch, is_closed, how):
    session = LinkSession()
    monkeypatch.setattr(link, "_open", lambda: (session, "q"))

    def moved(session, queue):
        link.stop()
        link._hub.is_closed = is_closed

    monkeypatch.setattr(link, "_move", moved)
    link.start()
    join(link)

    assert session.ended == [how]


@pytest.fixture
def resting(link, monkeypatch):
    """A link whose session moves: (link, session)."""
    session = LinkSession(over=False)
    monkeypatch.setattr(link, "_open", lambda: (session, "q"))
    monkeypatch.setattr(link, "_move", lambda session, queue: None)
    link.start()
    join(link)
    return link, session


def test_link_whose_session_moves_keeps_no_greenlet(resting):
    link, session = resting

    assert link._greenlet is None and not link.has_ended
    assert session.ended == [] and session.ticks == [0]


def test_signs_of_life_are_sent_while_no_greenlet_is_there(resting):
    link, session = resting

    for _ in range(2):
        link._hub.timers.bench.now_ms += 5000
        link._hub.timers.fire()

    assert session.ticks == [0, 1, 2] and link._greenlet is None


def test_link_that_is_woken_for_the_end_of_its_session_closes_it(resting):
    link, session = resting

    link.stop()
    join(link)

    assert link.has_ended and session.ended == ["end"] and link.status.state == "stopped"
    assert not link._hub.closing and not link._hub.timers.pending


def test_link_that_is_woken_for_nothing_rests_again(resting):
    link, session = resting

    link.wake()
    join(link)

    assert link._greenlet is None and not link.has_ended and session.ended == []
    assert len(link._hub.closing) == 1


@pytest.mark.parametrize("is_stopped", [True, False])
def test_end_of_a_session_is_a_warning_unless_the_link_is_being_stopped(resting, caplog, is_stopped):
    """As at the stop of the broker, which closes the ends that are its own, too."""
    link, session = resting
    session.failure, session.over = ("source", ConnectionClosed(320, "CONNECTION_FORCED - shutdown")), True
    link.name = f"link {is_stopped}"

    with caplog.at_level(logging.INFO):
        if is_stopped:
            link.stop()
        link.wake()
        gevent.sleep(0)
        link.stop()
        join(link)

    said, = [record for record in caplog.records if record.message.startswith(f"{link.name}: source: 320")]
    assert said.levelno == (logging.INFO if is_stopped else logging.WARNING)
    assert link.status.state == "stopped"


def test_sockets_of_a_resting_link_end_with_the_hub(resting):
    link, session = resting
    link._hub.is_closed = True

    for function in link._hub.closing:
        function()

    assert session.ended == ["abort"]
