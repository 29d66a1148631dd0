"""What tests of a whole broker share; ``broker`` is each module's own."""
import pika
import pytest


@pytest.fixture
def channel(broker):
    """An AMQP channel of a client nobody here wrote."""
    connection = pika.BlockingConnection(pika.URLParameters(broker.amqp_url))
    yield connection.channel()
    connection.close()
