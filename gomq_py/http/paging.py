"""Paging, filtering, sorting and columns of a list, by the query's ``page page_size name use_regex sort sort_reverse columns``, as RabbitMQ has them.

A pattern from a query is matched with a limit on its length and on the time it may take; a page is at most 500 objects.
"""
import heapq

import orjson
from flask import request

from gomq_py.http.answers import elements, paced_answer
from gomq_py.http.arguments import number_in
from gomq_py.http.columns import at, cut, paths_in
from gomq_py.http.errors import BadRequest
from gomq_py.hub.turns import paced
from gomq_py.patterns import Pattern

DEFAULT_PAGE_SIZE = 100
# RabbitMQ's limit.
MAX_PAGE_SIZE = 500
# Names between two looks at the clock: some 0.5 us each for a part of one. A pattern may take 2 ms.
NAMES_LOOK = 100
# Objects sorted in one go, some 2 ms; more are sorted in such parts, which are merged.
SORTED_AT_ONCE = 5000


def listing(objects, build=None, name_of=None):
    """The answer to a list request: ``objects`` filtered, sorted, paged, built and cut to columns as the query asks. May switch.

    ``build`` makes JSON of an object (None: they are JSON already), a slice at a time and only of those that are shown, so that ten thousand objects
    are neither in memory together nor hold anybody up. ``name_of`` answers the name of an object, for the filter.
    """
    query = request.args
    page, size = _page(query)
    objects = objects if isinstance(objects, list) else list(objects)
    total = len(objects)
    build = build or _as_it_is
    objects = _sorted(_filtered(objects, query, name_of or _name_of), build, query)
    filtered = len(objects)
    if page is None:
        return paced_answer([b"[", *_dumped(objects, build, query), b"]"])
    page_count = max(1, -(-filtered // size))
    if page > page_count:
        raise BadRequest(f"Page out of range, page: {page} page size: {size}, len: {filtered}", error="page_out_of_range")
    shown = objects[(page - 1) * size:page * size]
    facts = orjson.dumps({
        "filtered_count": filtered, "item_count": len(shown), "page": page, "page_count": page_count, "page_size": size, "total_count": total,
    })
    return paced_answer([facts[:-1] + b',"items":[', *_dumped(shown, build, query), b"]}"])


def _as_it_is(item):
    return item


def _name_of(thing):
    return thing.get("name", "") if isinstance(thing, dict) else thing.name


def _dumped(objects, build, query):
    """The elements of a JSON array, built and written a slice at a time. May switch."""
    paths = paths_in(query)
    return elements(map(build, objects) if paths is None else (cut(build(one), paths) for one in objects))


def _page(query):
    """(page, its size), the page None where none is asked for. Raises BadRequest in RabbitMQ's words."""
    texts = [query.get(name) or None for name in ("page", "page_size")]
    page, size = [None if text is None else number_in(text) for text in texts]
    if any(text is not None and number is None for text, number in zip(texts, (page, size))):
        raise BadRequest("Pagination parameters are invalid")
    if page is not None and (page < 1 or size is not None and not 1 <= size <= MAX_PAGE_SIZE):
        asked = f"page number {page}, page size {'undefined' if size is None else size}"
        raise BadRequest(f"Invalid pagination parameters: {asked}", error="invalid_pagination_parameters")
    return page, DEFAULT_PAGE_SIZE if size is None else size


def _filtered(items, query, name_of):
    wanted = query.get("name")
    if not wanted:
        return items
    if query.get("use_regex", "false").lower() != "true":
        lowered = wanted.lower()
        return [item for item in paced(items, NAMES_LOOK) if lowered in name_of(item).lower()]
    pattern = _pattern(wanted)
    kept = []
    for item in paced(items):
        try:
            if pattern.found_in(name_of(item)):
                kept.append(item)
        except TimeoutError:
            raise BadRequest("the pattern takes too long: write it without nested repeats") from None
    return kept


def _pattern(text):
    """A pattern from a stranger. Raises BadRequest."""
    try:
        return Pattern(text, ignore_case=True)
    except ValueError as error:
        raise BadRequest(str(error)) from None


def _sorted(objects, build, query):
    key = query.get("sort")
    if not key:
        return objects
    path = key.split(".")
    # Values of unlike types in an order of their own, so that no list fails to sort.
    nothing, numbers, texts = kinds = _Kind(), _Kind(), _Kind()
    for place, one in enumerate(paced(objects)):
        value = at(build(one), path)
        if value is None:
            nothing.add(0, place)
        elif isinstance(value, (int, float)):
            numbers.add(value, place)
        else:
            texts.add(str(value), place)
    found = [objects[place] for kind in kinds for place in paced(kind.merged(), NAMES_LOOK)]
    if query.get("sort_reverse", "false").lower() == "true":
        found.reverse()
    return found


class _Kind:
    """Values that can be compared with each other, and the places of their objects, in runs that are sorted by themselves.

    No tuple for each object: those of 100 000 objects had the cycle collector hold everybody up for 20 to 100 ms, several times over.
    """

    def __init__(self):
        self._values = {}
        self._runs = [[]]

    def add(self, value, place):
        """The value of the object at a place; places come in order."""
        self._values[place] = value
        self._runs[-1].append(place)
        if len(self._runs[-1]) == SORTED_AT_ONCE:
            self._sort_run()
            self._runs.append([])

    def merged(self):
        """The places in the order of their values, those of equal values in their own."""
        self._sort_run()
        return heapq.merge(*self._runs, key=self._values.__getitem__)

    def _sort_run(self):
        self._runs[-1].sort(key=self._values.__getitem__)
