"""Default exchange: the routing key is a queue's name. It has no bindings and takes none.

Queues that hold the state of clients (MQTT sessions) are not reachable by name: they get only what their
clients subscribe to.
"""
from gomq_py.broker.exchanges.direct import DirectExchange
from gomq_py.broker.exchanges.exchange import Exchange


class DefaultExchange(Exchange):
    """Looks into the vhost's ``queues``, then into ``sinks``: destinations such as direct reply-to."""

    type = DirectExchange.type

    def __init__(self, vhost, queues, sinks):
        super().__init__("", vhost, durable=True)
        self.predeclared = True
        self._queues = queues
        self._sinks = sinks

    def match(self, routing_key, headers, targets):
        queue = self._queues.get(routing_key)
        destination = queue if queue is not None else self._sinks.get(routing_key)
        if destination is not None and (queue is None or not queue.is_state):
            targets[destination] = None
