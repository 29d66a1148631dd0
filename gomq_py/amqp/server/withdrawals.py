"""Withdrawals: consumers whose user may not read their queue or stream any more get nothing further from it.

Beside the server. A message costs nothing for that: a change of a user's rights, or a narrower token, has the
consumers of its connections looked at once, in slices. RabbitMQ leaves such consumers alone.
"""
from gomq_py.amqp.server.login import DOOR
from gomq_py.broker.verbs import queues
from gomq_py.errors import NoPermission
from gomq_py.hub.job import Job
from gomq_py.hub.slice_clock import SliceClock


class Withdrawals(Job):
    """Those of the connections of ``clients`` (hub.clients), in ``scheduler``. Clients of this process are
    looked after by amqp.server.local.
    """

    name = "looking for consumers that may not read any more"

    def __init__(self, clients, scheduler):
        super().__init__()
        self._clients = clients
        self._scheduler = scheduler
        self._identities = {}  # of users whose rights have changed, as keys
        self._round = None
        self._clock = SliceClock()

    def begin(self, user):
        """The rights of this User have changed, or those of one connection of its identity."""
        if self._clients.count_of_user(user.identity):
            self._identities[user.identity] = None
            self._scheduler.start(self)

    def step(self):
        """Look at some."""
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
        """The round is over, of which the rest is not known; those of other users go on."""
        self._round = None
        return bool(self._identities)

    @staticmethod
    def _look(connections):
        """A generator that looks at one consumer after the other."""
        for connection in connections:
            if connection.door == DOOR:
                for channel in list(connection.channels.values()):
                    for consumer in list(channel.consumers.values()):
                        if channel.consumers.get(consumer.tag) is consumer:
                            _check(connection, channel, consumer)
                        yield
            yield


def _check(connection, channel, consumer):
    """Cancel it as if its queue were gone where its user may not read that; a client that does not know of
    such cancels loses the channel.
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
