"""Task queues at a broker, for tests: each server has an exchange and a queue of its own."""

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
