"""An AMQP client with a delayed exchange of its own, which it deletes now and then and declares again: what
waits there is gone with it.
"""
from gomq_py.amqp.wire import methods
from gomq_py.content.properties import Properties
from tests.simulation.amqp_channel import DELAYS_MS, OF_CONSUMERS
from tests.simulation.amqp_owners import OwnerClient, PatientChannel
from tests.simulation.clock import CLOCK
from tests.simulation.queue_ledger import QueueLedger

SHARE = 0.1


class DelayedLedger(QueueLedger):
    """Of a queue to which a delayed exchange leads."""

    def __init__(self, world, name, book):
        super().__init__(world, name, book)
        self._doubted = 0  # numbers below it were published before the exchange was to be deleted
        self._gone = set()  # numbers that waited in one that is deleted

    def is_to_go(self, source):
        """The exchange is to be deleted, over this source. Returns what to call when it is."""
        self._doubted = below = len(self.book.messages)

        def gone():
            now_s = self.world.now_s
            waited = {
                message.number for message in self.book.messages[:below]
                if message.source is source and message.published_s + message.delay_s > now_s}
            self.exercised["gone with its exchange"] += len(waited)
            if not CLOCK.jumps:
                self._gone |= waited

        return gone

    def may_drop(self, message, ttl_s=None):
        return message.number < self._doubted or super().may_drop(message, ttl_s)

    def deliver(self, message, copy, redelivered, hand):
        if message.number in self._gone and not CLOCK.jumps:
            self.find(f"{copy} came, and waited in an exchange that was deleted")
        super().deliver(message, copy, redelivered, hand)


class DelayingChannel(PatientChannel):
    """Publishes to its queue by the exchange, and consumes from it."""

    def __init__(self, client, number, ledger, actions):
        self._exchange = f"{ledger.name}-delays"
        super().__init__(client, number, ledger, ledger, False, True, actions)
        self._actions["delete_exchange"] = 1, DelayingChannel._delete_exchange

    def _declare_queue(self, ledger):
        super()._declare_queue(ledger)
        self._declare_exchange()

    def _declare_exchange(self):
        self._ask(methods.ExchangeDeclare(
            exchange=self._exchange, type="x-delayed-message", durable=True,
            arguments={"x-delayed-type": "direct"}), methods.ExchangeDeclareOk)
        name = self._publishes.name
        self._ask(methods.QueueBind(
            queue=name, exchange=self._exchange, routing_key=name), methods.QueueBindOk)

    def _publish_one(self):
        delay_ms = self._random.choice(DELAYS_MS)
        publish = methods.BasicPublish(exchange=self._exchange, routing_key=self._publishes.name)
        properties = Properties(delivery_mode=2, headers={"x-delay": delay_ms})
        self._send_message([self._publishes], publish, properties, {"delay_s": delay_ms / 1000})

    def _cancelled_by_broker(self, method, _properties, _body):
        """A fault of the disk has closed the queue; the consumer begins anew in the calm."""
        self._say("has no consumer any more")
        self._consuming.pop(method.consumer_tag, None)

    HANDLERS = PatientChannel.HANDLERS | {methods.BasicCancel: _cancelled_by_broker}

    def _delete_exchange(self):
        self._say("deletes its exchange")
        gone = self._publishes.is_to_go(self._source)
        self._ask(
            methods.ExchangeDelete(exchange=self._exchange), methods.ExchangeDeleteOk, lambda _method: gone())
        self._declare_exchange()


def delaying_clients(world, network, book, left):
    """Those of a seed that has them, or none."""
    random = world.random("delays")
    if not left(["d0"], random.random() < SHARE):
        return []
    ledger = DelayedLedger(world, "d0", book)
    actions = random.sample(OF_CONSUMERS, random.randrange(4))
    return [OwnerClient(world, network, "delaying", book, [
        (DelayingChannel, ledger, [*actions, "publish", "ack_multiple"])])]
