"""A route is current until its exchange or its permission changes."""
import pytest

from gomq_py.broker.exchanges.state import ExchangeState
from gomq_py.broker.routing.destination import Destination
from gomq_py.broker.routing.route import Route


@pytest.fixture
def exchange():
    return ExchangeState()


def test_a_new_route_is_current(exchange):
    assert Route([], exchange).is_current()
    assert Route([], exchange, ExchangeState()).is_current()


@pytest.mark.parametrize("what", [0, 1], ids=["exchange", "permission"])
def test_a_route_is_stale_once_either_revision_moved(exchange, what):
    states = (exchange, ExchangeState())
    route = Route([], *states)

    states[what].revision += 1

    assert not route.is_current() and Route([], *states).is_current()


def test_a_route_is_durable_when_one_of_its_queues_is(exchange):
    durable, transient = Destination("d", durable=True), Destination("t")

    assert Route([transient, durable], exchange).durable
    assert not Route([transient], exchange).durable and not Route([], exchange).durable
    assert Route([transient, durable], exchange).queues == (transient, durable)


def test_a_message_counts_at_the_exchange_once_and_as_often_as_it_has_queues(exchange):
    Route([Destination("a"), Destination("b")], exchange).count()
    Route([], exchange).count()

    assert (exchange.publish_in, exchange.publish_out, exchange.unroutable) == (2, 2, 1)
