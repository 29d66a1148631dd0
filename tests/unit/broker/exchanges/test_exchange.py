"""Where a message goes: from exchange to exchange, by alternates, and when a remembered route is stale."""
import pytest

from tests.support.model import make_vhost, routed


@pytest.fixture
def vhost():
    vhost, _, _ = make_vhost()
    for name in ("q", "r"):
        vhost.declare_queue(name)
    return vhost


def test_default_exchange_routes_by_queue_name(vhost):
    assert routed(vhost, "", "q") == ["q"]
    assert routed(vhost, "", "nope") == []


def test_direct_exchange_routes_by_equal_key(vhost):
    vhost.bindings.bind_queue("q", "amq.direct", "k")
    vhost.bindings.bind_queue("r", "amq.direct", "k")
    vhost.bindings.bind_queue("r", "amq.direct", "other")

    assert routed(vhost, "amq.direct", "k") == ["q", "r"]
    assert routed(vhost, "amq.direct", "other") == ["r"]
    assert routed(vhost, "amq.direct", "K") == []


def test_fanout_exchange_routes_to_all_once(vhost):
    vhost.bindings.bind_queue("q", "amq.fanout", "1")
    vhost.bindings.bind_queue("q", "amq.fanout", "2")
    vhost.bindings.bind_queue("r", "amq.fanout", "")

    assert routed(vhost, "amq.fanout", "any") == ["q", "r"]
    vhost.bindings.unbind_queue("q", "amq.fanout", "1")
    assert routed(vhost, "amq.fanout", "any") == ["q", "r"]


def test_queue_reached_twice_gets_one_copy(vhost):
    vhost.bindings.bind_queue("q", "amq.topic", "#")
    vhost.bindings.bind_queue("q", "amq.topic", "a.*")
    vhost.bindings.bind_exchange("amq.fanout", "amq.topic", "a.b")
    vhost.bindings.bind_queue("q", "amq.fanout", "")

    assert routed(vhost, "amq.topic", "a.b") == ["q"]


def test_cycles_of_exchanges_end(vhost):
    vhost.bindings.bind_exchange("amq.fanout", "amq.topic", "#")
    vhost.bindings.bind_exchange("amq.topic", "amq.fanout", "")
    vhost.bindings.bind_queue("q", "amq.topic", "a")

    assert routed(vhost, "amq.fanout", "a") == ["q"]


def test_alternate_exchange_gets_what_matches_nothing(vhost):
    vhost.declare_exchange("x", "direct", arguments={"alternate-exchange": "amq.fanout"})
    vhost.bindings.bind_queue("q", "x", "k")
    vhost.bindings.bind_queue("r", "amq.fanout", "")

    assert routed(vhost, "x", "k") == ["q"]
    assert routed(vhost, "x", "unknown") == ["r"]


def test_alternate_exchange_is_not_asked_when_a_bound_exchange_led_nowhere(vhost):
    """RabbitMQ's rule: what counts is whether the exchange itself matched something."""
    vhost.declare_exchange("x", "fanout", arguments={"alternate-exchange": "amq.fanout"})
    vhost.declare_exchange("dead-end", "fanout")
    vhost.bindings.bind_exchange("dead-end", "x", "")
    vhost.bindings.bind_queue("r", "amq.fanout", "")

    assert routed(vhost, "x", "k") == []


def test_missing_alternate_exchange_is_ignored(vhost):
    vhost.declare_exchange("x", "direct", arguments={"alternate-exchange": "nope"})

    assert routed(vhost, "x", "k") == []


def test_alternates_that_form_a_cycle_end(vhost):
    vhost.declare_exchange("x", "direct", arguments={"alternate-exchange": "y"})
    vhost.declare_exchange("y", "direct", arguments={"alternate-exchange": "x"})

    assert routed(vhost, "x", "k") == []


def test_alternate_exchange_is_asked_when_none_of_several_keys_matches(vhost):
    vhost.declare_exchange("x", "direct", arguments={"alternate-exchange": "amq.fanout"})
    vhost.bindings.bind_queue("q", "x", "copy")
    vhost.bindings.bind_queue("r", "amq.fanout", "")

    assert routed(vhost, "x", "unknown", more_keys=("copy",)) == ["q"]
    assert routed(vhost, "x", "unknown", more_keys=("nope",)) == ["r"]


def revision(vhost, exchange):
    return vhost.exchange(exchange).state.revision


@pytest.mark.parametrize("change", [
    lambda vhost: vhost.bindings.bind_queue("q", "end", "new"),
    lambda vhost: vhost.bindings.unbind_queue("q", "end", "k"),
    lambda vhost: vhost.delete_queue("q"),
    lambda vhost: vhost.delete_exchange("end"),
    lambda vhost: vhost.bindings.unbind_exchange("end", "middle", ""),
    lambda vhost: vhost.declare_exchange("late", "fanout"),
])
def test_a_change_downstream_makes_routes_upstream_stale(change):
    vhost, _, _ = make_vhost()
    vhost.declare_queue("q")
    vhost.declare_exchange("start", "direct", arguments={"alternate-exchange": "middle"})
    vhost.declare_exchange("middle", "fanout")
    vhost.declare_exchange("end", "direct", arguments={"alternate-exchange": "late"})
    vhost.bindings.bind_exchange("end", "middle", "")
    vhost.bindings.bind_queue("q", "end", "k")
    before = revision(vhost, "start")

    change(vhost)

    assert revision(vhost, "start") > before


def test_declaring_and_deleting_queues_makes_routes_of_the_default_exchange_stale(vhost):
    before = revision(vhost, "")
    vhost.declare_queue("new")
    between = revision(vhost, "")
    vhost.delete_queue("new")

    assert before < between < revision(vhost, "")


def test_deleting_an_exchange_makes_its_own_routes_stale(vhost):
    exchange = vhost.declare_exchange("x", "fanout")
    before = exchange.state.revision

    vhost.delete_exchange("x")

    assert exchange.state.revision > before


def test_an_unrelated_change_leaves_routes_alone(vhost):
    before = revision(vhost, "amq.topic")

    vhost.bindings.bind_queue("q", "amq.direct", "k")

    assert revision(vhost, "amq.topic") == before
