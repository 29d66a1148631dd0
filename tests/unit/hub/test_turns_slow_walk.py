"""Fairness among slow frames: one client's thousands of declares do not hold up another's one."""
from collections import Counter

import gevent
import pytest

from gomq_py.amqp.wire.frames import method_frame
from gomq_py.amqp.wire.methods import (
    BasicConsume, BasicConsumeOk, BasicDeliver, BasicGet, BasicGetOk, ConfirmSelect, ConfirmSelectOk,
    QueueBind, QueueBindOk, QueueDeclare, QueueDeclareOk,
)
from gomq_py.content.properties import Properties
from gomq_py.hub import turns as turns_module
from tests.support.door import publish_frames
from tests.support.waiting import wait_until

COUNT = 1000


def test_one_clients_many_declares_let_another_through(door, monkeypatch):
    """With no time at all, a walk ends after two frames: the other is answered long before the thousandth."""
    monkeypatch.setattr(turns_module, "WALK_S", 0)
    busy, other = door.client(), door.client()
    busy.call(QueueDeclare(queue="q"), QueueDeclareOk)

    busy.send(method_frame(1, QueueDeclare(queue="q", passive=True)) * COUNT)
    other.send_method(QueueDeclare(queue="q", passive=True))
    other.expect(QueueDeclareOk)
    connection = next(iter(door.hub.clients))

    assert connection.output.sent_octets < COUNT * 20
    for _ in range(COUNT):
        busy.expect(QueueDeclareOk)


def test_everything_arrives_in_order_across_the_breaks(door, monkeypatch):
    """Mandatory publishes go to the slow lane; others between them go to the fast one."""
    monkeypatch.setattr(turns_module, "WALK_S", 0)
    client = door.client()
    client.call(QueueDeclare(queue="q"), QueueDeclareOk)
    client.call(ConfirmSelect(), ConfirmSelectOk)

    client.send(*(publish_frames("q", b"%d" % number, mandatory=number % 3 > 0) for number in range(COUNT)))

    reader = door.client()
    wait_until(lambda: door.queue("q").ready_count == COUNT, sleep=gevent.sleep)
    for number in range(COUNT):
        reader.send_method(BasicGet(queue="q", no_ack=True))
        assert reader.expect_message(BasicGetOk)[2] == b"%d" % number


def test_routes_that_are_looked_for_have_no_more_time_than_slow_frames(door, monkeypatch):
    """Publishes of the fast lane, each with a key of its own:
    a look through a large topic exchange takes milliseconds.
    """
    breaks = []
    wait = turns_module.SlowTurns.wait
    monkeypatch.setattr(
        turns_module.SlowTurns, "wait", lambda turns, stream: breaks.append(stream) or wait(turns, stream)
    )
    monkeypatch.setattr(turns_module, "WALK_S", 0)
    client = door.client()
    client.call(QueueDeclare(queue="q"), QueueDeclareOk)
    client.call(QueueBind(queue="q", exchange="amq.topic", routing_key="#"), QueueBindOk)
    # it waits for files, which ends a walk as well
    client.send(publish_frames("first", exchange="amq.topic"))
    wait_until(lambda: door.queue("q").ready_count == 1, sleep=gevent.sleep)
    before = len(breaks)

    client.send(*(publish_frames(f"key.{number}", exchange="amq.topic") for number in range(100)))

    wait_until(lambda: door.queue("q").ready_count == 101, sleep=gevent.sleep)
    assert len(breaks) - before >= 99


