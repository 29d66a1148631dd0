"""Queue settings: what a queue has to observe, made of its arguments, the policy and the operator policy in force. A value; never changed in place.

Made by a vhost when a queue is declared and whenever its policies change, given to the queue's ``configure``. The rules are RabbitMQ's: of numbers
the smallest counts, wherever it comes from; of everything else the argument counts before the policy. An operator's policy is merged into the user's
before that (broker.policies).
"""
from gomq_py.broker.age import milliseconds_of_age
from gomq_py.broker.deduplication import deduplication_of
from gomq_py.broker.queues.retry import retry_of
from gomq_py.broker.values import MAX_INTEGER, MAX_TIMER_MS, is_count

DROP_HEAD, REJECT_PUBLISH, REJECT_PUBLISH_DLX = "drop-head", "reject-publish", "reject-publish-dlx"

# RabbitMQ's default for quorum queues since 4.0.
QUORUM_DELIVERY_LIMIT = 20

# setting: (argument, policy key)
_SMALLEST = {
    "message_ttl_ms": ("x-message-ttl", "message-ttl"),
    "expires_ms": ("x-expires", "expires"),
    "max_length": ("x-max-length", "max-length"),
    "max_bytes": ("x-max-length-bytes", "max-length-bytes"),
    "delivery_limit": ("x-delivery-limit", "delivery-limit"),
    "consumer_timeout_ms": ("x-consumer-timeout", "consumer-timeout"),
    "segment_bytes": ("x-stream-max-segment-size-bytes", "stream-max-segment-size-bytes"),
}
_ARGUMENT_FIRST = {
    "dead_letter_exchange": ("x-dead-letter-exchange", "dead-letter-exchange"),
    "dead_letter_routing_key": ("x-dead-letter-routing-key", "dead-letter-routing-key"),
    "overflow": ("x-overflow", "overflow"),
}

_DEFAULTS = {"overflow": DROP_HEAD}
_NOT_FOR_QUEUES = ("consumer_timeout_ms", "max_age_ms", "segment_bytes")  # but for channels and streams


class QueueSettings:
    """None: not limited, not set. Times are in milliseconds, ``max_bytes`` counts bodies, ``delivery_limit`` is how often a message may come back.

    A ``consumer_timeout_ms`` of 0 is no limit, whatever the broker's own is. ``deduplication`` and ``retry``: see there.
    """

    __slots__ = (*_SMALLEST, *_ARGUMENT_FIRST, "max_age_ms", "deduplication", "retry")
    delivery_limit: float | None

    def __init__(self, arguments=None, policy=None):
        """``policy`` is the merged definition of the policies in force. Values of a wrong type, which old definitions may hold, count as not set."""
        arguments, policy = arguments or {}, policy or {}
        for name, (argument, key) in _SMALLEST.items():
            values = [value for value in (arguments.get(argument), policy.get(key)) if _is_count(value)]
            if name == "consumer_timeout_ms":
                values = [value for value in values if value] or values  # 0 is no limit, so it is not the smallest of two
            if name.endswith("_ms"):
                values = [min(value, MAX_TIMER_MS) for value in values]  # policies name longer times than timers have, as in RabbitMQ
            setattr(self, name, min(values, default=None))
        for name, (argument, key) in _ARGUMENT_FIRST.items():
            texts = [value for value in (arguments.get(argument), policy.get(key)) if isinstance(value, str)]
            setattr(self, name, texts[0] if texts else _DEFAULTS.get(name))
        self.deduplication = deduplication_of(arguments, policy)
        ages = [_age_ms(value) for value in (arguments.get("x-max-age"), policy.get("max-age"))]
        self.max_age_ms = min((age for age in ages if age is not None), default=None)
        self.retry = retry_of(arguments, policy)
        if arguments.get("x-queue-type") == "quorum" and "x-delivery-limit" not in arguments and "delivery-limit" not in policy:
            self.delivery_limit = QUORUM_DELIVERY_LIMIT

    def __eq__(self, other):
        return isinstance(other, QueueSettings) and all(getattr(self, name) == getattr(other, name) for name in self.__slots__)

    def __hash__(self):
        return hash(tuple(getattr(self, name) for name in self.__slots__))

    def __repr__(self):
        given = ", ".join(f"{name}={getattr(self, name)!r}" for name in self.__slots__ if getattr(self, name) not in (None, DROP_HEAD))
        return f"<QueueSettings {given or 'plain'}>"

    @property
    def is_plain(self):
        """Whether nothing here asks anything of a queue."""
        return self == PLAIN

    @property
    def needs_limits(self):
        """Whether the queue itself has something to observe; a consumer timeout is seen to by channels, an age by streams."""
        return any(getattr(self, name) != getattr(PLAIN, name) for name in self.__slots__ if name not in _NOT_FOR_QUEUES)


def _is_count(value):
    """A number that is a limit: RabbitMQ takes a negative one (of delivery-limit) as none. One that no counter holds is no limit either."""
    return is_count(value) or isinstance(value, float) and 0 <= value < MAX_INTEGER


def _age_ms(value):
    """An age such as "7D" in milliseconds; None where it is none."""
    try:
        return milliseconds_of_age(value) if isinstance(value, str) else None
    except ValueError:
        return None


PLAIN = QueueSettings()
