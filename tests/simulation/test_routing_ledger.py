"""The judge of exchanges: each promise that is broken by hand is found; what is under way may be either."""
import pytest

from tests.simulation.book import Book
from tests.simulation.routing_ledger import (
    HASH, MAYBE, NO, YES, Binding, Exchange, Routed, RoutingLedger, fits, satisfies)
from tests.simulation.world import World


@pytest.fixture
def router():
    """One with an exchange of each kind, and no bindings."""
    world = World(1)
    router = RoutingLedger(world, "x", Book(world))
    router.bindings = []
    return router


def bound(router, source, destination, key="a.b", state=YES, rule=None):
    router.bindings.append(Binding(source, destination, key, rule or {}))
    router.change(router.bindings[-1], state)
    return router.bindings[-1]


def published(router, exchange, *keys, is_mandatory=False, headers=None):
    message = router.book.publish(None, [])
    message.routed = Routed(exchange, keys or ("a.b",), headers or {}, is_mandatory, router.moment)
    return message


def findings(router):
    return [finding.split(": ", 2)[2] for finding in router.world.findings]


def test_message_that_no_binding_leads_to_its_queue_is_found(router):
    source = Exchange("e", "direct")
    bound(router, source, router.queues[0])
    message = published(router, source)

    router.queues[0]._check_is_due(message, 0)
    router.queues[1]._check_is_due(message, 0)

    assert findings(router) == ["0 came, and no binding led here"]


def test_queue_has_to_have_what_leads_to_it(router):
    source = Exchange("e", "fanout")
    bound(router, source, router.queues[0])

    router.accept(published(router, source))

    assert router.queues[0].missing() == {0} and not router.queues[1].missing()


def test_binding_that_is_under_way_may_be_there_or_not(router):
    source = Exchange("e", "fanout")
    binding = bound(router, source, router.queues[0])
    message = published(router, source, is_mandatory=True)
    router.change(binding, MAYBE)
    router.change(binding, NO)

    router.queues[0]._check_is_due(message, 0)
    router.accept(message)

    assert not findings(router) and not router.queues[0].missing()


def test_binding_that_was_undone_before_leads_nowhere(router):
    source = Exchange("e", "fanout")
    binding = bound(router, source, router.queues[0])
    router.change(binding, MAYBE)
    router.change(binding, NO)

    router.queues[0]._check_is_due(published(router, source), 0)

    assert findings(router) == ["0 came, and no binding led here"]


def test_messages_go_over_other_exchanges_and_to_the_alternate(router):
    second, alternate = Exchange("second", "topic"), Exchange("x-alternate", "fanout")
    first = Exchange("first", "direct", alternate.name)
    router.exchanges = {alternate.name: alternate}
    bound(router, first, second, "a.b")
    bound(router, second, router.queues[0], "*.b")
    bound(router, alternate, router.queues[1])

    def route(*keys):
        return router.route(published(router, first, *keys).routed)

    assert route("a.b") == {router.queues[0]: YES}
    assert route("a.c") == {router.queues[1]: YES}
    assert route("a.c", "a.b") == {router.queues[0]: YES}
    router.change(router.bindings[0], MAYBE)
    assert route("a.b") == {router.queues[0]: MAYBE, router.queues[1]: MAYBE}


def test_mandatory_message_without_a_queue_that_does_not_come_back_is_found(router):
    router.accept(published(router, Exchange("e", "fanout"), is_mandatory=True))

    assert findings(router) == ["0 had no queue, and was not returned"]


def test_message_that_comes_back_and_should_not_is_found(router):
    source = Exchange("e", "fanout")
    router.returned(published(router, source))
    bound(router, source, router.queues[0])
    router.returned(published(router, source, is_mandatory=True))

    assert findings(router) == ["0 came back, and is not mandatory", "1 came back, and has a queue"]


def test_message_with_the_name_of_another_user_that_is_accepted_is_found(router):
    message = published(router, Exchange("e", "fanout"))
    message.is_open = True

    router.accept(message)

    assert findings(router) == ["0 was accepted, and has the name of another user"]


def test_message_that_a_hash_sends_nowhere_or_twice_is_found(router):
    source = Exchange("e", HASH)
    for queue in router.queues[:2]:
        bound(router, source, queue, "1")
    for _ in range(2):
        router.accept(published(router, source))

    router.queues[0]._check_is_due(router.book.messages[0], 0)
    router.queues[1]._check_is_due(router.book.messages[0], 0)

    assert "0 came from two queues, and was sent to one" in findings(router)
    assert router.missing() == {1}


def test_equal_keys_that_a_hash_sends_to_two_queues_are_found(router):
    source = Exchange("e", HASH)
    for queue in router.queues[:2]:
        bound(router, source, queue, "1")

    for queue in router.queues[:2]:
        queue._check_is_due(published(router, source), 0)

    assert findings(router) == ["1 and another one with its key came from two queues"]


@pytest.mark.parametrize("pattern, key, matches", [
    ("a.*", "a.b", True), ("a.*", "a", False), ("#", "", True), ("#.c", "b.b.c", True),
    ("*.b", "b.b.c", False)])
def test_patterns_of_topics(pattern, key, matches):
    assert fits(pattern.split("."), key.split(".")) is matches


def test_rules_of_headers():
    rule = {"x-match": "all", "h": 1, "g": "x"}

    assert satisfies({"h": 1, "g": "x"}, rule) and not satisfies({"h": 1}, rule)
    assert satisfies({"h": 1}, rule | {"x-match": "any"}) and not satisfies({"h": 1}, {"x-match": "any"})
