"""Index: what long lists are sorted and filtered by, kept for one statistics interval and shared by all
viewers.

Below paging. A column is one fact of each row (``messages``, whether a name matches a filter), read from the
model in slices by the first viewer who needs it; the next ones of the interval get it as it is. Which rows
there are is the viewer's own list, made anew for each request from what that viewer may see: rows that came
since are looked at by themselves, and those that went are in no list. So a column decides about the order
alone, never about who sees what.

Kept are numbers and texts, and rows by a number that stands for them: nothing here keeps a queue in memory.
"""
import heapq
import time
from array import array
from collections import OrderedDict

import gevent
from gevent.lock import BoundedSemaphore

from gomq_py.hub.turns import paced

# Shorter lists are looked at each time, which costs less than the page that is shown of them.
KEPT_FROM = 500
# Rows of all columns together, 20 to 50 octets each; beyond, what was not used for longest is forgotten.
ROWS_MAX = 500_000
# Of one column: viewers who may see different things have different rows.
ROW_LISTS_MAX = 3
# Rows that are gone through in C between two looks at the clock: less than a millisecond.
CHUNK = 2000
# Values between two looks at the clock where each is told from others: some 0.1 us.
TOLD_LOOK = 100
# Rows sorted in one go, some 2 ms; more are sorted in such parts, which are merged.
SORTED_AT_ONCE = 10_000
# Rows that are merged between two looks at the clock: less than a microsecond each.
MERGED_LOOK = 100
# As many rows are read once more rather than looked for among those that were read.
FEW = 100
NUMBERS = {int, float, bool}
_UNREAD = object()


class Rows:
    """What one request lists, each of a Kind (http.kinds)."""

    __slots__ = ("kind", "all", "_numbers")

    def __init__(self, kind, rows):
        self.kind = kind
        self.all = rows if isinstance(rows, list) else list(rows)
        self._numbers = None

    @property
    def are_kept(self):
        """Whether facts of them are kept."""
        return self.kind.numbers is not None and len(self.all) >= KEPT_FROM

    def numbers(self):
        """What stands for these rows, as octets of 64 bit numbers. May switch."""
        if self._numbers is None:
            numbers = array("q")
            for _, some in chunks(self.all):
                numbers.extend(self.kind.numbers(some))
            self._numbers = numbers.tobytes()
        return self._numbers


class Index:
    """The columns of one broker. ``interval_s``: for how long one is kept; ``now_s`` is given by tests."""

    def __init__(self, interval_s=5.0, now_s=time.monotonic):
        self._interval_s = interval_s
        self._now_s = now_s
        self._kept = OrderedDict()  # (kind, what): _Kept
        self._timer = None
        self._is_closed = False

    def values(self, rows, what, read):
        """``read(row)`` of each of these Rows, which is the fact named ``what``. May switch."""
        return self._column(rows, what, read, False).values

    def order(self, rows, what, read):
        """The places of the Rows in the order of their facts, see ``in_order``. May switch."""
        return self._column(rows, what, read, True).order

    def _column(self, rows, what, read, is_ordered):
        if not rows.are_kept:
            column = _Column([read(row) for row in paced(rows.all)])
            if is_ordered:
                column.order = in_order(column.values)
            return column
        key, numbers = (rows.kind, what), rows.numbers()
        kept = self._fresh(key)
        with kept.lock:  # whoever comes while it is read waits, and need not read it again
            column = kept.get(numbers)
            if column is None:
                column = kept.add(numbers, read, rows.all)
                self._shorten(key)
            if is_ordered and column.order is None:
                column.order = in_order(column.values)
        return column

    def close(self):
        """Forget everything, and keep nothing for long any more."""
        self._is_closed = True
        self._kept.clear()
        self._stop_timer()

    @property
    def row_count(self):
        """Rows of all columns together."""
        return sum(kept.row_count for kept in self._kept.values())

    def _fresh(self, key):
        kept = self._kept.get(key)
        if kept is None or self._now_s() - kept.begun_at >= self._interval_s:
            kept = self._kept[key] = _Kept(self._now_s())
            self._start_timer()
        self._kept.move_to_end(key)
        return kept

    def _shorten(self, key):
        while self.row_count > ROWS_MAX:
            oldest = next(iter(self._kept))
            if oldest == key:
                return  # as the only one: a broker with more rows than that is sorted all the same
            del self._kept[oldest]

    # what nobody asks for any more is forgotten

    def _start_timer(self):
        if self._timer is None and not self._is_closed:
            self._timer = gevent.get_hub().loop.timer(2 * self._interval_s, ref=False)
            self._timer.start(self.forget)

    def _stop_timer(self):
        if self._timer is not None:
            self._timer.stop()
            self._timer.close()
            self._timer = None

    def forget(self):
        """Forget the columns whose interval is over, and come again while there are others."""
        self._stop_timer()
        now = self._now_s()
        for key in [key for key, kept in self._kept.items() if now - kept.begun_at >= self._interval_s]:
            del self._kept[key]
        if self._kept:
            self._start_timer()


