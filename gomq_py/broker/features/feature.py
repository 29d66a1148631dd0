"""Feature: what a queue, exchange or consumer can be told, by an argument, by a policy, or by both, as one
row.

A module of this package declares the rows of one feature beside each other; ``features.table`` collects them,
and what checks arguments, checks policies and merges the two is derived from there. The rows know nothing of
queues: what acts on a setting is named by the module's docstring.
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
    """A flag of ``gomq-py-ctl create_queue``. ``kind``: the type of its value; ``value``: what it sets
    without one.
    """

    name: str
    help: str
    kind: type | None = None
    value: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Feature:
    """One row.

    ``effect``: what it does, as a sentence for docs/arguments.md; it begins with "None" where it does nothing
    here. ``argument`` of a queue, which ``kinds`` of queues take; ``check(value, arguments)`` raises
    WrongValue. ``place``: when RabbitMQ looks at it; of those that are wrong, or differ from what the queue
    has, the first is told. ``policy``: the key in policies, in operator policies too if ``operator``;
    ``check_policy(feature, value)`` raises PolicyError; ``word`` is what RabbitMQ calls it then;
    ``check_beside(feature, definition)``: what a policy says besides, likewise.
    ``hands_on_to``: by the key in a policy messages go elsewhere, to the exchange or queue that it names,
    or, where it names none, "".
    ``component``: whose owner alone acts on the key. ``setting``: the attribute of QueueSettings, which is
    ``merge(feature, arguments, policy)``. ``by_queue``: the queue itself observes it.
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
    """One row: an ``argument`` of consumers, which has its ``effect`` on queues of ``kinds``.

    ``check(value, arguments)`` raises WrongValue, which ``refusal`` puts into RabbitMQ's words. Queues of
    other kinds ignore the argument, or refuse it if ``only_there``.
    """

    argument: str
    effect: str
    kinds: frozenset[str] = EVERY_KIND
    check: Callable[[Any, dict], None]
    refusal: str = "invalid arg '{argument}' for {entity}: {reason}"
    only_there: bool = False
