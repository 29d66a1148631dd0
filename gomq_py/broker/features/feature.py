"""Feature: one row per setting of a queue, exchange or consumer, by argument, by policy or by both.

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
    """One row. Fields:

    ``effect``: a sentence for docs/arguments.md; it begins with "None" if the row has no effect.
    ``argument``: of queues of ``kinds``; ``check(value, arguments)`` raises WrongValue. ``place``: RabbitMQ's
    order of checks; the first fault or difference is reported. ``policy``: the key in policies, and in
    operator policies if ``operator``; ``check_policy(feature, value)`` raises PolicyError; ``word``:
    RabbitMQ's name for the value; ``check_beside(feature, definition)`` checks the policy's other keys.
    ``hands_on_to``: kind of the entity that the policy key sends messages to ("exchange", "queue", or ""
    without a name). ``component``: the only owner that acts on the key. ``setting``: attribute of
    QueueSettings, computed by ``merge(feature, arguments, policy)``. ``by_queue``: the queue itself applies
    it.
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
    """One row: an ``argument`` of consumers with an ``effect`` on queues of ``kinds``.

    ``check(value, arguments)`` raises WrongValue; ``refusal`` is RabbitMQ's text around it. Other kinds of
    queues ignore the argument, or refuse it if ``only_there``.
    """

    argument: str
    effect: str
    kinds: frozenset[str] = EVERY_KIND
    check: Callable[[Any, dict], None]
    refusal: str = "invalid arg '{argument}' for {entity}: {reason}"
    only_there: bool = False
