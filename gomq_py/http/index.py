"""Caches the values by which long lists are sorted and filtered.

All requests share the cache; a value lives for one statistics interval. A row is an entity in a list, such as
a queue. A column is one fact of each row, such as ``messages`` or whether a name matches a filter. The first
request that needs a column reads it from the broker in slices.

Each request makes its own list of the rows that the user may see. So a column affects order and filters, but
never shows a hidden row. The index holds only numbers, texts and ids, so it keeps no deleted queue in memory.
"""
import heapq
import time
from array import array
from collections import OrderedDict

from gevent.lock import BoundedSemaphore

from gomq_py.hub.turns import paced

# Shorter lists are read each time, which costs less than building the page.
KEPT_FROM = 500
# Rows of all columns together, 20 to 50 octets each; above it the least recently used columns are dropped.
ROWS_MAX = 500_000
# Lists of rows per column: viewers with different rights have different rows.
ROW_LISTS_MAX = 3
# Rows processed in C between two checks of the clock: less than a millisecond.
CHUNK = 2000
# Values between two checks of the clock while they are told apart by type: some 0.1 us each.
TOLD_LOOK = 100
# Rows sorted at once, some 2 ms; more are sorted in such parts, which are merged.
SORTED_AT_ONCE = 10_000
# Rows merged between two checks of the clock: less than a microsecond each.
MERGED_LOOK = 100
# Up to this many rows are read again rather than looked up in earlier columns.
FEW = 100
NUMBERS = {int, float, bool}
_UNREAD = object()


class Rows:
    """The entities of one list request, such as queues, all of the same Kind (http.kinds)."""

    __slots__ = ("kind", "all", "_numbers")

    def __init__(self, kind, rows):
        self.kind = kind
        self.all = rows if isinstance(rows, list) else list(rows)
        self._numbers = None

    @property
    def are_kept(self):
        """Whether the Index caches facts of these rows, because they are many and have ids."""
        return self.kind.numbers is not None and len(self.all) >= KEPT_FROM

    def numbers(self):
        """Return the ids of these rows as bytes, each id a 64-bit integer. May switch greenlets."""
        if self._numbers is None:
            numbers = array("q")
            for _, some in chunks(self.all):
                numbers.extend(self.kind.numbers(some))
            self._numbers = numbers.tobytes()
        return self._numbers


class Index:
    """Caches facts about entities of long lists for ``interval_s`` seconds, for sorting and filtering."""

    def __init__(self, timers, interval_s=5.0, now_s=time.monotonic):
        self._timers = timers
        self._interval_s = interval_s
        self._now_s = now_s
        self._kept = OrderedDict()  # (kind, what): _Kept
        self._timer = None
        self._is_closed = False

    def values(self, rows, what, read):
        """Return a list of ``read(row)`` for each row of ``rows``, cached under the key ``what``. May switch
        greenlets.
        """
        return self._column(rows, what, read, False).values

    def order(self, rows, what, read):
        """Return the indexes of ``rows``, sorted by ``read(row)`` and cached under the key ``what``. May
        switch greenlets.
        """
        return self._column(rows, what, read, True).order

    def _column(self, rows, what, read, is_ordered):
        if not rows.are_kept:
            column = _Column([read(row) for row in paced(rows.all)])
            if is_ordered:
                column.order = in_order(column.values)
            return column
        key, numbers = (rows.kind, what), rows.numbers()
        kept = self._fresh(key)
        with kept.lock:  # concurrent readers wait and reuse the result
            column = kept.get(numbers)
            if column is None:
                column = kept.add(numbers, read, rows.all)
                self._shorten(key)
            if is_ordered and column.order is None:
                column.order = in_order(column.values)
        return column

    def close(self):
        self._is_closed = True
        self._kept.clear()
        self._stop_timer()

    @property
    def row_count(self):
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
                return  # it is the only column: a broker with more rows is sorted all the same
            del self._kept[oldest]

    # dropping unused columns

    def _start_timer(self):
        if self._timer is None and not self._is_closed:
            self._timer = self._timers.start(2000 * self._interval_s, self.forget)

    def _stop_timer(self):
        if self._timer is not None:
            self._timer.stop()
            self._timer = None

    def forget(self):
        """Drop the facts older than the interval. If others are left, a timer calls this again."""
        self._stop_timer()
        now = self._now_s()
        for key in [key for key, kept in self._kept.items() if now - kept.begun_at >= self._interval_s]:
            del self._kept[key]
        if self._kept:
            self._start_timer()


class _Column:
    """One fact of each row. ``values`` has the facts in the rows' order. ``order`` has the rows' indexes,
    sorted by value; None until requested.
    """

    __slots__ = ("values", "order")

    def __init__(self, values):
        self.values = values
        self.order = None


class _Kept:
    """One fact, cached for one interval: a _Column for each list of rows that was requested."""

    __slots__ = ("begun_at", "lock", "_columns")

    def __init__(self, begun_at):
        self.begun_at = begun_at
        self.lock = BoundedSemaphore(1)
        self._columns = OrderedDict()  # octets of the rows' numbers: _Column

    @property
    def row_count(self):
        return sum(len(column.values) for column in self._columns.values())

    def get(self, numbers):
        column = self._columns.get(numbers)
        if column is not None:
            self._columns.move_to_end(numbers)
        return column

    def add(self, numbers, read, rows):
        """Make, cache and return the _Column of ``rows``, whose ids are ``numbers``. Copies values from
        cached columns unless few are needed. Reads missing values with ``read(row)``. May switch greenlets.
        """
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
    """Yield (start, part) for consecutive parts of a sequence, CHUNK elements each. May switch greenlets."""
    for start in paced(range(0, len(sequence), CHUNK)):
        yield start, sequence[start:start + CHUNK]


def in_order(values):
    """Return the indexes of ``values`` in sorted order, as an array. May switch greenlets. None comes first,
    then numbers, then all other values as text.
    """
    # So no list fails to sort. Makes no tuple per value: for 100 000 tuples the cycle collector stopped the
    # loop for 20 to 100 ms.
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
    """Return the indexes ``places`` sorted by ``value_of(index)``. Equal values keep their order. May switch
    greenlets.
    """
    runs = [
        sorted(places[start:start + SORTED_AT_ONCE], key=value_of)
        for start in paced(range(0, len(places), SORTED_AT_ONCE))]
    return runs[0] if len(runs) == 1 else array("l", paced(heapq.merge(*runs, key=value_of), MERGED_LOOK))
