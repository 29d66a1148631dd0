"""Caller: the user, vhost and connection of a request. Each AMQP channel and HTTP request has one."""


class Caller:
    """A user acting in ``vhost``; ``access`` (an Access) checks the user's rights there. ``owner``: the
    object that stands for the connection as owner of exclusive queues, or None. ``connection_name`` and
    ``channel_number`` are shown in traces.
    """

    __slots__ = ("access", "vhost", "owner", "connection_name", "channel_number")

    def __init__(self, access, vhost, owner, connection_name, channel_number):
        self.access = access
        self.vhost = vhost
        self.owner = owner
        self.connection_name = connection_name
        self.channel_number = channel_number
