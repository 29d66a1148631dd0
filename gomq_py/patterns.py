"""Patterns: regular expressions that strangers write (policies, permissions, filters of lists), matched within a limit of time and memory.

A leaf. The standard library's matcher may take hours for a few characters, ``(a+)+$`` is the classic, and nothing can interrupt it; the ``regex``
library takes the same grammar and a time-out. What it would blow up in memory, nested counts, is refused before it is compiled.
"""
from contextlib import suppress

import regex

# Characters of a pattern: RabbitMQ has no limit, honest ones have some dozen.
LENGTH_MAX = 1024
# regex writes x{n} out n times; this many copies are some megabytes.
COPIES_MAX = 4096
# CPU seconds for one name, which has at most 255 octets: honest patterns take microseconds, so this is for patterns that would never end.
BUDGET_S = 0.005
# A pattern that ran out of time gets half as much the next time, down to this, so that ten thousand names cost two seconds and not a minute.
LEAST_BUDGET_S = 0.0002
# Of the second try that a pattern is given once.
SECOND_BUDGET_S = 0.05
# What most permissions are.
MATCH_ALL = (".*", "^.*$")

_COUNT = regex.compile(r"\{\s*(\d+)")


class Pattern:
    """One pattern. ``text`` is what was given."""

    __slots__ = ("text", "_search", "_budget_s")

    def __init__(self, text, ignore_case=False):
        """Raises ValueError with a line for whoever wrote it."""
        self.text = text
        self._budget_s = BUDGET_S
        self._search = _compiled(text, regex.IGNORECASE if ignore_case else 0).search

    def __repr__(self):
        return f"<Pattern {self.text!r}>"

    def found_in(self, name):
        """Whether it matches somewhere in the name. Raises TimeoutError when that takes too long to say."""
        if self.text in MATCH_ALL:
            return True
        try:
            return self._search(name, timeout=self._budget_s) is not None
        except TimeoutError:
            if self._budget_s == BUDGET_S:
                with suppress(TimeoutError):
                    # The clock is the whole process's, and what its other threads used must not cost anybody a right.
                    return self._search(name, timeout=SECOND_BUDGET_S) is not None
            self._budget_s = max(self._budget_s / 2, LEAST_BUDGET_S)
            raise


def _compiled(text, flags):
    if not isinstance(text, str):
        raise ValueError(f"a regular expression is a text, not {text!r}")
    if len(text) > LENGTH_MAX:
        raise ValueError(f"a regular expression of {len(text)} characters is over the limit of {LENGTH_MAX}")
    copies = 1
    for count in _COUNT.findall(text):
        copies *= max(1, int(count[:10]))
    if copies > COPIES_MAX:
        raise ValueError(f"the counts in regular expression {text!r} multiply to {copies}, over the limit of {COPIES_MAX}")
    try:
        return regex.compile(text, flags)
    except (regex.error, RecursionError, OverflowError, MemoryError) as error:
        raise ValueError(f"invalid regular expression {text!r}: {error}") from None


def escaped(text):
    """A pattern that matches this text alone."""
    return regex.escape(text)
