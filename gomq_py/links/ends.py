"""Ends of a link: where its messages come from, where they go and when they are acknowledged, described; no
connection.

A leaf, which definitions read without the client that links bring.
"""
from typing import Any

LIMIT_PREFETCH = 65535
# After the target has confirmed it; once it has been written to the target; the source asks for no acks.
ON_CONFIRM, ON_PUBLISH, NO_ACK = ACK_MODES = ("on-confirm", "on-publish", "no-ack")


class Refused(Exception):
    """The destination does not take a message now; it may later."""


class Source:
    """A queue, or what ``prepare`` makes one of.

    ``uris``: of one broker, or of several nodes that are as good; one is chosen at random for each attempt.
    ``prepare(channel)`` declares and binds on every connection and returns the name of the queue; it may
    switch, and the end of its channel harms nothing. ``prefetch``: deliveries that may be unsettled, 0: as
    many as there can be. ``no_ack``: each delivery is settled when it is sent; what is on its way is lost
    with the link. ``offset_argument``: of what is or may be a stream, what its consumers are told to begin
    at; deliveries bear their number in a header of the same name, and a link that connects anew goes on
    behind the last settled. Other queues pass over the argument, and have such headers only where messages
    have come from a stream.
    """

    def __init__(
        self, uris, queue="", *, prepare=None, prefetch=1000, consumer_arguments=None, exclusive=False,
        consumer_tag="", no_ack=False, offset_argument="",
    ):
        if not 0 <= prefetch <= LIMIT_PREFETCH:
            raise ValueError(f"a prefetch of {prefetch} is not between 0 and {LIMIT_PREFETCH}")
        self.uris = _list(uris)
        self.queue = queue
        self.prepare = prepare
        self.prefetch = prefetch or LIMIT_PREFETCH
        self.consumer_arguments = dict(consumer_arguments or {})
        self.exclusive = exclusive
        self.consumer_tag = consumer_tag
        self.no_ack = no_ack
        self.offset_argument = offset_argument


class Target:
    """An exchange, which may be the default one.

    ``exchange``, ``routing_key``: None leaves what the message came with. ``prepare(channel)`` as a source's;
    what it returns means nothing. ``edit(properties, delivered)`` is asked once for each delivery of a
    connection, in order: it returns the Properties to publish with, or None to leave the message out; it must
    not switch. Without it properties go as they came, octet for octet. ``stamp()`` is asked once for each
    connection: (name, value, value for a redelivered message) of a header. A message that has no header of
    this name, and no user id, gets it at the full speed of the lane, instead of being shown to ``edit``. Of
    one that has the header already ``edit`` may change the headers only, by what they are and whether it is
    redelivered: that is remembered for messages with the same.

    ``queue``: the name of the queue, where the default exchange and a routing key name one for every message;
    else None. Messages that no queue takes are returned then, and stay at their source.
    """

    has_lane = True

    def __init__(self, uris, exchange=None, routing_key=None, *, prepare=None, edit=None, stamp=None):
        self.uris = _list(uris)
        self.exchange = exchange
        self.routing_key = routing_key
        self.prepare = prepare
        self.queue = routing_key if exchange == "" else None
        self.edit = edit
        self.stamp = stamp
        for name in (exchange, routing_key):
            if name is not None and len(name.encode("utf-8", "surrogateescape")) > 255:
                raise ValueError(f"{name!r} has more than 255 octets")


def _list(uris):
    uris = [uris] if isinstance(uris, str) else list(uris)
    if not uris:
        raise ValueError("a link needs a URI for each of its ends")
    return uris


class Gone:
    """In the place of a passage that has ended, for what still calls it: a slice of the transfer that was
    asked for before, a greenlet that is being killed. Takes nothing and hears nothing.

    The ends of a passage let go of it by this. So neither holds the other, and what they keep goes with the
    last who needs it: a process of the broker's own may freeze what the cycle collector would find
    (observability.garbage), and each passage keeps up to some megabytes.
    """

    __slots__ = ()

    def may_take(self) -> bool:
        """Nothing."""
        return False

    def may_send(self) -> bool:
        """Nothing."""
        return False

    def paused(self) -> None:
        """Nobody goes on."""

    def fail(self, end: str, error: BaseException) -> None:
        """It has ended."""

    def target_turn(self, act: Any) -> None:
        """Nobody acts."""

    def target_methods(self, wire: Any, methods: Any) -> None:
        """Nobody hears them."""

    def refused(self, count: int, error: Any) -> None:
        """Nobody counts."""


GONE = Gone()
