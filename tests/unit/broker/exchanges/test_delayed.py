"""Delayed exchange: what waits and for how long, what it looks like afterwards,
and that it is still there after a restart.
"""
from datetime import datetime, timedelta, timezone
from decimal import Decimal

import pytest

from gomq_py.broker.exchanges import delayed
from gomq_py.broker.exchanges.delayed import MAX_DELAY_MS, delay_of, due_ms_of, gone_on, is_delayed, time_of
from gomq_py.content.fields import Int64, Seconds
from gomq_py.content.properties import Properties
from gomq_py.errors import PreconditionFailed
from gomq_py.hub.scheduler import unix_ms
from gomq_py.hub.timers import HubTimers
from gomq_py.storage.message import Message
from tests.support.model import make_vhost, routed
from tests.support.node import Node

NOW_MS = 1_700_000_000_000


def message(**properties):
    made = Message()
    made.assign(b"x", b"k", Properties(**properties).encode(), b"body", NOW_MS, priority=3, persistent=True)
    return made


@pytest.mark.parametrize("value, delay_ms", [
    (5, 5), (5.7, 5), ("5", 5), (0, 0), (-5, 0), ("-5", 0), ("soon", 0), (None, 0), (True, 0), ([], 0),
    (1 << 60, 10 * 365 * 24 * 3600 * 1000),
])
def test_delay_is_a_positive_number(value, delay_ms):
    assert delay_of({"x-delay": value}) == delay_ms


@pytest.mark.parametrize("value, delay_ms", [
    (float("inf"), MAX_DELAY_MS), (float("nan"), 0), (float("-inf"), 0), ("9" * 5000, MAX_DELAY_MS),
    ("0" * 5000 + "7", 7),
    (Int64(2 ** 63 - 1), MAX_DELAY_MS), (Int64(-2 ** 63), 0), (Seconds(2 ** 64 - 1), MAX_DELAY_MS),
    (1e308, MAX_DELAY_MS),
    ("9" * 20, MAX_DELAY_MS), (Decimal(5), 0),
])
def test_delay_that_no_clock_knows_is_the_longest_or_none_and_the_message_goes_on(value, delay_ms):
    waiting = message(headers={"x-delay": value, "CC": 5})

    assert due_ms_of(waiting) == NOW_MS + delay_ms
    headers = gone_on(waiting, NOW_MS)[1]
    assert not delay_of(headers) and type(headers["x-delay"]) is not type(None)


@pytest.mark.parametrize("value", [
    datetime(9999, 12, 31, 23, 59, 59, tzinfo=timezone.utc), Seconds(2 ** 64 - 1), Int64(2 ** 63 - 1),
    Int64(-2 ** 63), -1, 0,
    float("inf"), float("nan"), datetime(1970, 1, 1, tzinfo=timezone.utc), "9" * 5000,
])
def test_time_that_no_clock_knows_is_the_latest_or_none_and_the_message_goes_on(value):
    waiting = message(headers={"x-deliver-at": value, "x-delay": 5})

    assert due_ms_of(waiting) in (NOW_MS + 5, NOW_MS + MAX_DELAY_MS)
    assert not is_delayed(gone_on(waiting, NOW_MS)[1])


def test_time_may_be_given_itself():
    at = datetime(2030, 1, 1, tzinfo=timezone.utc)

    assert time_of({"x-deliver-at": at}) == int(at.timestamp() * 1000)
    assert time_of({"x-deliver-at": NOW_MS + 5}) == NOW_MS + 5
    assert due_ms_of(message(headers={"x-deliver-at": NOW_MS + 5})) == NOW_MS + 5
    assert due_ms_of(message(headers={"x-delay": 7})) == NOW_MS + 7


