"""The judges of options of subscriptions, and of wills that wait: what breaks a promise by hand is found."""
from types import SimpleNamespace

import pytest

from gomq_py.mqtt.wire import packets
from tests.simulation.mqtt_options import DelayLedger, Talker, TalkLedger
from tests.simulation.network import Network
from tests.simulation.world import World


class Bench:
    """A talker, whose packets are answered by hand, and what others say."""

    def __init__(self):
        self.world = World(1)
        self.ledger = TalkLedger(self.world, "n")
        self.talker = Talker(self.world, Network(self.world), "talker", self.ledger)
        self.talker.tell = lambda packet: None
        self.bodies = []

    def subscribe(self, **options):
        talker = self.talker
        handling = options.pop("retain_handling", 2)
        talker.random = SimpleNamespace(
            random=lambda: 0.9, choice=lambda choices: handling if handling in choices else choices[0])
        talker._subscribe()
        talker._wants = talker._wants._replace(**options)
        talker._subscribed(packets.SubackPacket(packet_identifier=1, reason_codes=(1,)))

    def say(self, who="another", retain=False):
        number, body = self.ledger.say(who, retain)
        self.bodies.append(body)
        self.ledger.accept(number)

    def take(self, number, retain=False):
        self.talker._published(packets.PublishPacket(
            topic_name="n", payload=self.bodies[number], qos=1, packet_identifier=1, retain=retain))

    def findings(self):
        return [finding.split(": ", 1)[1].removeprefix("n: ") for finding in self.world.findings]


@pytest.fixture
def bench():
    return Bench()


@pytest.mark.parametrize("who, no_local, is_found", [
    ("talker", True, True), ("talker", False, False), ("another", True, False)])
def test_message_that_comes_to_its_publisher_with_no_local_is_found(bench, who, no_local, is_found):
    bench.subscribe(no_local=no_local)
    bench.say(who)
    assert bench.ledger.missing() == (set() if is_found else {0})

    bench.take(0)

    assert bench.findings() == ["0 came to its publisher, with No Local"] * is_found
    assert not bench.ledger.missing()


@pytest.mark.parametrize("said, as_published, came, finding", [
    (True, True, True, []), (True, True, False, ["0 came without RETAIN, which is to be as published"]),
    (True, False, True, ["0 came with RETAIN, which is not to be as published"]), (True, False, False, []),
    (False, True, True, ["0 came with RETAIN, and was not to be retained"])])
def test_retain_that_is_not_as_asked_for_is_found(bench, said, as_published, came, finding):
    bench.subscribe(retain_as_published=as_published)
    bench.say(retain=said)

    bench.take(0, came)

    assert bench.findings() == finding


@pytest.mark.parametrize("handlings, times", [((2,), 0), ((1,), 1), ((0,), 1), ((1, 1), 1), ((0, 0), 2)])
def test_retained_message_that_comes_more_often_than_it_was_asked_for_is_found(bench, handlings, times):
    bench.say(retain=True)
    for handling in handlings:
        bench.subscribe(retain_handling=handling)

    for _ in range(times):
        bench.take(0, True)
    assert bench.findings() == []
    bench.take(0, True)

    assert bench.findings() == [f"0 came {times + 1} times in place of {times}"]


@pytest.fixture
def wills():
    """With a will that was left just now, and waits for a second."""
    ledger = DelayLedger(World(1), "z")
    ledger.publish_at(2)
    ledger.left_s = ledger.world.now_s
    ledger.due[0] = ledger.left_s + 1.0, 0
    return ledger


@pytest.mark.parametrize("after_s, ends, is_found", [
    (0.9, False, True), (1.0, False, False), (0.9, True, False)])
def test_will_that_comes_early_is_found(wills, after_s, ends, is_found):
    if ends:
        wills.process_ended()
    wills.world.run(wills.left_s + after_s)

    wills.deliver(0, 2, None)

    assert bool(wills.world.findings) is is_found


def test_will_that_comes_though_its_client_was_back_in_time_is_found(wills):
    wills.world.run(wills.left_s + 0.9)
    wills.came_back(0, wills.left_s, wills.left_s + 0.8, 0)
    wills.world.run(wills.left_s + 1.0)

    wills.deliver(0, 2, None)

    assert wills.world.findings[0].endswith("z: 0 came, a will that was taken back")


@pytest.mark.parametrize("began_s, processes, missing", [(3.1, 0, {0}), (2.9, 0, set()), (3.1, 1, set())])
def test_will_has_to_come_where_its_client_was_back_late(wills, began_s, processes, missing):
    wills.world.run(wills.left_s + began_s + 0.1)
    wills.came_back(0, wills.left_s, wills.left_s + began_s, processes)

    assert wills.missing() == missing
