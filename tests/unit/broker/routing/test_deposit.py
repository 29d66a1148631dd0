"""A message given to each destination of a route: what the lane hears of it."""
import pytest

from gomq_py.broker.exchanges.state import ExchangeState
from gomq_py.broker.routing.deposit import to_all
from gomq_py.broker.routing.destination import LATER, Destination
from gomq_py.broker.routing.route import Route
from tests.support.queues import message

ALL, SOME_REFUSED = 0, 1


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
