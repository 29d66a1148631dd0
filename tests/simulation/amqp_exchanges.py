"""AMQP clients that publish to exchanges of every kind, and one that binds and unbinds meanwhile."""
from gomq_py.amqp.wire import methods
from gomq_py.content.properties import Properties
from tests.simulation.amqp_channel import OF_CONSUMERS, OF_PUBLISHERS, Channel
from tests.simulation.amqp_clients import AMQPClient
from tests.simulation.queue_ledger import QueueLedger
from tests.simulation.routing_ledger import HASH, HEADERS, KEYS, MAYBE, NO, YES, Routed, RoutingLedger

SHARE = 0.2
COPIED_BY = ("CC", "BCC")
FORGED_SHARE = 0.01
UNBIND_SHARE = 0.3
LOOK_S = 0.01


class RoutedPublisher(Channel):
    """Publishes to the exchanges of a RoutingLedger."""

    def _declare(self, ledgers, declared):
        router = self._publishes
        for exchange in router.exchanges.values():
            self._ask(methods.ExchangeDeclare(
                exchange=exchange.name, type=exchange.kind, durable=True, arguments=exchange.arguments),
                methods.ExchangeDeclareOk)
        super()._declare(router.queues, declared)

    def _publish_one(self):
        random, router = self._random, self._publishes
        exchange = random.choice(router.open)
        headers = dict(random.choice(HEADERS))
        keys = [random.choice(KEYS)]
        copied_by = random.choice(COPIED_BY)
        if exchange.kind != HASH and random.random() < 0.2:
            keys.append(random.choice(KEYS))
            headers[copied_by] = keys[1:]
        properties = Properties(delivery_mode=2, headers=headers or None)
        is_mandatory = random.random() < 0.3
        is_forged = random.random() < FORGED_SHARE
        if is_forged:
            self._client.expects.add("user_id property set to 'nobody'")
            properties.user_id = "nobody"
        routed = Routed(exchange, tuple(keys), headers, is_mandatory, router.moment)
        self._send_message([], methods.BasicPublish(
            exchange=exchange.name, routing_key=keys[0], mandatory=is_mandatory), properties, {})
        message = self._book.messages[-1]
        message.routed = routed
        if is_forged:
            router.exercised["names of others"] += 1
            message.is_open = True

    def _accepted(self, message):
        if message.routed is None:
            super()._accepted(message)
        else:
            self._publishes.accept(message)

    def _returned(self, method, properties, body):
        super()._returned(method, properties, body)
        message = self._book.message_of(body)
        if message is not None and message.routed is not None:
            self._publishes.returned(message)

    HANDLERS = Channel.HANDLERS | {methods.BasicReturn: _returned}


class RoutedConsumer(Channel):
    """Looks at what else came with a message."""

    def _take_message(self, method, properties, body):
        if b"BCC" in properties:
            self._consumes.find("a message shows its BCC")
        return super()._take_message(method, properties, body)


class Binder(RoutedPublisher):
    """Binds and unbinds, and nobody else does."""

    _is_settled = True  # nothing is under way on a connection that was lost

    def act(self, is_calm):
        if self._is_open and self._is_settled and not self._asked and not is_calm:
            for binding in self._random.sample(self._publishes.bindings, self._random.choice((1, 1, 4))):
                if binding.moments[-1][1] != YES or self._random.random() < UNBIND_SHARE:
                    self._turn(binding, binding.moments[-1][1] != YES)
        else:
            super().act(is_calm)

    def _drain(self):
        """There is nothing to settle."""

    def _publish(self):
        """Others do."""

    def lose(self):
        if self._end is not None and self._is_settled:
            self._is_settled = False
            self._look(self._end)
        super().lose()

    def _look(self, end):
        """Until the broker has seen the end of it, it may carry out what was asked for."""
        if end.peer.is_closed:
            self._is_settled = True
        else:
            self._client.world.after(LOOK_S, self._look, end)

    def _turn(self, binding, on):
        router, destination = self._publishes, binding.destination
        state = YES if on else NO
        verb = "Bind" if on else "Unbind"
        common = {"routing_key": binding.key, "arguments": binding.arguments}
        if isinstance(destination, QueueLedger):
            kind, fields = "Queue", {"queue": destination.name, "exchange": binding.source.name}
        else:
            kind, fields = "Exchange", {"destination": destination.name, "source": binding.source.name}
        router.change(binding, MAYBE)
        self._say(
            f"{verb.lower()}s {destination.name} to {binding.source.name}, {binding.key} {binding.rule}")

        def answered(_method):
            router.exercised["bindings"] += 1
            self._say(f"has {verb.lower()}-ok")
            router.change(binding, state)

        self._ask(getattr(methods, f"{kind}{verb}")(**fields, **common),
                  getattr(methods, f"{kind}{verb}Ok"), answered)


def clients_of_exchanges(world, network, book, left):
    """(clients, ledgers) of a seed that has them, or none: who publishes, binds and consumes."""
    random = world.random("exchanges")
    if not left(["x0"], random.random() < SHARE):
        return [], []
    router = RoutingLedger(world, "x0", book)
    of_publishers = ["publish", *random.sample(OF_PUBLISHERS, random.randrange(len(OF_PUBLISHERS) + 1))]
    roles = [(Binder, router, None, False, False, ["publish"])]
    roles += [(RoutedPublisher, router, None, False, False, of_publishers)
              for _ in range(random.choice((1, 1, 2)))]
    for queue in router.queues:
        actions = random.sample(OF_CONSUMERS, random.randrange(len(OF_CONSUMERS) + 1))
        roles.append((RoutedConsumer, None, queue, False, random.random() < 0.8,
                      [*actions, "ack_multiple", "get"]))
    random.shuffle(roles)
    count = random.randrange(1, len(roles) + 1)
    clients = [
        AMQPClient(world, network, f"router-{number}", book, roles[number::count])
        for number in range(count)
    ]
    world.say(router.name, " ".join(exchange.kind for exchange in router.exchanges.values()))
    return clients, [router]
