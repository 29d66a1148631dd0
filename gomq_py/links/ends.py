"""Ends of a link: classes that describe a link's source, target and status, and the acknowledgement modes.

Does not import the AMQP client, so that a link can be defined without loading it.
"""
from dataclasses import dataclass
from typing import Any

LIMIT_PREFETCH = 65535
# When a message is acknowledged at the source: after the target's confirm; after the write to the target;
# never (the source expects no acks).
ON_CONFIRM, ON_PUBLISH, NO_ACK = ACK_MODES = ("on-confirm", "on-publish", "no-ack")


class RefusedByTarget(Exception):
    """The target refuses a message now, but may accept it later."""


class SourceEnd:
    """The queue from which a link gets messages. The queue exists, or ``prepare`` declares it.

        uris                 URIs of equivalent nodes of one broker; each connection uses a random one
        prepare(channel)     called on every new connection: declares and binds, and returns the queue's name;
                             may switch greenlets, and may leave the channel closed
        prefetch             most unsettled deliveries, 0 for LIMIT_PREFETCH
        no_ack               the broker settles deliveries when it sends them: those in flight are lost if the
                             link breaks
        offset_argument      for a stream: the name of the consumer argument for the first offset to read;
                             the message header with the offset has the same name. A link that reconnects
                             continues after the last settled offset. Empty if the queue is no stream
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


class TargetEnd:
    """The exchange, maybe the default exchange, that a link publishes to.

        exchange, routing_key            None: each message keeps its own
        prepare(channel)                 called on every new connection: declares and binds
        edit(properties, delivered)      returns the Properties to publish with, or None to acknowledge the
                                         message at the source without sending it; called in the order of
                                         the deliveries; must not switch greenlets. Without ``edit``,
                                         properties are copied byte for byte
        header_stamp()                   returns (name, value, value for redelivered messages) of a header
                                         that is added to each message; called once for each connection
        queue                            the only queue that can get the messages, named by a fixed routing
                                         key to the default exchange; else None. Messages that the queue
                                         does not take stay at their source

    With a ``header_stamp``, ``edit`` is called only for a message that already has this header, or a user id.
    For a message that has the header, the result of ``edit`` is cached: so ``edit`` may change only the
    headers, and may depend only on the headers and on whether the message is redelivered.
    """

    has_lane = True

    def __init__(self, uris, exchange=None, routing_key=None, *, prepare=None, edit=None, header_stamp=None):
        self.uris = _list(uris)
        self.exchange = exchange
        self.routing_key = routing_key
        self.prepare = prepare
        self.queue = routing_key if exchange == "" else None
        self.edit = edit
        self.header_stamp = header_stamp
        for name in (exchange, routing_key):
            if name is not None and len(name.encode("utf-8", "surrogateescape")) > 255:
                raise ValueError(f"{name!r} has more than 255 bytes")


def _list(uris):
    uris = [uris] if isinstance(uris, str) else list(uris)
    if not uris:
        raise ValueError("a link needs a URI for each of its ends")
    return uris


@dataclass(frozen=True)
class Status:
    """State and counters of a link at one moment.

        since_ms     time of the last change of ``state``, Unix milliseconds
        moved        messages settled at the source
        unconfirmed  messages sent that the target has neither confirmed nor refused
        rate         messages moved per second
        refused      refusals by the target
        set_aside    messages rejected at the source
        blocked      whether the target has asked for a pause
    """

    state: str
    error: str
    since_ms: int
    moved: int
    unconfirmed: int
    refused: int
    set_aside: int
    reconnects: int
    rate: float
    source_uri: str
    target_uri: str
    blocked: bool


class ClosedSession:
    """Stand-in for an ended LinkSession, because other objects may still call it. ``may_take`` and
    ``may_send`` return False, the other methods do nothing.
    """

    __slots__ = ()

    # Such as a transfer slice scheduled earlier, or a greenlet that is being killed. A closed session's
    # reader and writer refer to this object, so that no reference cycle keeps the session's memory (some
    # megabytes): the broker may freeze objects, whose cycles the collector does not find
    # (observability.garbage).
    def may_take(self) -> bool:
        return False

    def paused(self, *_: Any) -> None:
        """Do nothing."""

    may_send = may_take
    fail = target_turn = target_methods = refused = paused


CLOSED = ClosedSession()
