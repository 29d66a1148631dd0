"""Consumer arguments: checks basic.consume's arguments by the table, with RabbitMQ's texts.

Used by doors for a new consumer. Unknown arguments are accepted and kept, as in RabbitMQ.
"""
from gomq_py.broker.features import table
from gomq_py.broker.features.arguments import TYPE_MODULES
from gomq_py.broker.features.checks import WrongValue
from gomq_py.broker.features.feature import EVERY_KIND
from gomq_py.errors import PreconditionFailed


def check_common_arguments(entity, kind, arguments):
    """Check the arguments that every kind of queue takes, and refuse arguments that this ``kind`` does not
    take. ``entity`` names the queue in texts. Raises PreconditionFailed.
    """
    _check(entity, arguments, lambda row: row.kinds == EVERY_KIND)
    for row in table.CONSUMER_ARGUMENTS.values():
        if row.only_there and kind not in row.kinds and row.argument in arguments:
            text = f"invalid arg '{row.argument}' for {entity} of queue type {TYPE_MODULES[kind]}"
            raise PreconditionFailed(text)


def check_own_arguments(entity, kind, arguments):
    """Check the arguments that only this ``kind`` of queue takes. Raises PreconditionFailed."""
    _check(entity, arguments, lambda row: row.kinds != EVERY_KIND and kind in row.kinds)


def _check(entity, arguments, wanted):
    for row in table.CONSUMER_ARGUMENTS.values():
        if row.argument in arguments and wanted(row):
            try:
                row.check(arguments[row.argument], arguments)
            except WrongValue as reason:
                text = row.refusal.format(argument=row.argument, entity=entity, reason=reason)
                raise PreconditionFailed(text) from None
