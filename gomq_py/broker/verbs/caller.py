"""Caller: who asks for a verb. Doors make one for a channel or a request, and give it to each verb.

Never decides anything itself.
"""


class Caller:
    """A user in ``vhost``; ``access`` says what it may do there.

    ``owner`` stands for the connection that exclusive queues belong to, or is None. ``connection_name`` and
    ``channel_number`` are how traces tell of it.
    """

    __slots__ = ("access", "vhost", "owner", "connection_name", "channel_number")

    def __init__(self, access, vhost, owner, connection_name, channel_number):
        self.access = access
        self.vhost = vhost
        self.owner = owner
        self.connection_name = connection_name
        self.channel_number = channel_number