class _Column:
    """A fact of each of some rows: ``values`` as the rows stand, and once somebody wants it their ``order``.
    """

    __slots__ = ("values", "order")

    def __init__(self, values):
        self.values = values
        self.order = None


class _Kept:
    """One column as it was read in one interval, for each list of rows that somebody asked for."""

    __slots__ = ("begun_at", "lock", "_columns")

    def __init__(self, begun_at):
        self.begun_at = begun_at
        self.lock = BoundedSemaphore(1)
        self._columns = OrderedDict()  # octets of the rows' numbers: _Column

    @property
    def row_count(self):
        return sum(len(column.values) for column in self._columns.values())

    def get(self, numbers):
        """The _Column of exactly these rows, or None."""
        column = self._columns.get(numbers)
        if column is not None:
            self._columns.move_to_end(numbers)
        return column

    def add(self, numbers, read, rows):
        """The _Column of these rows; only those that were not read before are read. May switch."""
        values = [_UNREAD] * len(rows)
        for before, column in reversed(self._columns.items()):
            if values.count(_UNREAD) > FEW:
                known = {}
                for start, some in chunks(array("q", before)):
                    known.update(zip(some, column.values[start:start + CHUNK]))
                for start, some in chunks(array("q", numbers)):
                    values[start:start + CHUNK] = map(known.get, some, values[start:start + CHUNK])
        for start, some in chunks(values):
            if _UNREAD in some:
                for place in paced(range(start, start + len(some))):
                    if values[place] is _UNREAD:
                        values[place] = read(rows[place])
        column = self._columns[numbers] = _Column(values)
        if len(self._columns) > ROW_LISTS_MAX:
            self._columns.popitem(last=False)
        return column


def chunks(sequence):
    """(start, part) of CHUNK each. A generator; may switch."""
    for start in paced(range(0, len(sequence), CHUNK)):
        yield start, sequence[start:start + CHUNK]


def in_order(values):
    """The places of values in their order, an array: those of None, of numbers, of texts and whatever else,
    each kind by itself, so that no list fails to sort.

    May switch.

    No tuple for each value: those of 100 000 had the cycle collector hold everybody up for 20 to 100 ms,
    several times over.
    """
    kinds = {kind for _, some in chunks(values) for kind in set(map(type, some))}
    if kinds <= NUMBERS or kinds == {str}:
        return _merged(range(len(values)), values.__getitem__)
    nothing, numbers, texts, others = array("l"), array("l"), array("l"), {}
    for place in paced(range(len(values)), TOLD_LOOK):
        value = values[place]
        if value is None:
            nothing.append(place)
        elif isinstance(value, (int, float)):
            numbers.append(place)
        else:
            texts.append(place)
            if not isinstance(value, str):
                others[place] = str(value)
    of_text = values.__getitem__ if not others else lambda place: others.get(place) or values[place]
    for kind, value_of in ((numbers, values.__getitem__), (texts, of_text)):
        nothing.extend(_merged(kind, value_of))
    return nothing


def _merged(places, value_of):
    """The places in the order of their values, those of equal values in their own. May switch."""
    runs = [
        sorted(places[start:start + SORTED_AT_ONCE], key=value_of)
        for start in paced(range(0, len(places), SORTED_AT_ONCE))]
    return runs[0] if len(runs) == 1 else array("l", paced(heapq.merge(*runs, key=value_of), MERGED_LOOK))
