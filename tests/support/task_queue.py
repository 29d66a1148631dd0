"""Task queues at a broker, for tests: each server has an exchange and a queue of its own."""

from gomq_py.client.connection import Connection
from gomq_py.dispatcher import InitQueue, Server, ServerConfig


def server_of(broker, queue, arguments=None):
    """A connected Server, to be closed: tasks go to ``queue``, by the exchange ``<queue>.x``."""
    return Server(
        ServerConfig(
            broker.amqp_url,
            exchange=queue + ".x",
            default_routing_key=queue,
            init_queues=[InitQueue(queue, [queue], arguments or {})],
        )
    )


def cleared(broker, *queues):
    """The broker, without these queues and their dead letters: for tests that share one, and names."""
    with Connection(broker.amqp_url) as connection, connection.channel() as channel:
        for queue in queues:
            for name in (queue, f"{queue}.dead"):
                channel.queue_delete(name)
    return broker
