"""The numbers of an exchange that the fast lane counts."""
from gomq_py.broker.exchanges.state import ExchangeState


def test_all_numbers_start_at_nought_and_hold_64_bits():
    state = ExchangeState()
    assert (state.revision, state.publish_in, state.publish_out, state.unroutable) == (0, 0, 0, 0)

    state.revision = 2 ** 64 - 1

    assert state.revision == 2 ** 64 - 1