def test_message_that_goes_on_says_how_long_it_waited():
    released, headers = gone_on(
        message(headers={"x-delay": 500, "mine": b"\xff"}, expiration="100", type="t"), NOW_MS + 500
    )

    properties = Properties.decode(released.get_properties())
    assert properties.headers == headers == {"x-delay": -500, "mine": b"\xff"}
    assert (properties.expiration, properties.type) == ("100", "t")
    fields = released.describe()
    assert (fields["timestamp_ms"], fields["expires_at_ms"]) == (NOW_MS + 500, NOW_MS + 600)
    assert (fields["priority"], fields["persistent"]) == (3, True)
    assert (released.get_exchange(), released.get_routing_key(), released.get_body()) == (b"x", b"k", b"body")


@pytest.mark.parametrize("expiration", ["100", "+100"])
def test_expiration_counts_from_when_a_message_goes_on_however_it_is_written(expiration):
    released, _ = gone_on(message(headers={"x-delay": 500}, expiration=expiration), NOW_MS + 500)

    assert released.describe()["expires_at_ms"] == NOW_MS + 600


def test_type_of_routing_must_be_named():
    vhost, _, _ = make_vhost()

    for arguments in (
        {}, {"x-delayed-type": "nope"}, {"x-delayed-type": 5}, {"x-delayed-type": {}}, {"x-delayed-type": []},
        {"x-delayed-type": "x-delayed-message"},
    ):
        with pytest.raises(PreconditionFailed, match="x-delayed-type"):
            vhost.declare_exchange("x", "x-delayed-message", arguments=arguments)


def test_only_what_is_to_come_later_is_parked():
    vhost, _, _ = make_vhost()
    vhost.declare_exchange("x", "x-delayed-message", arguments={"x-delayed-type": "topic"})
    vhost.declare_queue("q")
    vhost.bindings.bind_queue("q", "x", "a.*")

    assert routed(vhost, "x", "a.b", {"x-delay": 5}) == ["amq.delayed-x"]
    assert routed(vhost, "x", "a.b", {"x-delay": -5}) == ["q"]
    assert routed(vhost, "x", "a.b", {}) == routed(vhost, "x", "a.b") == ["q"]
    vhost.bindings.unbind_queue("q", "x", "a.*")
    assert routed(vhost, "x", "a.b") == []


@pytest.fixture
def start(tmp_path):
    nodes = []

    def start_node(folder="data"):
        nodes.append(Node(tmp_path / folder))
        return nodes[-1]

    yield start_node
    for node in nodes:
        if node.data_dir.locked:
            node.stop()


def publish(node, headers, body=b"later", now_ms=None):
    vhost = node.vhost
    made = Message()
    now_ms = unix_ms() if now_ms is None else now_ms
    made.assign(b"x", b"k", Properties(headers=headers).encode(), body, now_ms, persistent=True)
    for destination in vhost.route(vhost.exchange("x"), "k", headers):
        destination.publish(made)


def declare(node):
    node.vhost.declare_exchange(
        "x", "x-delayed-message", durable=True, arguments={"x-delayed-type": "direct"}
    )
    node.vhost.declare_queue("q", durable=True)
    node.vhost.bindings.bind_queue("q", "x", "k")


def test_message_arrives_when_its_time_has_come(start):
    node = start()
    declare(node)

    now_ms = unix_ms()  # the same for all: their order must not depend on what this process does in between
    publish(node, {"x-delay": 60}, b"later", now_ms)
    publish(node, {"x-delay": 30}, b"sooner", now_ms)
    publish(node, {"x-deliver-at": datetime.now(timezone.utc) - timedelta(days=1)}, b"past", now_ms)
    assert node.vhost.queue("q").ready_count == 0
    node.wait(lambda: node.vhost.queue("q").ready_count == 3)

    assert [node.take("q")[0] for _ in range(3)] == [b"past", b"sooner", b"later"]
    node.wait(lambda: node.vhost.exchange("x").delayed_store.store.unacked_count == 0)


