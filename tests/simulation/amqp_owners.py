"""AMQP clients with queues that end with them: exclusive ones, some of which the broker names, and ones that
are deleted with their last consumer; and what takes messages away from a queue, queue.purge and queue.delete.

A queue has lives: what was in an earlier one is gone, and never comes.
"""
from gomq_py.amqp.wire import methods
from tests.simulation.amqp_channel import OF_CONSUMERS, OF_PUBLISHERS, Channel
from tests.simulation.amqp_clients import AMQPClient
from tests.simulation.queue_ledger import QueueLedger

SHARE = 0.2
LOOK_S = 0.01  # between two looks whether the broker has seen the end of a connection
KINDS = ("exclusive", "exclusive", "named", "auto-delete")


class OwnerClient(AMQPClient):
    """One that is told of the end of a queue that it consumes from."""

    properties = {"capabilities": {"consumer_cancel_notify": True}}


class OwnedLedger(QueueLedger):
    """Of a queue of one channel. ``kind``: of KINDS."""

    def __init__(self, world, name, book, kind):
        super().__init__(world, name, book)
        self.kind = kind
        self.names = set()  # those that the broker has made
        self._born = 0  # numbers below it are of an earlier life

    def end(self, is_sure):
        """Its life ends, or may."""
        self.exercised["lives"] += 1
        self._waiting.clear()
        self._finished.update(range(len(self.book.messages)))
        if is_sure:
            self._born = len(self.book.messages)

    def purged(self, below, kept):
        """Of the numbers below that only those are left that were in hand, whether they were confirmed yet or
        not.
        """
        self.exercised["purged"] += 1
        for message in self.book.messages[:below]:
            if self in message.queues and message.number not in kept:
                self.finish(message.number)

    def deliver(self, message, copy, redelivered, hand):
        if message.number < self._born:
            self.find(f"{copy} came, and its queue was gone")
        super().deliver(message, copy, redelivered, hand)


class PatientChannel(Channel):
    """Is opened again when the broker knows that its last connection has ended, and has done what was asked
    there.
    """

    _left = None  # the End of that connection until then

    def lose(self):
        if self._end is not None:
            self._left, self._end = self._end, None
        super().lose()

    def open(self, end):
        if self._left is not None and not self._left.peer.is_closed:
            self._client.waits()
            self._client.world.after(LOOK_S, self._open_later, end)
        else:
            self._left = None
            super().open(end)

    def _open_later(self, end):
        if self._client.is_connected_by(end):
            self.open(end)

    def is_idle(self):
        return self._left is None and super().is_idle()


class Owner(PatientChannel):
    """Publishes to a queue of its own, and consumes from it."""

    def __init__(self, client, number, ledger, has_consumer, actions):
        self._untold = set()  # tags of consumers whose queue is deleted
        super().__init__(client, number, ledger, ledger, False, has_consumer, actions)
        self._actions |= OWN_ACTIONS
        if ledger.kind == "auto-delete":
            self._actions.pop("cancel", None)  # it would be the end of the queue

    def lose(self):
        """Its queue ends with the connection, or with its consumer if there was one."""
        if self._end is not None:
            self._publishes.end(self._publishes.kind != "auto-delete" or self._is_consuming)
        super().lose()

    def shut(self):
        super().shut()
        self._is_consuming = False  # it was answered
        self._purged = 0  # numbers below it were in the queue, or in hand, when it was purged

    def _close(self):
        # Its consumer is answered before its end is, though it may not be yet.
        ends = self._publishes.kind == "auto-delete" and self._consuming
        super()._close()
        if ends:
            _, then = self._asked[-1]

            def closed(method):
                self._publishes.end(True)
                then(method)

            self._asked[-1] = methods.ChannelCloseOk, closed

    # what it asks

    def _declare_queue(self, ledger):
        is_named = ledger.kind == "named"

        def declared(answer):
            if is_named:
                if answer.queue in ledger.names:
                    ledger.find(f"{answer.queue} is the name of another queue")
                ledger.names.add(answer.queue)
                ledger.name = answer.queue
                ledger.end(True)  # of the one before, which is left alone

        self._ask(methods.QueueDeclare(
            queue="" if is_named else ledger.name, exclusive=ledger.kind != "auto-delete",
            auto_delete=ledger.kind == "auto-delete"), methods.QueueDeclareOk, declared)

    def _begin_to_consume(self, method):
        super()._begin_to_consume(method)
        self._ask(methods.ChannelFlow(active=True), methods.ChannelFlowOk, self._consumes_now)

    def _consumes_now(self, _method):
        self._is_consuming = bool(self._consuming)

    def _purge(self):
        below, before = len(self._book.messages), {copy.number for copy in self._hand.held}
        hand, taken = self._hand, self._hand.purge()

        def purged(_method):
            taken()
            if hand is self._hand and not hand.is_left:
                self._purged = below
                self._consumes.purged(below, before | {copy.number for copy in hand.held})
            else:
                self._consumes.purged(below, ())

        self._say("purges")
        self._ask(methods.QueuePurge(queue=self._consumes.name), methods.QueuePurgeOk, purged)

    def _delete(self):
        """And begin anew, with another channel. The broker tells consumers of the end of their queue."""
        self._untold = set(self._consuming) - self._cancelled

        def deleted(_method):
            self._say("has delete-ok")
            self._publishes.end(True)

        def told(_method):
            self._publishes.exercised["told of a deletion"] += 1
            if self._untold:
                self._publishes.find(f"was deleted, and nobody told {sorted(self._untold)}")

        self._say("deletes its queue")
        self._ask(methods.QueueDelete(queue=self._publishes.name), methods.QueueDeleteOk, deleted)
        self._ask(methods.ChannelFlow(active=True), methods.ChannelFlowOk, told)
        self._close()

    # what it is told

    def _cancelled_by_broker(self, method, _properties, _body):
        if method.consumer_tag not in self._untold:
            self._publishes.find(f"{method.consumer_tag} was cancelled, and its queue was not deleted")
        self._untold.discard(method.consumer_tag)

    def _delivered(self, method, properties, body):
        message = self._book.message_of(body)
        if message is not None and self._is_open and not self._is_busy:
            if message.number < self._purged and not method.redelivered:
                self._consumes.find(f"{message.number} came behind purge-ok")
        super()._delivered(method, properties, body)

    HANDLERS = Channel.HANDLERS | {
        methods.BasicDeliver: _delivered, methods.BasicCancel: _cancelled_by_broker}


OWN_ACTIONS = {"purge": (1, Owner._purge), "delete": (0.5, Owner._delete)}


def owners(world, network, book, left):
    """Clients of a seed that has them, or none."""
    random = world.random("owners")
    if not left(["k0"], random.random() < SHARE):
        return []
    ledger = OwnedLedger(world, "k0", book, random.choice(KINDS))
    actions = random.sample(sorted({*OF_CONSUMERS, *OF_PUBLISHERS}), random.randrange(6))
    world.say(ledger.name, ledger.kind)
    has_consumer = ledger.kind == "auto-delete" or random.random() < 0.7
    return [OwnerClient(world, network, "owner", book, [
        (Owner, ledger, has_consumer, [*actions, "publish", "ack_multiple", "get"])])]
