"""The interface alone: a destination that is nothing else refuses."""
from gomq_py.broker.routing.destination import Destination
from tests.support.queues import message


def test_a_bare_destination_refuses_and_has_nothing_to_do():
    destination = Destination("nowhere")

    assert destination.publish(message()) == 0
    assert destination.flush() is None and destination.turn() == 0
