"""Withdrawals: cancels consumers whose user may not read their queue or stream any more.

Costs nothing per message. When a user's rights change, or a token becomes narrower, the consumers of the
user's connections are checked once, in slices. RabbitMQ does not cancel such consumers.
"""
from gomq_py.amqp.server.login import DOOR
from gomq_py.broker.verbs import queues
from gomq_py.errors import NoPermission
from gomq_py.hub.scheduler import Job, SliceClock


class Withdrawals(Job):
    """Checks the consumers of users whose rights have changed. ``clients``: all connections (hub.clients)."""

    name = "looking for consumers that may not read any more"

    def __init__(self, clients, scheduler):
        super().__init__()
        self._clients = clients
        self._scheduler = scheduler
        self._identities = {}  # identities of users whose rights have changed, as keys
        self._round = None
        self._clock = SliceClock()

    def begin(self, user):
        """Check all consumers of a User whose rights have changed, or whose token has become narrower."""
        if self._clients.count_of_user(user.identity):
            self._identities[user.identity] = None
            self._scheduler.start(self)

    def step(self):
        """Check consumers for a slice of time. Returns False when all are checked."""
        self._clock.begin()
        while self._round is not None or self._identities:
            if self._round is None:
                identity = next(iter(self._identities))
                del self._identities[identity]
                self._round = self._look(self._clients.of_user(identity))
            for _ in self._round:
                if self._clock.is_over():
                    return True
            self._round = None
        return False

    def failed(self, error):
        """Stop checking the user whose check failed. Returns True if other users are to be checked."""
        self._round = None
        return bool(self._identities)

    @staticmethod
    def _look(connections):
        """Check the consumers of these connections, one at each step of this generator."""
        for connection in connections:
            if connection.door == DOOR:
                for channel in list(connection.channels.values()):
                    for consumer in list(channel.consumers.values()):
                        if channel.consumers.get(consumer.tag) is consumer:
                            _check(connection, channel, consumer)
                        yield
            yield


def _check(connection, channel, consumer):
    """Cancel the consumer if its user may not read the queue. Closes the channel instead if the client does
    not support cancellation by the broker.
    """
    source = consumer.source
    try:
        queues.check_still_takes(channel.caller, source.name)
    except NoPermission as error:
        if not connection.capabilities.get("consumer_cancel_notify"):
            connection.fail_channel(channel, error)
            return
        source.remove_consumer(consumer)
        consumer.cancel(error.text)
