"""A stream of events beside a source that tells what its viewer may not see."""
from types import SimpleNamespace

from gevent.event import Event

from gomq_py.http import live
from gomq_py.http.followers import Waker


def test_stream_with_nothing_to_tell_gives_a_sign_of_life_although_it_is_woken(monkeypatch):
    monkeypatch.setattr(live, "SILENCE_S", 0.0)
    monkeypatch.setattr(live, "PAUSE_S", 0.0)
    event, followers = Event(), live.Followers(SimpleNamespace(http_max_connections=100))
    looks = []

    def tell():
        looks.append(None)
        assert len(looks) < 100, "woken a hundred times, and nothing was written"
        event.set()
        return []

    event.set()
    stream = live._Stream(Waker(), followers, event, SimpleNamespace(is_good=lambda: True), tell)

    lines = iter(stream)

    assert next(lines).startswith(b"retry: ")
    assert [next(lines), next(lines)] == [b":\n\n"] * 2
    stream.close()
