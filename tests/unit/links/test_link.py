"""A link's greenlet, with what it connects replaced."""
from types import SimpleNamespace

import gevent
import pytest
from gevent.event import Event

from gomq_py.client.backoff import Backoff
from gomq_py.links.ends import Source, Target
from gomq_py.links.link import Link
from tests.support.waiting import in_time


class Passage:
    """What a link has made of two connections; ``ended`` says how it ended."""

    def __init__(self):
        self.ended = []

    def abort(self):
        self.ended.append("abort")

    def end(self):
        self.ended.append("end")


@pytest.fixture
def link():
    hub = SimpleNamespace(spawn=gevent.spawn, is_closed=False, timers=SimpleNamespace(now_ms=lambda: 0))
    source, target = Source(["amqp://a"], "q"), Target(["amqp://b"])
    return Link(hub, "l", source, target, backoff=Backoff(0.01), connect=None)


def test_connections_made_in_the_turn_in_which_it_is_stopped_are_closed(link, monkeypatch):
    passage, is_made = Passage(), Event()

    def opened():
        link.stop()
        gevent.sleep(0)  # the link's greenlet gives up; the kill comes only after this
        is_made.set()
        return passage, "q"

    monkeypatch.setattr(link, "_open", opened)
    link.start()
    link._greenlet.join()
    assert is_made.wait(in_time(60))

    assert passage.ended == ["abort"]


@pytest.mark.parametrize("is_closed, how", [(False, "end"), (True, "abort")])
def test_connections_end_in_order_unless_the_hub_has_closed(link, monkeypatch, is_closed, how):
    passage = Passage()
    monkeypatch.setattr(link, "_open", lambda: (passage, "q"))

    def moved(passage, queue):
        link.stop()
        link._hub.is_closed = is_closed

    monkeypatch.setattr(link, "_move", moved)
    link.start()
    link._greenlet.join()

    assert passage.ended == [how]
