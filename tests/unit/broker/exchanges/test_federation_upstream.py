"""Federation upstream exchange: what goes on to a broker downstream, as RabbitMQ's plugin decides it."""
import pytest

from gomq_py.broker.exchanges.federation_upstream import has_passed, should_forward
from gomq_py.errors import PreconditionFailed
from tests.support.model import make_vhost

ME, OTHER = ("here", "/"), ("there", "/")


def been(*brokers):
    """Headers of a message that has been at these (name, vhost), the last one first."""
    return {"x-received-from": [{"cluster-name": name, "vhost": vhost} for name, vhost in brokers]}


@pytest.mark.parametrize("headers, max_hops, forwarded", [
    (None, 1, True), ({}, 1, True), ({"h": 1}, 1, True), ({"x-received-from": "text"}, 1, True),
    (been(OTHER), 1, False), (been(OTHER), 2, True), (been(OTHER, OTHER), 2, False), (been(ME), 5, False),
    (been(OTHER, ME), 5, False), (been(("here", "/other")), 5, True),
    ({"x-received-from": [{"cluster-name": "here"}]}, 5, False), ({"x-received-from": ["text", {}]}, 5, True),
])
def test_message_goes_on_unless_it_was_there_or_has_passed_as_many_as_it_may(headers, max_hops, forwarded):
    assert should_forward(headers, max_hops, *ME) is forwarded


def test_broker_without_a_name_has_passed_nothing():
    assert not has_passed([{"cluster-name": "x"}, {}], None, None)
    assert has_passed([{"cluster-name": "x", "vhost": "any"}], "x", None)


def test_exchange_routes_to_every_queue_what_goes_on():
    vhost, _, _ = make_vhost()
    vhost.declare_exchange("x", "topic")
    vhost.declare_exchange("between", "x-federation-upstream", internal=True, auto_delete=True, arguments={
        "x-max-hops": 2, "x-downstream-name": "here", "x-downstream-vhost": "/"})
    vhost.declare_queue("q")
    vhost.bindings.bind_queue("q", "between", "whatever")
    vhost.bindings.bind_exchange("between", "x", "a.#")
    exchange = vhost.exchange("x")

    got = [
        [queue.name for queue in vhost.route(exchange, key, headers)]
        for key, headers in (("a.b", None), ("b", None), ("a", been(OTHER)), ("a", been(ME)))]

    assert got == [["q"], [], ["q"], []]
    assert vhost.route_by_key(exchange, "a.b") is None  # a route that looks at headers is not cached


@pytest.mark.parametrize("arguments, text", [
    ({}, "Argument x-max-hops missing"), ({"x-max-hops": "1"}, "Argument x-max-hops must be of type long"),
    ({"x-max-hops": -1}, "Argument x-max-hops must be of type long"),
    ({"x-max-hops": True}, "Argument x-max-hops must be of type long"),
])
def test_exchange_without_a_number_of_hops_is_refused_in_rabbitmqs_words(arguments, text):
    vhost, _, _ = make_vhost()

    with pytest.raises(PreconditionFailed, match=text):
        vhost.declare_exchange("between", "x-federation-upstream", arguments=arguments)
