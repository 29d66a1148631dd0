"""Trial: bounded, whatever is bound, and the same as what a publish would find."""
from gomq_py.broker.exchanges.fanout import FanoutExchange
from gomq_py.broker.exchanges.topic import TopicExchange
from gomq_py.broker.routing.route import Destination
from gomq_py.broker.routing.routing import Routing
from gomq_py.broker.routing.trial import STEPS_MAX, try_out
from gomq_py.broker.topology.bindings import Binding


def bindings_to(destination):
    return ()


def fan(count):
    exchange = FanoutExchange("all", "/")
    for number in range(count):
        exchange.bind(Binding(exchange, Destination(f"d{number}"), ""))
    return exchange


def test_a_trial_tells_a_bounded_number_of_steps():
    found = try_out(Routing(bindings_to), fan(STEPS_MAX + 1), ("k",), None, 0)

    assert (len(found.steps), found.is_whole) == (STEPS_MAX, False)
    assert try_out(Routing(bindings_to), fan(STEPS_MAX), ("k",), None, 0).is_whole


def test_a_trial_finds_what_a_publish_would_and_goes_in_no_circles():
    routing = Routing(bindings_to)
    one, two = TopicExchange("one", "/"), TopicExchange("two", "/")
    ends = [Destination(f"d{number}") for number in range(3)]
    for source, destination, key in (
        (one, two, "a.*"), (two, one, "#"), (one, ends[0], "b.*"), (two, ends[1], "a.b"),
        (two, ends[2], "b.#"),
    ):
        source.bind(Binding(source, destination, key))

    for key in ("a.b", "b.b", "c", ""):
        found = try_out(routing, one, (key,), None, 0)
        assert set(found.destinations) == set(routing.route(one, key))


def test_a_binding_is_tried_with_all_keys_of_a_message_at_once(monkeypatch):
    """CC has as many as a thousand keys: an exchange for each held everybody up 10 ms per binding."""
    made = []
    exchange, end = TopicExchange("one", "/"), Destination("d")
    for key in ("last", "other.1", "other.2"):
        exchange.bind(Binding(exchange, end, key))
    init = TopicExchange.__init__
    monkeypatch.setattr(
        TopicExchange, "__init__",
        lambda self, *args, **given: (made.append(1), init(self, *args, **given))[1])

    keys = (*(f"k{number}" for number in range(1000)), "last")
    found = try_out(Routing(bindings_to), exchange, keys, None, 0)

    assert [step.binding.routing_key for step in found.steps] == ["last"]
    assert len(made) == 3


def test_an_alternate_is_no_step_where_the_exchange_hands_on_to_one_that_takes_the_message():
    routing = Routing(bindings_to)
    one, mqtt, spare = TopicExchange("one", "/"), TopicExchange("mqtt", "/"), FanoutExchange("spare", "/")
    subscriber, rest = Destination("subscriber"), Destination("rest")
    for source, destination, key in ((mqtt, subscriber, "a"), (spare, rest, "")):
        source.bind(Binding(source, destination, key))
    routing.exchanges = {each.name: each for each in (one, mqtt, spare)}
    one.alternate = "spare"
    routing.set_onward(one, mqtt)

    for key, expected in (("a", subscriber), ("b", rest)):
        assert try_out(routing, one, (key,), None, 0).destinations == [expected]
        assert routing.route(one, key) == (expected,)
