"""A client whose message waits for files is not read until it is stored."""
from types import SimpleNamespace

import pytest

from gomq_py.broker.verbs.blocked_publish import WAITS_FOR, wait_for_files
from tests.support.queues import Bench, message


class Hold:
    def __init__(self, stream):
        self.stream = stream

    def release(self):
        self.stream.holds.remove(self)


class Stream:
    def __init__(self):
        self.holds = []
        self.waits_for = []

    def pause_reading(self, waits_for):
        self.waits_for.append(waits_for)
        self.holds.append(Hold(self))
        return self.holds[-1]


class Held:
    """A message that a queue could not take at once.

    ``counted``: octets of the budget; ``done``: what came of it.
    """

    def __init__(self, folder):
        self.bench = Bench(folder)
        self.queue = self.bench.queue("q")
        self.stream = Stream()
        self.counted = 0
        self.done = []
        self.waiting = None
        bodies = SimpleNamespace(count_whole=self.count)
        self.vhost = SimpleNamespace(queues={"q": self.queue}, blocked_publishes=set())
        self.message = message(b"twelve bytes")
        self.message.lacking = self.lack
        self.elsewhere = ()
        publication = SimpleNamespace(
            message=self.message, destinations=(self.queue,), somebody_took=False,
            rerouted=lambda vhost: self.elsewhere)
        wait_for_files(
            SimpleNamespace(scheduler=self.bench.scheduler, bodies=bodies), self.stream,
            self.vhost, publication, 0, True, self.is_done)

    def count(self, octets):
        self.counted += octets

    def lack(self, callback):
        self.waiting = callback

    def is_done(self, taken, somebody_took):
        self.done.append((taken, somebody_took, len(self.stream.holds), self.counted))


def test_the_client_is_held_and_its_octets_count_until_the_files_are_there(tmp_path):
    held = Held(tmp_path)
    assert held.stream.waits_for == [WAITS_FOR] and len(held.stream.holds) == 1 and held.counted == 12

    held.waiting(None)

    assert held.done == [(True, True, 0, 0)] and held.queue.ready_count == 1


def test_the_client_goes_on_when_the_files_could_not_be_made(tmp_path):
    held = Held(tmp_path)

    held.waiting(OSError("no room"))

    assert held.done == [(False, False, 0, 0)] and held.queue.ready_count == 0


@pytest.mark.parametrize("is_same", [False, True])
def test_a_queue_that_is_another_meanwhile_refuses_only_if_it_was_opened_again(tmp_path, is_same):
    """One that was deleted is left out; the next one of its name has nothing to do with it."""
    held = Held(tmp_path)
    key = held.queue.store.key if is_same else held.queue.store.key + 1
    held.vhost.queues["q"] = SimpleNamespace(store=SimpleNamespace(key=key))

    held.waiting(None)

    assert held.done == [(not is_same, False, 0, 0)] and held.queue.ready_count == 0


def test_a_message_whose_queues_were_all_deleted_goes_where_it_would_go_now(tmp_path):
    held = Held(tmp_path)
    del held.vhost.queues["q"]
    held.elsewhere = (held.bench.queue("alternate"),)

    held.waiting(None)

    assert held.done == [(True, True, 0, 0)] and held.elsewhere[0].ready_count == 1


def test_it_is_one_of_those_held_until_all_have_had_it(tmp_path):
    held = Held(tmp_path)
    assert [each.is_for(held.queue) for each in held.vhost.blocked_publishes] == [True]

    held.waiting(None)

    assert not held.vhost.blocked_publishes


def test_fault_of_a_destination_holds_nobody_and_is_said(tmp_path, caplog):
    """On b83bb75a the client was never read again, and its octets counted for ever."""
    held = Held(tmp_path)
    held.vhost.queues.clear()
    held.elsewhere = [object()]  # what is no destination

    held.waiting(None)

    assert held.done == [(False, False, 0, 0)] and not held.vhost.blocked_publishes
    assert "a fault of the broker" in caplog.text
