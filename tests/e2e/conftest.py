"""What tests of a whole broker share; ``broker`` is each module's own."""
import pika
import pytest

from tests.support.broker_process import BrokerProcess


@pytest.fixture
def channel(broker):
    """An AMQP channel of a client nobody here wrote."""
    connection = pika.BlockingConnection(pika.URLParameters(broker.amqp_url))
    yield connection.channel()
    connection.close()


@pytest.fixture(scope="module")
def module_broker(tmp_path_factory):
    """A broker for all tests of a module, which clear away what they use."""
    with BrokerProcess(tmp_path_factory.mktemp("module") / "data") as process:
        yield process
