"""Message groups: a queue delivers the messages of one group in order, and one at a time. Applied by
broker.topology.queue_factory, which gives such a queue a storage.stores.group_store.

The argument says what names a message's group: ``header:NAME``, ``routing-key`` or ``correlation-id``. The
policy key has effect only when a queue is declared, which then keeps the value as its argument.
"""
from gomq_py.broker.features import checks, policy_checks
from gomq_py.broker.features.feature import NO_STREAM, STREAM, Feature, Flag
from gomq_py.broker.features.queue_type import MAX_PRIORITY, queue_type_of
from gomq_py.broker.names import NAME_OCTETS_MAX

MESSAGE_GROUP = "x-message-group"
POLICY_KEY = "message-group"
ROUTING_KEY, CORRELATION_ID, HEADER = "routing-key", "correlation-id", "header:"


def group_of(arguments):
    """What names the groups of a queue with these arguments; None if it has no groups, as with an unusable value
    in an old definition.
    """
    value = arguments.get(MESSAGE_GROUP)
    if not isinstance(value, str) or not _is_source(value) or _has_own_order(arguments):
        return None
    return value


def header_of(value):
    """The header's name in octets, of the checked value ``header:NAME``; None for other values."""
    return value[len(HEADER):].encode("utf-8", "surrogateescape") if value.startswith(HEADER) else None


def with_policy(existing, arguments, definition):
    """The arguments of a queue.declare with the value of ``existing``, a dict of arguments or None, or else of
    the policies' ``definition``, where the client gives no value.
    """
    if MESSAGE_GROUP in arguments:
        return arguments
    value = definition.get(POLICY_KEY) if existing is None else existing.get(MESSAGE_GROUP)
    if value is None or (existing is None and _has_own_order(arguments)):
        return arguments
    return {**arguments, MESSAGE_GROUP: value}


def _has_own_order(arguments):
    return MAX_PRIORITY in arguments or queue_type_of(arguments) == STREAM


def _is_source(value):
    header = header_of(value)
    return value in (ROUTING_KEY, CORRELATION_ID) or (
        header is not None and 0 < len(header) <= NAME_OCTETS_MAX)


def _check(value, arguments):
    checks.text(value, arguments)
    if not _is_source(value):
        raise checks.WrongValue(f"\"unsupported message group '{value[:300]}'\"")
    if MAX_PRIORITY in arguments:
        raise checks.WrongValue(f"\"not together with '{MAX_PRIORITY}'\"")


def _check_policy(feature, value):
    policy_checks.text(feature, value)
    if not _is_source(value):
        raise policy_checks.PolicyError(
            f"{value[:300]!r} is not a valid message group: it is header:NAME, {ROUTING_KEY} or {CORRELATION_ID}")


ROWS = (
    Feature(
        argument=MESSAGE_GROUP, place=31, kinds=NO_STREAM, check=_check,
        policy=POLICY_KEY, check_policy=_check_policy, by_queue=False,
        flag=Flag(name="--message-group", kind=str, help="What names a message's group, as header:customer."),
        effect="Messages of one group are delivered in order, one at a time; what names the group: "
               "`header:NAME`, `routing-key` or `correlation-id` ([groups.md](groups.md)).",
    ),
)
