"""Message groups: a queue delivers the messages of one group in order, and to one consumer at a time.

``x-message-group`` tells where a message names its group: ``header:NAME``, ``routing-key`` or
``correlation-id``. ``x-message-group-limit`` limits the unacknowledged messages of a group. The policy keys
have effect only when a new queue is declared; the queue then keeps the values as its arguments. Applied by
broker.topology.queue_factory, which gives such a queue a storage.stores.group_store.
"""
from gomq_py.broker.features import checks, policy_checks
from gomq_py.broker.features.feature import NO_STREAM, STREAM, Feature, Flag
from gomq_py.broker.features.queue_type import MAX_PRIORITY, queue_type_of
from gomq_py.broker.names import NAME_OCTETS_MAX
from gomq_py.broker.values import is_integer

MESSAGE_GROUP = "x-message-group"
POLICY_KEY = "message-group"
LIMIT = "x-message-group-limit"
LIMIT_KEY = "message-group-limit"
ROUTING_KEY, CORRELATION_ID, HEADER = "routing-key", "correlation-id", "header"


def group_of(arguments):
    """Return where messages of a queue with these arguments name their group; None without groups. The result
    is ("routing-key", b""), ("correlation-id", b"") or ("header", its name in bytes). An unusable value in an
    old definition counts as None.
    """
    value = arguments.get(MESSAGE_GROUP)
    if not isinstance(value, str) or _has_own_order(arguments):
        return None
    return _parsed(value)


def limit_of(arguments):
    """Return how many messages of one group may be unacknowledged at a time; 0: no limit."""
    value = arguments.get(LIMIT)
    return value if is_integer(value) and value > 0 else 0


def with_policy(existing, arguments, definition):
    """Return a queue.declare's arguments, with a message group added if they lack one: the group of the
    queue ``existing`` or, if None, the group in ``definition()``, the definition of the new queue's policies.
    """
    if MESSAGE_GROUP in arguments:
        return arguments
    given = {}
    if existing is not None:
        given = existing.arguments
    elif not _has_own_order(arguments):
        in_force = definition()
        given = {MESSAGE_GROUP: in_force.get(POLICY_KEY), LIMIT: in_force.get(LIMIT_KEY)}
    if given.get(MESSAGE_GROUP) is None:
        return arguments
    return {name: given[name] for name in (MESSAGE_GROUP, LIMIT) if given.get(name) is not None} | arguments


def _has_own_order(arguments):
    return MAX_PRIORITY in arguments or queue_type_of(arguments) == STREAM


def _parsed(value):
    """Parse the value of x-message-group, as group_of() does. Returns None for an invalid text."""
    if value in (ROUTING_KEY, CORRELATION_ID):
        return value, b""
    kind, _, name = value.partition(":")
    name = name.encode("utf-8", "surrogateescape")
    return (kind, name) if kind == HEADER and 0 < len(name) <= NAME_OCTETS_MAX else None


def _check(value, arguments):
    checks.text(value, arguments)
    if _parsed(value) is None:
        raise checks.WrongValue(f"\"unsupported message group '{value[:300]}'\"")
    if MAX_PRIORITY in arguments:
        raise checks.WrongValue(f"\"not together with '{MAX_PRIORITY}'\"")


def _check_limit(value, arguments):
    checks.integer(value, arguments)
    if value < 1:
        raise checks.WrongValue(f"{{value_too_small,{value}}}")
    if MESSAGE_GROUP not in arguments:
        raise checks.WrongValue(f"\"only together with '{MESSAGE_GROUP}'\"")


def _check_policy(feature, value):
    policy_checks.text(feature, value)
    if _parsed(value) is None:
        raise policy_checks.PolicyError(
            f"{value[:300]!r} is not a valid message group: {POLICY_KEY} needs header:NAME, {ROUTING_KEY} or "
            f"{CORRELATION_ID}")


ROWS = (
    Feature(
        argument=MESSAGE_GROUP, place=32, kinds=NO_STREAM, check=_check,
        policy=POLICY_KEY, check_policy=_check_policy, by_queue=False,
        flag=Flag(name="--message-group", kind=str, help="What names a message's group: header:NAME."),
        value="`header:customer`: `header:NAME`, `routing-key` or `correlation-id`",
        default="No groups.",
        others="Neither.",
        effect="Messages of one group are delivered in order, to one consumer at a time. The "
        "value says where a message names its group ([groups.md](groups.md)). Not together with "
        "priorities.",
    ),
    Feature(
        argument=LIMIT, place=33, kinds=NO_STREAM, check=_check_limit,
        policy=LIMIT_KEY, check_policy=policy_checks.positive, by_queue=False,
        flag=Flag(name="--message-group-limit", kind=int, help="Most messages of a group that are out."),
        value="`1`: messages, from 1",
        default="No limit.",
        others="Neither.",
        effect="Most unacknowledged messages of one group. Workers that handle several messages "
        "at once need 1.",
    ),
)