def test_messages_to_many_queues_have_no_more_time_than_slow_frames(door, monkeypatch):
    """Publishes of the fast lane to 20 queues each: with no time a walk ends at its second look at the clock,
    and what is left of the read comes later, in order and confirmed.
    """
    breaks = []
    wait = turns_module.SlowTurns.wait
    monkeypatch.setattr(
        turns_module.SlowTurns, "wait", lambda turns, stream: breaks.append(stream) or wait(turns, stream)
    )
    monkeypatch.setattr(turns_module, "WALK_S", 0)
    client = door.client()
    for number in range(20):
        client.call(QueueDeclare(queue=f"q{number}"), QueueDeclareOk)
        client.call(QueueBind(queue=f"q{number}", exchange="amq.fanout"), QueueBindOk)
    client.send(publish_frames("", b"first", exchange="amq.fanout"))
    wait_until(lambda: door.queue("q19").ready_count == 1, sleep=gevent.sleep)
    before = len(breaks)

    client.send(*(publish_frames("", b"%d" % number, exchange="amq.fanout") for number in range(500)))

    wait_until(lambda: door.queue("q19").ready_count == 501, sleep=gevent.sleep)
    assert len(breaks) > before
    reader = door.client()
    for number in ("first", *range(500)):
        reader.send_method(BasicGet(queue="q0", no_ack=True))
        assert reader.expect_message(BasicGetOk)[2] == str(number).encode()


def test_client_that_leaves_amid_the_breaks_is_gone(door, monkeypatch):
    monkeypatch.setattr(turns_module, "WALK_S", 0)
    client = door.client()
    client.call(QueueDeclare(queue="q"), QueueDeclareOk)

    client.send(method_frame(1, QueueDeclare(queue="q", passive=True)) * COUNT)
    client.expect(QueueDeclareOk)
    client.close()

    wait_until(lambda: not door.hub.clients, sleep=gevent.sleep)
    door.client().call(QueueDeclare(queue="q", passive=True), QueueDeclareOk)


def test_all_that_are_busy_together_have_the_time_of_one(door, monkeypatch):
    """Of each poll, from the first read on: before, every client's first walk had as much as all others."""
    asked, granted = Counter(), Counter()
    has_time = turns_module.SlowTurns.has_time

    def noted(turns):
        answer = has_time(turns)
        poll = gevent.get_hub().loop.iteration
        asked[poll] += 1
        granted[poll] += answer
        return answer

    clients = [door.client() for _ in range(30)]
    clients[0].call(QueueDeclare(queue="q"), QueueDeclareOk)
    monkeypatch.setattr(turns_module, "WALK_S", 0)
    monkeypatch.setattr(turns_module.SlowTurns, "has_time", noted)

    for client in clients:
        client.send(method_frame(1, QueueDeclare(queue="q", passive=True)) * 20)
    for client in clients:
        for _ in range(20):
            client.expect(QueueDeclareOk)

    assert max(granted.values()) == 1


def test_connections_that_end_together_do_so_in_turns(door, monkeypatch):
    """A network fails, and thousands are gone at once: here a poll has time for one, or two."""
    polls, forget = [], door.hub.clients.forget

    def noted(connection):
        polls.append(gevent.get_hub().loop.iteration)
        forget(connection)

    clients = [door.client() for _ in range(40)]
    monkeypatch.setattr(turns_module, "WALK_S", 0)
    monkeypatch.setattr(door.hub.clients, "forget", noted)

    for client in clients:
        client.close()
    wait_until(lambda: len(polls) == len(clients), sleep=gevent.sleep)

    assert max(Counter(polls).values()) <= 3


def test_connections_that_wait_for_their_end_are_lent_nothing(door, monkeypatch):
    """Or what the first gave back would go through all that were lost with it, and a limit of deliveries take
    it for a message that kills its consumers.
    """
    arguments = {"x-queue-type": "quorum"}
    clients = [door.client() for _ in range(20)]
    clients[0].call(QueueDeclare(queue="q", durable=True, arguments=arguments), QueueDeclareOk)
    for client in clients:
        client.call(BasicConsume(queue="q"), BasicConsumeOk)
    for client in clients:
        client.publish("q", b"x")
    for client in clients:
        client.expect_message(BasicDeliver)
    monkeypatch.setattr(turns_module, "WALK_S", 0)

    for client in clients:
        client.close()
    wait_until(lambda: not door.hub.clients, sleep=gevent.sleep)

    reader = door.client()
    for _ in clients:
        reader.send_method(BasicGet(queue="q", no_ack=True))
        properties = reader.expect_message(BasicGetOk)[1]
        assert Properties.decode(properties).headers == {"x-acquired-count": 1, "x-delivery-count": 1}


