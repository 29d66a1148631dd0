"""Routing: what a tee, or an exchange that is handed on to, adds to a route,
and when remembered routes hear of it.

Exchanges: test_exchange.py.
"""
import pytest

from gomq_py.broker.policies.vhost_policies import PolicyComponent
from gomq_py.broker.exchanges.federation_upstream import RECEIVED_FROM
from gomq_py.broker.routing.route import Route
from tests.support.model import make_vhost, routed

STREAM = {"x-queue-type": "stream"}


@pytest.fixture
def vhost():
    """With the queues q and r, both bound to amq.direct, and the stream log."""
    vhost, _, _ = make_vhost()
    for name in ("q", "r"):
        vhost.declare_queue(name)
        vhost.bindings.bind_queue(name, "amq.direct", name)
    vhost.declare_queue("log", durable=True, arguments=STREAM)
    return vhost


def tee(vhost, pattern, stream="log", name="tee", **options):
    """Put a policy in force that tees what matches to the stream; None: take the policy back."""
    if stream is None:
        PolicyComponent().cleared(vhost, name)
    else:
        definition = {"tee-to-stream": stream}
        PolicyComponent().changed(vhost, name, {"pattern": pattern, "definition": definition, **options})
    vhost._factory.run_all()


def revisions(vhost, *exchanges):
    return [vhost.exchange(name).state.revision for name in exchanges]


def test_what_reaches_a_queue_goes_to_its_tee_whatever_exchange_it_came_over(vhost):
    vhost.bindings.bind_exchange("amq.direct", "amq.topic", "#")

    tee(vhost, "^q$")

    for exchange in ("", "amq.direct", "amq.topic"):
        assert routed(vhost, exchange, "q") == ["log", "q"]
    assert routed(vhost, "amq.direct", "r") == ["r"]


def test_what_an_exchange_routes_goes_to_its_tee(vhost):
    tee(vhost, "^amq.direct$", **{"apply-to": "exchanges"})

    assert routed(vhost, "amq.direct", "q") == ["log", "q"]
    assert routed(vhost, "", "q") == ["q"]


def test_tee_gets_one_copy_of_a_message_that_reaches_several_queues_of_it(vhost):
    vhost.bindings.bind_queue("q", "amq.fanout", "")
    vhost.bindings.bind_queue("r", "amq.fanout", "")
    vhost.bindings.bind_queue("log", "amq.fanout", "")

    tee(vhost, ".*")

    assert [each.name for each in vhost.route(vhost.exchange("amq.fanout"), "")].count("log") == 1


@pytest.mark.parametrize("pattern", ["^amq.direct$", "^q$"])
def test_tee_takes_nothing_that_no_queue_gets(vhost, pattern):
    """Else a publisher would not be told that its message came to nobody."""
    tee(vhost, pattern)

    assert routed(vhost, "amq.direct", "unknown") == []


def test_stream_is_no_tee_of_itself_or_of_another_stream(vhost):
    vhost.declare_queue("other", durable=True, arguments=STREAM)

    tee(vhost, ".*", **{"apply-to": "queues"})

    assert routed(vhost, "", "log") == ["log"]
    assert routed(vhost, "", "other") == ["other"]
    assert vhost.queue("other").in_force.definition == {}


@pytest.mark.parametrize("name", ["r", "missing"])
def test_tee_that_is_no_stream_gets_nothing(vhost, name):
    tee(vhost, "^q$", name)

    assert routed(vhost, "", "q") == ["q"]


def test_tee_that_is_declared_later_or_deleted_changes_remembered_routes(vhost):
    tee(vhost, "^q$", "late")
    before = revisions(vhost, "", "amq.direct")
    vhost.declare_queue("late", durable=True, arguments=STREAM)
    between = revisions(vhost, "", "amq.direct")
    assert routed(vhost, "amq.direct", "q") == ["late", "q"]

    vhost.delete_queue("late")

    assert routed(vhost, "amq.direct", "q") == ["q"]
    assert all(a < b < c for a, b, c in zip(before, between, revisions(vhost, "", "amq.direct"), strict=True))


@pytest.mark.parametrize("pattern", ["^amq.direct$", "^q$"])
def test_tee_that_comes_or_goes_by_its_policy_changes_remembered_routes_upstream(vhost, pattern):
    vhost.bindings.bind_exchange("amq.direct", "amq.topic", "#")
    before = revisions(vhost, "amq.topic", "amq.direct")

    tee(vhost, pattern)
    between = revisions(vhost, "amq.topic", "amq.direct")
    tee(vhost, pattern, None)

    after = revisions(vhost, "amq.topic", "amq.direct")
    assert all(a < b < c for a, b, c in zip(before, between, after, strict=True))
    assert routed(vhost, "amq.topic", "q") == ["q"]


def test_other_policy_leads_to_another_stream(vhost):
    vhost.declare_queue("log2", durable=True, arguments=STREAM)
    tee(vhost, "^q$")

    tee(vhost, "^q$", "log2")

    assert routed(vhost, "", "q") == ["log2", "q"]


