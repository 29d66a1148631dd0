"""Feature: describes each setting of a queue, exchange or consumer, by argument or policy, in one row.

A module of this package declares the rows of one feature. ``features.table`` collects them; checks of
arguments and policies, and their merging, are derived from it. The module's docstring names the code that
applies the feature.
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
    """A flag of ``gomq-py-ctl create_queue``. ``kind``: type of its value; ``value``: constant for a flag
    that takes no value.
    """

    name: str
    help: str
    kind: type | None = None
    value: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Feature:
    """Describes one setting of queues or exchanges. Fields:

    ``effect``: a sentence for docs/arguments.md; it begins with "None" if the row has no effect.
    ``argument``: its name, for queues of ``kinds``; ``check(value, arguments)`` raises WrongValue. ``place``:
    the place in RabbitMQ's order of checks, of which the first fault is reported. ``policy``: the key in
    policies, and in operator policies if ``operator``; ``check_policy(feature, value)`` raises PolicyError;
    ``word``: RabbitMQ's name for the value; ``check_beside(feature, definition)`` checks the policy's other
    keys. ``hands_on_to``: if the key sends messages on, the kind of entity that its value names ("exchange",
    "queue"; "" if it names no entity). ``component``: the only owner that acts on the key. ``setting``: the
    attribute of QueueSettings that ``merge(feature, arguments, policy)`` computes. ``by_queue``: True if the
    queue itself applies the setting.
    """

    effect: str
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
class ConsumerArgument:
    """Describes one ``argument`` of consumers, which has its ``effect`` on queues of ``kinds``.

    ``check(value, arguments)`` raises WrongValue; ``refusal`` is RabbitMQ's text around the reason. Queues of
    other kinds ignore the argument or, with ``only_there``, refuse it.
    """

    argument: str
    effect: str
    kinds: frozenset[str] = EVERY_KIND
    check: Callable[[Any, dict], None]
    refusal: str = "invalid arg '{argument}' for {entity}: {reason}"
    only_there: bool = False
