"""What tests of a whole broker share; ``broker`` is each module's own."""
import uuid

import pika
import pytest

from gomq_py.dispatcher import Dispatcher
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


@pytest.fixture
def queue():
    """A name of this test's own."""
    return f"q{uuid.uuid4().hex[:8]}"


@pytest.fixture
def app(shared_broker, queue):
    """A Dispatcher that sends tasks to a queue of this test's own."""
    app = Dispatcher(shared_broker.amqp_url, queue=queue, exchange=f"{queue}.x")
    yield app
    app.close(0)