def test_queue_that_is_declared_under_the_policy_has_its_tee(vhost):
    tee(vhost, "^new")

    vhost.declare_queue("new")

    assert routed(vhost, "", "new") == ["log", "new"]


def test_queues_and_exchanges_that_go_are_forgotten(vhost):
    vhost.declare_exchange("x", "fanout")
    tee(vhost, "^(q|x)$")

    vhost.delete_queue("q")
    vhost.delete_exchange("x")

    assert vhost._tees == {} and vhost._teed == {}


def test_delayed_message_goes_to_the_tee_of_its_exchange_when_its_time_has_come(vhost):
    vhost.declare_exchange("late", "x-delayed-message", arguments={"x-delayed-type": "fanout"})
    vhost.bindings.bind_queue("q", "late", "")
    tee(vhost, "^late$")

    assert routed(vhost, "late", "", {"x-delay": 1000}) == ["amq.delayed-late"]
    assert routed(vhost, "late", "", {"x-delay": -1000}) == ["log", "q"]


def test_queue_that_is_left_out_of_a_route_leaves_nothing_for_its_tee(vhost):
    """A dead letter that goes back would else be in the stream alone, and lost to its queue."""
    tee(vhost, "^(q|amq.direct)$")

    assert vhost.route(vhost.exchange("amq.direct"), "q", apart=vhost.queue("q")) == ()


def test_policy_of_an_operator_has_no_tee():
    vhost, _, _ = make_vhost()

    with pytest.raises(ValueError, match="tee-to-stream is not a recognised policy setting"):
        definition = {"tee-to-stream": "log"}
        PolicyComponent(operator=True).check(vhost, "p", {"pattern": "", "definition": definition})


# what an exchange hands on

@pytest.fixture
def onward(vhost):
    """The exchange to which amq.direct hands on; the queue far is bound to that with the key q."""
    vhost.declare_queue("far")
    vhost.bindings.bind_queue("far", "amq.topic", "q")
    vhost.set_onward(vhost.exchange("amq.direct"), vhost.exchange("amq.topic"))
    return vhost.exchange("amq.topic")


def test_what_an_exchange_gets_is_routed_by_the_one_it_hands_on_to_as_well(vhost, onward):
    assert routed(vhost, "amq.direct", "q") == ["far", "q"]
    assert routed(vhost, "amq.direct", "r") == ["r"]
    assert routed(vhost, "amq.topic", "q") == ["far"]


def test_each_queue_gets_one_copy_of_what_is_handed_on(vhost, onward):
    vhost.bindings.bind_queue("q", "amq.topic", "#")

    assert [each.name for each in vhost.route(vhost.exchange("amq.direct"), "q")].count("q") == 1


def test_alternate_gets_nothing_that_is_taken_where_its_exchange_hands_on_to(vhost, onward):
    vhost.declare_queue("unmatched")
    vhost.declare_exchange("x", "direct", arguments={"alternate-exchange": "amq.fanout"})
    vhost.bindings.bind_queue("unmatched", "amq.fanout", "")
    vhost.set_onward(vhost.exchange("x"), onward)
    remembered = Route(vhost.route_by_key(vhost.exchange("x"), "q"), vhost.exchange("x").state)

    assert routed(vhost, "x", "q") == ["far"]
    assert routed(vhost, "x", "nobody") == ["unmatched"]
    assert [queue.name for queue in vhost.route(vhost.exchange("x"), "nobody", None, ("q",))] == ["far"]
    vhost.bindings.unbind_queue("far", "amq.topic", "q")
    assert not remembered.is_current() and routed(vhost, "x", "q") == ["unmatched"]


def test_tee_of_a_queue_gets_what_came_to_it_by_being_handed_on(vhost, onward):
    tee(vhost, "^far$")

    assert routed(vhost, "amq.direct", "q") == ["far", "log", "q"]


def test_exchanges_that_hand_on_to_one_another_end(vhost, onward):
    vhost.set_onward(onward, vhost.exchange("amq.direct"))

    assert routed(vhost, "amq.topic", "q") == ["far", "q"]


def test_remembered_routes_upstream_hear_of_a_binding_of_the_exchange_that_is_handed_on_to(vhost, onward):
    vhost.bindings.bind_exchange("amq.direct", "amq.fanout", "")
    before = revisions(vhost, "amq.direct", "amq.fanout")

    vhost.bindings.bind_queue("r", "amq.topic", "q")
    between = revisions(vhost, "amq.direct", "amq.fanout")
    vhost.bindings.unbind_queue("r", "amq.topic", "q")

    after = revisions(vhost, "amq.direct", "amq.fanout")
    assert all(a < b < c for a, b, c in zip(before, between, after, strict=True))


