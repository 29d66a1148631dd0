"""Recorder: what is sampled although no client looks."""
import pytest

from gomq_py.http import door
from gomq_py.http import recorder as recorder_module
from gomq_py.http import statistics
from gomq_py.http.rates import LENGTHS, MESSAGES, RECORD_INTERVAL_S, RECORD_S, Rates
from gomq_py.http.recorder import Recorder
from gomq_py.storage.message import Message
from tests.support.node import Node

TEN_MINUTES = {LENGTHS: (600.0, 5.0), MESSAGES: (600.0, 5.0)}


class Clock:
    now = 0.0

    def __call__(self):
        return self.now


@pytest.fixture
def node(tmp_path):
    node = Node(tmp_path / "data")
    yield node
    node.stop()


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def rates(clock):
    return Rates(5.0, 120, now_s=clock, unix_s=clock)


@pytest.fixture
def seen(node):
    """The node as the management API sees it."""
    return door.Node(node.broker, node.hub.clients, None, list, "", None, None, None)


@pytest.fixture
def recorder(rates, seen):
    return Recorder(rates, seen)


def publish(node, queue):
    message = Message()
    message.assign(b"", queue.encode(), b"\0\0", b"x", 0, persistent=False)
    node.vhost.queue(queue).publish(message)


def samples(rates, group, thing, name):
    """Values and times of a counter's samples, the oldest first, as the first look sees them."""
    details = rates.look(group, thing, TEN_MINUTES).put({})[f"{name}_details"]
    return [(one["sample"], one["timestamp"] / 1000) for one in reversed(details["samples"])]


def rounds(recorder, clock, count):
    for _ in range(count):
        recorder.round()
        clock.now += RECORD_INTERVAL_S


def test_first_look_sees_the_last_ten_minutes_of_broker_vhost_and_busy_queue(
        node, rates, recorder, clock, seen):
    node.vhost.declare_queue("busy")
    for _ in range(30):
        publish(node, "busy")
        rounds(recorder, clock, 1)

    curves = {
        "queue": samples(rates, statistics.QUEUE, node.vhost.queue("busy"), "messages_ready"),
        "vhost": samples(rates, statistics.VHOST, (node.vhost, seen), "messages_ready"),
        "broker": samples(rates, statistics.WHOLE, (None, seen), "messages_ready"),
    }

    # The last one is of the look itself.
    wanted = [(float(number), (number - 1) * RECORD_INTERVAL_S) for number in range(11, 31)] + [(30, 900.0)]
    assert curves["queue"] == wanted
    # These keep samples of the whole day, too.
    assert curves["vhost"][-21:] == curves["broker"][-21:] == wanted


def test_queue_without_traffic_is_not_recorded(node, rates, recorder, clock):
    node.vhost.declare_queue("idle")

    rounds(recorder, clock, 3)

    assert samples(rates, statistics.QUEUE, node.vhost.queue("idle"), "messages_ready") == [
        (0, 3 * RECORD_INTERVAL_S)]


def test_queue_without_traffic_for_the_longest_time_makes_room(node, rates, recorder, clock, monkeypatch):
    monkeypatch.setattr(recorder_module, "QUEUES_MAX", 2)
    for name in ("a", "b", "c", "d"):
        node.vhost.declare_queue(name)
    publish(node, "a")
    rounds(recorder, clock, 1)
    publish(node, "b")
    rounds(recorder, clock, 1)
    publish(node, "a")
    publish(node, "c")
    rounds(recorder, clock, 1)
    for name in ("a", "c", "d"):
        publish(node, name)
    rounds(recorder, clock, 1)

    counts = {
        name: len(samples(rates, statistics.QUEUE, node.vhost.queue(name), "messages_ready")) - 1
        for name in ("a", "b", "c", "d")}

    assert counts == {"a": 4, "b": 0, "c": 2, "d": 0}


def test_what_was_deleted_is_not_recorded_any_more(node, rates, recorder, clock):
    there = node.broker.create_vhost("there")
    node.vhost.declare_queue("gone")
    publish(node, "gone")
    rounds(recorder, clock, 1)
    recorded = len(rates._recorded)

    node.vhost.delete_queue("gone")
    node.broker.delete_vhost(there.name)
    rounds(recorder, clock, 1)

    assert len(rates._recorded) == recorded - 2


def test_samples_of_a_client_who_looked_make_room_for_the_recorded(node, rates, recorder, clock, seen):
    """Otherwise a busy queue, once looked at, would keep two hundred samples for ever."""
    whole = (None, seen)
    rounds(recorder, clock, 1)
    samples(rates, statistics.WHOLE, whole, "publish")
    clock.now += 2 * 86400
    rates.sample()
    rounds(recorder, clock, int(RECORD_S / RECORD_INTERVAL_S))

    times = [at for _, at in samples(rates, statistics.WHOLE, whole, "publish")]

    assert [later - sooner for sooner, later in zip(times, times[1:])] == [RECORD_INTERVAL_S] * 20
    rates.close()
