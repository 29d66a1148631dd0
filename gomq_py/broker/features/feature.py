"""Feature: describes a setting of a queue, exchange or consumer, which an argument or a policy sets.

Each module of this package describes one feature, and its docstring names the code that applies it.
``features.table`` collects the descriptions. Checks of arguments and policies, and the merging of both, are
derived from them.
"""
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

CLASSIC, QUORUM, STREAM = "classic", "quorum", "stream"
EVERY_KIND = frozenset((CLASSIC, QUORUM, STREAM))
NO_STREAM = frozenset((CLASSIC, QUORUM))
CLASSIC_ONLY, QUORUM_ONLY, STREAM_ONLY = frozenset((CLASSIC,)), frozenset((QUORUM,)), frozenset((STREAM,))


@dataclass(frozen=True, slots=True, kw_only=True)
class Flag:
    """A flag of ``gomq-py-ctl create_queue``: takes a value of type ``kind``; if None, it sets ``value``."""

    name: str
    help: str
    kind: type | None = None
    value: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Feature:
    """Describes one setting of queues or exchanges.

        effect          a sentence for docs/arguments.md; begins with "None" for a setting without effect
        value           an example, and after a colon the unit and the range
        default         the value if nothing is given
        others          how RabbitMQ 4 and LavinMQ 2.9 differ, as a text; "Alike.": they do not; "Neither.":
                        both lack the setting
        argument        the argument's name, for queues of ``kinds``
        check(value, arguments)
                        raises WrongValue
        place           position in RabbitMQ's order of checks; only the first fault is reported
        policy          the key in policies, and in operator policies if ``operator``
        check_policy(feature, value)
                        raises PolicyError
        word            RabbitMQ's name for the value, in error texts
        check_beside(feature, definition)
                        raises PolicyError if other keys of the policy exclude this one
        hands_on_to     "exchange" or "queue" if the key sends messages on to one that the value names; "" if
                        the value is only their routing key; None if the key sends no messages on
        component       the component whose handler (broker.policies.parameters) applies the key
        setting         the attribute of QueueSettings that ``merge(feature, arguments, policy)`` computes
        by_queue        True if the queue itself applies the setting
    """

    effect: str
    value: str = ""
    default: str = ""
    others: str = ""
    argument: str | None = None
    place: int = 0
    kinds: frozenset[str] = EVERY_KIND
    check: Callable[[Any, dict], None] | None = None
    policy: str | None = None
    operator: bool = False
    check_policy: Callable[["Feature", Any], None] | None = None
    check_beside: Callable[["Feature", dict], None] | None = None
    word: str | None = None
    hands_on_to: str | None = None
    component: str | None = None
    setting: str | None = None
    merge: Callable[["Feature", dict, dict], Any] | None = None
    by_queue: bool = True
    flag: Flag | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ExchangeArgument:
    """Describes one ``argument`` of exchanges; the exchange types check the values. ``also``: other names of
    the argument. ``kinds``: the types of exchanges that have it; empty: all. The other fields are those of a
    Feature.
    """

    argument: str
    effect: str
    value: str
    default: str
    others: str
    also: tuple[str, ...] = ()
    kinds: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerArgument:
    """Describes one ``argument`` of consumers, which has its ``effect`` on queues of ``kinds``.

    Queues of other kinds ignore the argument or, with ``only_there``, refuse it. ``check(value, arguments)``
    raises WrongValue; ``refusal`` is RabbitMQ's error text, with ``{reason}`` in it. ``value``, ``default``
    and ``others`` are those of a Feature.
    """

    argument: str
    effect: str
    value: str = ""
    default: str = ""
    others: str = ""
    kinds: frozenset[str] = EVERY_KIND
    check: Callable[[Any, dict], None]
    refusal: str = "invalid arg '{argument}' for {entity}: {reason}"
    only_there: bool = False