class Starter:
    """A scheduler whose polls the test makes."""

    def __init__(self):
        self.job = None

    def start(self, job):
        self.job = job


class Loop:
    """Counts polls."""

    iteration = 0


@pytest.fixture
def bench(monkeypatch):
    """(turns, poll): ``poll()`` is one of the loop, and has those begin whose turn it is."""
    turns = turns_module.SlowTurns(Starter())
    turns._loop = Loop()
    monkeypatch.setattr(turns_module.time, "monotonic", lambda: 0.0)

    def poll():
        turns._loop.iteration += 1
        turns.step()

    return turns, poll


def test_many_who_have_little_to_do_go_on_together(bench):
    """A thousand that come back at once do not wait for a thousand polls."""
    turns, poll = bench
    gone_on = []
    for number in range(1000):
        turns.wait(Held(gone_on, number))

    for _ in range(25):
        poll()

    assert gone_on == list(range(1000))


def test_who_needs_all_the_time_has_the_next_poll_alone(bench, monkeypatch):
    turns, poll = bench
    gone_on = []
    for number in range(100):
        turns.wait(Held(gone_on, number))
    for _ in range(4):
        poll()
    before = len(gone_on)

    monkeypatch.setattr(turns_module, "WALK_S", 0)
    turns._loop.iteration += 1
    assert turns.has_time() and not turns.has_time()
    turns.step()

    assert len(gone_on) == before + 1


def test_greenlet_that_came_too_late_in_its_turn_goes_on_in_the_next(bench, monkeypatch):
    """Or those who are always quicker would keep it waiting for ever. Those that wait keep their order."""
    monkeypatch.setattr(turns_module, "WALK_S", 0)
    turns, poll = bench
    turns._loop.iteration += 1
    assert turns.has_time()
    done = []
    for name in "abc":
        gevent.spawn(lambda name=name: (turns.take(), done.append(name)))
    wait_until(lambda: len(turns._line._rows.get("greenlets", ())) == 3, sleep=gevent.sleep)

    for _ in range(6):
        poll()
        gevent.sleep(0)
        turns.has_time()  # somebody else's frame

    assert done == ["a", "b", "c"]


def test_calls_have_their_turns_in_order_and_all_at_the_end(bench, monkeypatch):
    monkeypatch.setattr(turns_module, "WALK_S", 0)
    turns, poll = bench
    turns._loop.iteration += 1
    done = []
    for number in range(10):
        turns.call(lambda number=number: done.append(number))
    assert done == [0]

    poll()
    assert done == [0, 1]

    turns.finish()
    assert done == list(range(10))
    turns.call(lambda: done.append("later"))
    assert done[-1] == "later"


def test_one_frame_does_not_wait_for_all_that_end_or_come_back_together(bench, monkeypatch):
    monkeypatch.setattr(turns_module, "WALK_S", 0)
    turns, poll = bench
    turns._loop.iteration += 1
    assert turns.has_time()
    ended, gone_on = [], []
    for number in range(10):
        turns.call(lambda number=number: ended.append(number))
        gevent.spawn(turns.take)
    wait_until(lambda: len(turns._line._rows.get("greenlets", ())) == 10, sleep=gevent.sleep)
    turns.wait(Held(gone_on, "frame"))

    for _ in range(2):
        poll()
    assert (ended, gone_on, len(turns._line._rows.get("greenlets", ()))) == ([0], ["frame"], 9)

    turns.finish()
    assert ended == list(range(10))


class Held:
    """A stream, and its own hold."""

    def __init__(self, gone_on, number):
        self.pause_reading = lambda waits_for: self
        self.release = lambda: gone_on.append(number)
