"""Patterns: matches clients' regular expressions within limits of time and memory.

Policies, permissions, scopes of tokens and filters of lists use such expressions. The standard library's
matcher may take hours for a few characters, as for ``(a+)+$``, and nothing can interrupt it; the ``regex``
library accepts the same grammar and a time-out. Repetition counts that multiply to a large number are refused
before compilation, because they may take any amount of memory. The library (1.5 MB) is imported for the first
pattern other than MATCH_ALL.
"""
import re
import time

# Characters of a pattern: RabbitMQ has no limit, real patterns have some dozen.
LENGTH_MAX = 1024
# regex writes x{n} out n times; this many copies are some megabytes.
COPIES_MAX = 4096
# Characters of a pattern times copies: 480 of (a?) 4096 times took a second and 800 MiB, this many take 20 ms
# and 13 MiB.
WRITTEN_OUT_MAX = 65536
# CPU seconds for one name of at most 255 octets: real patterns take microseconds; the limit stops patterns
# that would never end.
BUDGET_S = 0.002
# Smallest budget: a pattern that ran out of time gets half as much the next time, so that ten thousand names
# cost two seconds and not a minute.
LEAST_BUDGET_S = 0.0001
# Attempts per name. Other threads use up the matcher's clock; an attempt that used the budget by this
# thread's own clock is the last.
TRIES = 4
# Most permissions are one of these texts.
MATCH_ALL = (".*", "^.*$")

_COUNT = re.compile(r"\{\s*(\d+)")
# PCRE, RabbitMQ's grammar, spells these otherwise than ``regex``: quoted text, references by name and
# characters by number. Any other escape is matched whole, so that an escaped backslash begins none of these.
_PCRE = re.compile(
    r"\\(?:Q(?P<quoted>.*?)(?:\\E|\Z)|(?P<end>E)"
    r"|k(?:<(?P<a>\w+)>|'(?P<b>\w+)'|\{(?P<c>\w+)\})|x\{(?P<code>[0-9A-Fa-f]{1,5})\}|.)", re.DOTALL)


class Pattern:
    """A compiled regular expression; ``text`` is its source."""

    __slots__ = ("text", "_search", "_budget_s", "_clock")

    def __init__(self, text, ignore_case=False, clock=time.thread_time):
        """``clock()``: CPU seconds of this thread. Raises ValueError, whose text is for the user."""
        self.text = text
        self._budget_s = BUDGET_S
        self._clock = clock
        self._search = None if text in MATCH_ALL else _compiled(text, ignore_case).search

    def __repr__(self):
        return f"<Pattern {self.text!r}>"

    def found_in(self, name):
        """Return True if the pattern matches anywhere in the name. Raises TimeoutError for a slow match."""
        if self._search is None:
            return True
        try:
            return self._search(name, timeout=self._budget_s) is not None
        except TimeoutError:
            return self._found_by_own_clock(name)

    @property
    def is_costly(self):
        """True if found_in() has raised TimeoutError for this pattern before."""
        return self._budget_s < BUDGET_S

    def _found_by_own_clock(self, name):
        """Match again after a time-out, and count only the CPU time of this thread. Returns whether the
        pattern matches. Raises TimeoutError.
        """
        # The matcher's own clock also counts the time of other threads, which must not cost a user a right.
        for _ in range(TRIES):
            began = self._clock()
            try:
                return self._search(name, timeout=self._budget_s) is not None
            except TimeoutError:
                if self._clock() - began >= self._budget_s / 2:
                    break
        self._budget_s = max(self._budget_s / 2, LEAST_BUDGET_S)
        raise TimeoutError(f"regular expression {self.text!r} takes too long")


class Globs:
    """Patterns in which * matches any text. The time of a match is proportional to the name's length."""

    __slots__ = ("text", "_parts")

    def __init__(self, globs):
        self.text = " ".join(globs)
        self._parts = [glob.split("*") for glob in globs]

    def __repr__(self):
        return f"<Globs {self.text!r}>"

    def found_in(self, name):
        """Return True if at least one of the patterns matches the whole name."""
        return any(_is_all_of(name, parts) for parts in self._parts)


def _is_all_of(name, parts):
    """Return True if the name consists of these parts in this order, with any text between them."""
    # Looks for each part at its first occurrence only, because a later one never matches more.
    first, last = parts[0], parts[-1]
    if len(parts) == 1:
        return name == first
    at, end = len(first), len(name) - len(last)
    if at > end or not name.startswith(first) or not name.endswith(last):
        return False
    for part in parts[1:-1]:
        found = name.find(part, at, end)
        if found < 0:
            return False
        at = found + len(part)
    return True


def _compiled(text, ignore_case):
    if not isinstance(text, str):
        raise ValueError(f"a regular expression is a text, not {text!r}")
    if len(text) > LENGTH_MAX:
        raise ValueError(f"a regular expression of {len(text)} characters is over the limit of {LENGTH_MAX}")
    text = _PCRE.sub(_translated, text)
    copies = 1
    for count in _COUNT.findall(text):
        copies *= max(1, int(count[:10]))
    if copies > COPIES_MAX:
        raise ValueError(
            f"the counts in regular expression {text!r} multiply to {copies}, over the limit of {COPIES_MAX}"
        )
    if copies > 1 and copies * len(text) > WRITTEN_OUT_MAX:
        raise ValueError(
            f"regular expression {text!r} has {len(text)} characters and its counts make {copies} copies, "
            f"over the limit of {WRITTEN_OUT_MAX} together"
        )
    import regex

    try:
        return regex.compile(
            text, regex.IGNORECASE if ignore_case else 0,
            cache_pattern=False)  # otherwise it would keep 500 patterns of clients
    except (regex.error, RecursionError, OverflowError, MemoryError) as error:
        raise ValueError(f"invalid regular expression {text!r}: {error}") from None


def _translated(escape):
    quoted, name = escape["quoted"], escape["a"] or escape["b"] or escape["c"]
    if quoted is not None:
        return re.escape(quoted)
    if name is not None:
        return f"(?P={name})"
    if escape["code"] is not None:
        return re.escape(chr(int(escape["code"], 16)))
    return "" if escape["end"] else escape[0]


def escaped(text):
    return re.escape(text)
