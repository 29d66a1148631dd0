"""Direct exchange: routes by equal keys. Default exchange: routes to the queue that the routing key names."""
from gomq_py.broker.exchanges.exchange import Exchange


class DirectExchange(Exchange):
    """Finds destinations by one dictionary look-up of the routing key; each gets a message only once."""

    type = "direct"

    def __init__(self, *args, **options):
        super().__init__(*args, **options)
        self._by_key = {}

    def match(self, routing_key, headers, targets):
        destinations = self._by_key.get(routing_key)
        if destinations is not None:
            targets.update(destinations)

    def _added(self, binding):
        destinations = self._by_key.setdefault(binding.routing_key, {})
        destinations[binding.destination] = destinations.get(binding.destination, 0) + 1

    def _removed(self, binding):
        destinations = self._by_key[binding.routing_key]
        destinations[binding.destination] -= 1
        if not destinations[binding.destination]:
            del destinations[binding.destination]
            if not destinations:
                del self._by_key[binding.routing_key]


class DefaultExchange(Exchange):
    """Routes to the queue of the vhost that the routing key names, or to another Destination such as direct
    reply-to. Has no bindings and accepts none. MQTT sessions cannot be reached by name.
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