@pytest.mark.parametrize("end", ["in order", "by a kill"])
def test_what_waits_survives_a_restart(start, end, monkeypatch):
    """An hour in the second life, of which 100 ms are left in the third."""
    node = start()
    declare(node)
    now_ms = unix_ms()
    publish(node, {"x-delay": 3_600_000}, now_ms=now_ms)
    for left_ms in (1_800_000, 100):
        node.vhost.exchange("x").delayed_store.write_out()
        if end == "in order":
            node.stop()
        else:
            node.kill()
        monkeypatch.setattr(
            HubTimers, "now_ms", staticmethod(lambda left_ms=left_ms: now_ms + 3_600_000 - left_ms)
        )
        node = start()
        assert node.vhost.exchange("x").delayed_store.count == 1

    monkeypatch.setattr(HubTimers, "now_ms", staticmethod(lambda: now_ms + 3_600_000))
    node.wait(lambda: node.vhost.queue("q").ready_count == 1)
    assert Properties.decode(node.take("q")[1]).headers == {"x-delay": -3_600_000}


def test_deleted_exchange_takes_what_waits_along(start):
    node = start()
    declare(node)
    publish(node, {"x-delay": 50})

    node.vhost.delete_exchange("x")
    node.committer.wait()
    declare(node)
    node.stop()

    assert start().vhost.exchange("x").delayed_store.count == 0


def test_message_that_cannot_go_on_is_set_aside_and_the_others_go_on_after_a_restart_too(start, monkeypatch):
    """What is due is negated in its headers; a fault in that, which one message brings about,
    must not stop the exchange.
    """
    gone_on_before = delayed.gone_on
    monkeypatch.setattr(
        delayed, "gone_on",
        lambda one, now_ms: 1 // 0 if one.get_body() == b"ill" else gone_on_before(one, now_ms),
    )
    for boot in (1, 2):
        node = start()
        declare(node)
        if boot == 1:
            publish(node, {"x-delay": "1"}, b"ill", now_ms=NOW_MS)
        publish(node, {"x-delay": 1}, b"sound", now_ms=NOW_MS)

        node.wait(lambda: node.vhost.queue("q").ready_count == 1)
        assert node.take("q")[0] == b"sound"
        aside = node.vhost.exchange("x").delayed_store.aside
        assert aside.reasons == {
            "going on after the delay: ZeroDivisionError: integer division or modulo by zero": 1
        }
        node.stop()


@pytest.mark.parametrize("cc", [5, "other", {"other": 1}, None, [["other"], {"other": 1}, 5]])
def test_message_whose_further_keys_are_no_texts_goes_by_its_own(start, cc):
    """No door lets such a CC in; a message of an older version may have it."""
    node = start()
    declare(node)
    node.vhost.declare_queue("others")
    node.vhost.bindings.bind_queue("others", "x", "other")

    publish(node, {"x-delay": 1, "CC": cc}, now_ms=NOW_MS)

    node.wait(lambda: node.vhost.queue("q").ready_count == 1)
    assert (
        node.vhost.exchange("x").delayed_store.aside is None and node.vhost.queue("others").ready_count == 0
    )


def test_delayed_messages_are_spread_by_a_property_that_an_exchange_behind_hashes(start):
    node = start()
    node.vhost.declare_exchange("x", "x-delayed-message", arguments={"x-delayed-type": "fanout"})
    node.vhost.declare_exchange("spread", "x-consistent-hash", arguments={"hash-property": "message_id"})
    node.vhost.bindings.bind_exchange("spread", "x", "")
    queues = [node.vhost.declare_queue(name)[0] for name in "abc"]
    for queue in queues:
        node.vhost.bindings.bind_queue(queue.name, "spread", "10")

    for number in range(50):
        made = Message()
        properties = Properties(headers={"x-delay": 1}, message_id=str(number))
        made.assign(b"x", b"k", properties.encode(), b"", NOW_MS)
        node.vhost.exchange("x").delayed_store.publish(made)

    node.wait(lambda: sum(queue.ready_count for queue in queues) == 50)
    assert all(queue.ready_count for queue in queues)
