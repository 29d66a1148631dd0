"""A route is current until its exchange or its permission changes; each destination has each message."""
import pytest

from gomq_py.broker.routing.route import LATER, Destination, ExchangeState, Route, to_all
from tests.support.queues import message

ALL, SOME_REFUSED = 0, 1


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


def test_a_bare_destination_refuses_and_has_nothing_to_do():
    destination = Destination("nowhere")

    assert destination.publish(message()) == 0
    assert destination.write_out() is None and destination.turn() == 0


class Answering(Destination):
    """Answers as told, and notes that it was asked."""

    def __init__(self, answer, asked):
        super().__init__(f"answers {answer}")
        self.answer = answer
        self.asked = asked

    def publish(self, message):
        self.asked.append(message.get_body())
        return self.answer


def deposited(*answers):
    """(what to_all says, how many destinations had the message)."""
    asked = []
    route = Route([Answering(answer, asked) for answer in answers], ExchangeState())
    said = to_all(message(b"body"), route)
    assert asked == [b"body"] * len(asked)
    return said, len(asked)


@pytest.mark.parametrize("answers, said", [
    ((), ALL), ((1,), ALL), ((1, 1, 1), ALL), ((0,), SOME_REFUSED), ((1, 0, 1), SOME_REFUSED),
    ((0, 0), SOME_REFUSED),
])
def test_each_destination_has_the_message_whoever_refuses_it(answers, said):
    assert deposited(*answers) == (said, len(answers))


@pytest.mark.parametrize("answers, number, refused", [
    ((LATER,), 1, 0), ((1, 1, LATER, 1), 3, 0), ((0, LATER, LATER), 2, 1), ((1, 0, 1, LATER), 4, 1),
])
def test_one_that_takes_it_later_ends_the_deposit_and_is_named(answers, number, refused):
    said, asked = deposited(*answers)

    assert said > SOME_REFUSED and (said >> 1, said & 1) == (number, refused)
    assert asked == number


def test_all_numbers_start_at_nought_and_hold_64_bits():
    state = ExchangeState()
    assert (state.revision, state.publish_in, state.publish_out, state.unroutable) == (0, 0, 0, 0)

    state.revision = 2 ** 64 - 1

    assert state.revision == 2 ** 64 - 1
