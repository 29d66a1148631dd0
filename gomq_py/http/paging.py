"""Paging, filtering, sorting and columns of a list, by the query's ``page page_size name use_regex sort sort_reverse columns``, as RabbitMQ has them.

A pattern from a query is matched with a limit on its length and on the time it may take; a page is at most 500 objects.
"""
import gevent
from flask import request

from gomq_py.http.answers import json_answer
from gomq_py.http.errors import BadRequest
from gomq_py.patterns import Pattern

DEFAULT_PAGE_SIZE = 100
# RabbitMQ's limit.
MAX_PAGE_SIZE = 500


def listing(items, name_of=lambda item: item.get("name", "")):
    """The answer to a list request: ``items`` (dicts) filtered, sorted, paged and cut to columns as the query asks. May switch."""
    query = request.args
    total = len(items)
    items = _filtered(items, query, name_of)
    filtered = len(items)
    items = _sorted(items, query)
    page = _integer(query, "page", 1, None)
    if page is None:
        return json_answer(_columns(items, query))
    size = _integer(query, "page_size", 1, MAX_PAGE_SIZE)
    size = DEFAULT_PAGE_SIZE if size is None else size
    page_count = max(1, -(-filtered // size))
    if page > page_count:
        raise BadRequest(f"page_out_of_range, page: {page}, page size: {size}", error="page_out_of_range")
    items = _columns(items[(page - 1) * size:page * size], query)
    return json_answer({
        "filtered_count": filtered, "item_count": len(items), "items": items, "page": page, "page_count": page_count, "page_size": size,
        "total_count": total,
    })


def _integer(query, name, lowest, highest):
    text = query.get(name)
    if text is None or text == "":
        return None
    try:
        value = int(text)
    except ValueError:
        raise BadRequest(f"{name} must be a number") from None
    if value < lowest or (highest is not None and value > highest):
        raise BadRequest(f"{name} must be between {lowest} and {highest}" if highest else f"{name} must be at least {lowest}")
    return value


def _filtered(items, query, name_of):
    wanted = query.get("name")
    if not wanted:
        return items
    if query.get("use_regex", "false").lower() != "true":
        lowered = wanted.lower()
        return [item for item in items if lowered in name_of(item).lower()]
    pattern = _pattern(wanted)
    kept = []
    for number, item in enumerate(items):
        if number % 256 == 255:
            gevent.sleep(0)
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


def _sorted(items, query):
    key = query.get("sort")
    if not key:
        return items
    path = key.split(".")
    backwards = query.get("sort_reverse", "false").lower() == "true"
    return sorted(items, key=lambda item: _sort_key(_at(item, path)), reverse=backwards)


def _sort_key(value):
    """Values of unlike types in an order of their own, so that no list fails to sort."""
    if isinstance(value, bool) or isinstance(value, (int, float)):
        return (1, value, "")
    if value is None:
        return (0, 0, "")
    return (2, 0, str(value))


def _at(item, path):
    for part in path:
        if not isinstance(item, dict):
            return None
        item = item.get(part)
    return item


def _columns(items, query):
    wanted = query.get("columns")
    if not wanted:
        return items
    paths = [column.split(".") for column in wanted.split(",") if column]
    return [_cut(item, paths) for item in items]


def _cut(item, paths):
    cut = {}
    for path in paths:
        value = _at(item, path)
        if value is None:
            continue
        inner = cut
        for part in path[:-1]:
            inner = inner.setdefault(part, {})
        inner[path[-1]] = value
    return cut
