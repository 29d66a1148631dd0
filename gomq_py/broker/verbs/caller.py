"""Caller: tells a verb its user, vhost and connection. Doors make a Caller for a channel or request."""


class Caller:
    """Stands for a user in ``vhost``; ``access`` has the user's rights there.

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
