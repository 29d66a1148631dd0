"""Checks the arguments of a declare and of basic.consume against features.table, with RabbitMQ's texts.

Vhosts check the arguments of queues, protocol servers those of consumers. Unknown keys are accepted and kept,
as in RabbitMQ. A redeclare compares arguments with the existing queue's and does not check their values, so
that a definition from an older broker stays usable.
"""
from gomq_py.broker.features import table
from gomq_py.broker.features.checks import WrongValue
from gomq_py.broker.features.dead_lettering import EXCHANGE_ARGUMENT as DEAD_LETTER_EXCHANGE
from gomq_py.broker.features.feature import CLASSIC, EVERY_KIND as TYPES, QUORUM, STREAM
from gomq_py.broker.features.queue_type import QUEUE_TYPE, queue_type_of
from gomq_py.broker.values import difference_in, same_argument, type_name
from gomq_py.errors import PreconditionFailed

__all__ = ("ARGUMENTS", "CLASSIC", "QUEUE_TYPE", "QUORUM", "STREAM", "TYPES", "TYPE_MODULES", "queue_type_of")

# Names of RabbitMQ's modules, as in its texts.
TYPE_MODULES = {CLASSIC: "rabbit_classic_queue", QUORUM: "rabbit_quorum_queue", STREAM: "rabbit_stream_queue"}

# key: (check, kinds of queue that take it), in RabbitMQ's order of checks.
ARGUMENTS = {key: (row.check, row.kinds) for key, row in table.ARGUMENTS.items()}


def check_queue_arguments(entity, durable, exclusive, auto_delete, arguments):
    """Check a new queue's arguments. ``entity``: the queue in error texts. Raises PreconditionFailed."""
    dead_letter_exchange = arguments.get(DEAD_LETTER_EXCHANGE, "")
    if not isinstance(dead_letter_exchange, str):
        raise PreconditionFailed(
            f"invalid type '{type_name(dead_letter_exchange)}' for arg '{DEAD_LETTER_EXCHANGE}' in {entity}"
        )
    check_values(entity, arguments, (QUEUE_TYPE,))  # first, because the rest depends on it
    kind = queue_type_of(arguments)
    check_values(entity, arguments, [key for key in ARGUMENTS if kind in ARGUMENTS[key][1]])
    for key in arguments:
        if key in ARGUMENTS and kind not in ARGUMENTS[key][1]:
            raise PreconditionFailed(f"invalid arg '{key}' for {entity} of queue type {TYPE_MODULES[kind]}")
    if kind != CLASSIC:
        for wrong, name in (
            (auto_delete, "auto-delete"), (exclusive, "exclusive-owner"), (not durable, "non-durable")
        ):
            if wrong:
                raise PreconditionFailed(f"invalid property '{name}' for {entity}")


def check_may_be_unnamed(arguments):
    """Raise PreconditionFailed for a quorum queue or stream: the client must choose their names."""
    kind = arguments.get(QUEUE_TYPE, CLASSIC)
    if kind in (QUORUM, STREAM):
        raise PreconditionFailed(f"Cannot declare a server-named queue for type {TYPE_MODULES[kind]}")


def check_same_arguments(entity, received, current):
    """Compare a redeclare's arguments with the queue's. Raises PreconditionFailed if they differ."""
    for key in ARGUMENTS:
        if key == QUEUE_TYPE and queue_type_of(received) == queue_type_of(current):
            continue  # no type means classic
        if not same_argument(received, current, key):
            raise PreconditionFailed(difference_in(key, entity, received, current))


def check_values(entity, arguments, keys):
    """Check those ``arguments`` of ``entity`` that ``keys`` names. Raises PreconditionFailed."""
    for key in keys:
        if key not in ARGUMENTS or key not in arguments:
            continue
        try:
            ARGUMENTS[key][0](arguments[key], arguments)
        except WrongValue as reason:
            raise PreconditionFailed(f"invalid arg '{key}' for {entity}: {reason}") from None


# consumers

def check_common_arguments(entity, kind, arguments):
    """Check the consumer arguments that every type of queue accepts. Refuses arguments that only other queue
    types than ``kind`` accept. ``entity``: the queue in error texts. Raises PreconditionFailed.
    """
    _check_consumer(entity, arguments, lambda row: row.kinds == TYPES)
    for row in table.CONSUMER_ARGUMENTS.values():
        if row.only_there and kind not in row.kinds and row.argument in arguments:
            text = f"invalid arg '{row.argument}' for {entity} of queue type {TYPE_MODULES[kind]}"
            raise PreconditionFailed(text)


def check_own_arguments(entity, kind, arguments):
    """Check the consumer arguments that queues of type ``kind`` accept and other types do not. ``entity``:
    the queue in error texts. Raises PreconditionFailed.
    """
    _check_consumer(entity, arguments, lambda row: row.kinds != TYPES and kind in row.kinds)


def _check_consumer(entity, arguments, wanted):
    for row in table.CONSUMER_ARGUMENTS.values():
        if row.argument in arguments and wanted(row):
            try:
                row.check(arguments[row.argument], arguments)
            except WrongValue as reason:
                text = row.refusal.format(argument=row.argument, entity=entity, reason=reason)
                raise PreconditionFailed(text) from None
