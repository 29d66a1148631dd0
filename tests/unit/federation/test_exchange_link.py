"""Exchange link: what the answer to its declare says of the broker upstream."""
import pytest

from gomq_py.client.errors import ChannelClosed, ConnectionClosed
from gomq_py.federation.exchange_link import lacks_type


@pytest.mark.parametrize(("error", "lacks"), [
    (ConnectionClosed(503, "COMMAND_INVALID - unknown exchange type 'x-federation-upstream'", 40, 10), True),
    (ChannelClosed(406, "PRECONDITION_FAILED - unknown exchange type 'x-federation-upstream'", 40, 10), True),
    (ChannelClosed(406, "PRECONDITION_FAILED - invalid exchange type 'x-federation-upstream'", 40, 10), True),
    (ChannelClosed(406, "PRECONDITION_FAILED - inequivalent arg 'type' for exchange 'x'", 40, 10), False),
    (ChannelClosed(403, "ACCESS_REFUSED - access to exchange 'x' refused", 40, 10), False),
])
def test_broker_that_does_not_know_the_type_says_so_by_503_or_since_rabbitmq_43_by_406(error, lacks):
    assert lacks_type(error) is lacks
