"""What one reader of a stream holds unsettled."""
import random

import pytest

from gomq_py.broker.queues.stream_reader import StreamFlight


def test_oldest_moves_with_settlements_in_order():
    flight = StreamFlight()
    for offset in (3, 4, 9):
        flight.add(offset, 10)

    assert flight.oldest() == 3
    assert flight.settle(3)
    assert (flight.oldest(), flight.octets, flight.count) == (4, 20, 2)


def test_settlements_out_of_order_wait_for_the_oldest():
    flight = StreamFlight()
    for offset in (3, 4, 9):
        flight.add(offset, 10)

    assert not flight.settle(9)
    assert not flight.settle(4)
    assert flight.oldest() == 3
    assert flight.settle(3)
    assert (flight.count, flight.octets) == (0, 0)


@pytest.mark.parametrize("offset", [0, 5, 100])
def test_what_is_not_in_flight_is_not_settled(offset):
    flight = StreamFlight()
    flight.settle(offset)
    flight.add(3, 1)
    flight.add(7, 1)

    assert not flight.settle(offset)
    assert flight.octets == 2


def test_settling_twice_counts_once():
    flight = StreamFlight()
    flight.add(1, 5)
    flight.add(2, 7)

    assert not flight.settle(2)
    assert not flight.settle(2)
    assert flight.octets == 5


@pytest.mark.parametrize("seed", range(5))
def test_against_a_dict(seed):
    chance = random.Random(seed)
    flight, model, offset = StreamFlight(), {}, 0
    for _ in range(3000):
        if model and chance.random() < 0.5:
            settled = chance.choice(list(model)[:20])
            was_oldest = settled == min(model)
            model.pop(settled)
            assert flight.settle(settled) == was_oldest
        else:
            offset += chance.randrange(1, 4)
            model[offset] = chance.randrange(100)
            flight.add(offset, model[offset])
        assert flight.octets == sum(model.values())
        if model:
            assert flight.oldest() == min(model)


def test_returned_message_stays_the_oldest_until_a_later_one_is_done():
    flight = StreamFlight()
    for offset in (1, 2, 3):
        flight.add(offset, 10)

    assert not flight.settle(1, False)
    assert not flight.settle(2, False)
    assert (flight.oldest(), flight.octets) == (1, 10)
    assert flight.settle(3)
    assert flight.count == 0
