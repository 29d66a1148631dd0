"""Caller: user, vhost and connection of a verb's call. Doors make one per channel or request."""


class Caller:
    """A user in ``vhost``; ``access`` has the user's rights there.

    ``owner`` stands for the connection that owns exclusive queues, or is None. Traces show
    ``connection_name`` and ``channel_number``.
    """

    __slots__ = ("access", "vhost", "owner", "connection_name", "channel_number")

    def __init__(self, access, vhost, owner, connection_name, channel_number):
        self.access = access
        self.vhost = vhost
        self.owner = owner
        self.connection_name = connection_name
        self.channel_number = channel_number
