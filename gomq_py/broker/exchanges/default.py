"""Default exchange: the routing key is a queue's name. It has no bindings of its own and takes none.

Queues that are the state of somebody's clients are not reached by their names: what they get is what their
clients have asked for.
"""
from gomq_py.broker.exchanges.direct import DirectExchange
from gomq_py.broker.exchanges.exchange import Exchange


class DefaultExchange(Exchange):
    """Looks into the vhost's own ``queues``, and then into ``sinks``: destinations without a queue, such as
    direct reply-to.
    """

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