def test_route_that_is_remembered_is_found_anew_after_a_change_of_what_is_handed_on(vhost, onward):
    source = vhost.exchange("amq.direct")
    remembered = Route(vhost.route_by_key(source, "q"), source.state)

    vhost.bindings.bind_queue("r", "amq.topic", "q")

    assert not remembered.is_current()
    assert sorted(queue.name for queue in vhost.route_by_key(source, "q")) == ["far", "q", "r"]


def test_route_that_depends_on_a_list_in_one_header_is_told_with_its_name(vhost):
    source = federated(vhost)

    found = [
        vhost.route_watching(source, "k", headers) and (
            [queue.name for queue in vhost.route_watching(source, "k", headers)[0]],
            vhost.route_watching(source, "k", headers)[1])
        for headers in (None, {RECEIVED_FROM: [{"cluster-name": "there"}]}, {RECEIVED_FROM: [{}]})]

    assert found == [(["q"], RECEIVED_FROM), ([], RECEIVED_FROM), (["q"], RECEIVED_FROM)]
    assert vhost.route_by_key(source, "k") is None
    assert vhost.route_watching(vhost.exchange("amq.direct"), "k") == ((), None)


def test_no_route_is_remembered_where_one_exchange_on_the_way_looks_at_more_than_that_list(vhost):
    source = federated(vhost)
    vhost.bindings.bind_exchange("amq.match", "x", "", {"a": 1})

    assert vhost.route_watching(source, "k") is None


@pytest.mark.parametrize("kind", ["direct", "fanout", "topic"])
def test_routes_of_what_is_delayed_and_of_what_is_not_are_found_together(vhost, kind):
    vhost.declare_exchange("x", "fanout")
    vhost.declare_exchange("later", "x-delayed-message", arguments={"x-delayed-type": kind})
    vhost.bindings.bind_exchange("later", "x", "")
    vhost.bindings.bind_queue("q", "later", "k")

    at_once, delayed = vhost.route_by_delay(vhost.exchange("x"), "k")

    assert [queue.name for queue in at_once] == ["q"]
    assert [queue.name for queue in delayed] == ["amq.delayed-later"]
    assert vhost.route_watching(vhost.exchange("x"), "k") is None


@pytest.mark.parametrize("kind, behind", [("headers", None), ("fanout", "amq.match")])
def test_no_route_of_what_is_delayed_is_remembered_where_other_headers_count(vhost, kind, behind):
    vhost.declare_exchange("later", "x-delayed-message", arguments={"x-delayed-type": kind})
    vhost.bindings.bind_queue("q", "later", "k")
    if behind is not None:
        vhost.bindings.bind_exchange(behind, "later", "k")

    assert vhost.route_by_delay(vhost.exchange("later"), "k") is None


def federated(vhost):
    """An exchange that leads to the queue "q" over another one for a broker downstream."""
    vhost.declare_exchange("x", "fanout")
    vhost.declare_exchange("between", "x-federation-upstream", arguments={
        "x-max-hops": 2, "x-downstream-name": "there"})
    vhost.bindings.bind_queue("q", "between", "")
    vhost.bindings.bind_exchange("between", "x", "")
    return vhost.exchange("x")


def test_no_route_is_remembered_where_what_is_handed_on_is_routed_by_headers(vhost):
    vhost.set_onward(vhost.exchange("amq.direct"), vhost.exchange("amq.headers"))

    assert vhost.route_by_key(vhost.exchange("amq.direct"), "q") is None


@pytest.mark.parametrize("other", [None, "amq.fanout"])
def test_handing_on_can_be_changed_and_ended(vhost, onward, other):
    source = vhost.exchange("amq.direct")
    before = source.state.revision

    vhost.set_onward(source, None if other is None else vhost.exchange(other))

    assert routed(vhost, "amq.direct", "q") == ["q"]
    assert source.state.revision > before
    assert onward not in vhost._onward_of


@pytest.mark.parametrize("gone", ["from", "to"])
def test_exchange_that_is_deleted_hands_on_nothing_and_is_handed_nothing(vhost, gone):
    for name in ("from", "to"):
        vhost.declare_exchange(name, "fanout")
    vhost.bindings.bind_queue("q", "to", "")
    source = vhost.exchange("from")
    vhost.set_onward(source, vhost.exchange("to"))

    vhost.delete_exchange(gone)

    assert vhost._onward_of == {} and source.onward is None
    assert vhost.route(source, "any") == ()


def test_destinations_come_in_the_order_of_their_bindings_and_keys():
    """Not in that of their addresses, in which a set has them, or no two runs would do the same."""
    vhost, _, _ = make_vhost()
    names = [f"q{number * 7 % 20}" for number in range(20)]
    for name in names:
        vhost.declare_queue(name)
        vhost.bindings.bind_queue(name, "amq.fanout", "")
        vhost.bindings.bind_queue(name, "amq.direct", "a")

    routes = [vhost.route(vhost.exchange(exchange), key, more_keys=keys) for exchange, key, *keys in (
        ("amq.fanout", ""), ("amq.direct", "a"), ("", *names))]

    assert [[queue.name for queue in route] for route in routes] == [names] * 3
