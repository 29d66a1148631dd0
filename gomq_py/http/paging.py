"""Filters, sorts and pages a list, and reduces its objects to some columns, as RabbitMQ does.

The query has ``page page_size name use_regex sort sort_reverse columns``. A query's pattern has limits of
length and time; a page has at most 500 objects.
"""
from typing import Any

import orjson
from flask import request

from gomq_py.http.answers import cut, elements, node, number_in, paced_answer, paths_in, pattern_of
from gomq_py.http.errors import BadRequest
from gomq_py.http.index import Rows, chunks
from gomq_py.http.kinds import JSON
from gomq_py.http.curves import with_histories

DEFAULT_PAGE_SIZE = 100
# RabbitMQ's limit.
MAX_PAGE_SIZE = 500


def listing(rows, kind=JSON):
    """Respond with ``rows``, filtered, sorted, paged as asked. Raises BadRequest. May switch greenlets."""
    # JSON is built only for the shown rows, in slices and in their current state; rows deleted by then are
    # left out. Facts for filters and sorting are read once in a statistics interval for all requests
    # (``index``).
    query = request.args
    page, size = _page(query)
    rows = Rows(kind, rows)
    places = _places(rows, query)
    filtered = len(places)
    if page is None:
        _, parts = _shown(rows, places, query)
        return paced_answer([b"[", *parts, b"]"])
    page_count = max(1, -(-filtered // size))
    if page > page_count:
        raise BadRequest(
            f"Page out of range, page: {page} page size: {size}, len: {filtered}", error="page_out_of_range"
        )
    count, parts = _shown(rows, places[(page - 1) * size:page * size], query)
    facts = orjson.dumps({
        "filtered_count": filtered, "item_count": count, "page": page, "page_count": page_count,
        "page_size": size, "total_count": len(rows.all),
    })
    return paced_answer([facts[:-1] + b',"items":[', *parts, b"]}"])


def _shown(rows, places, query):
    """Return (number of rows, their JSON in a list of bytes) for the ``places``. May switch greenlets."""
    paths, kind, rows = paths_in(query), rows.kind, rows.all
    count = 0
    with_histories(len(places))  # from here on: a sort by a rate reads all rows

    def built():
        nonlocal count
        for place in places:
            row = kind.now(rows[place])
            if row is not None:
                count += 1
                yield kind.build(row) if paths is None else cut(kind.build(row), paths)

    parts = elements(built())
    return count, parts  # counted while they are built


def _page(query):
    """Return (page, page size); page is None if the query has none. Raises BadRequest in RabbitMQ's words."""
    texts = [query.get(name) or None for name in ("page", "page_size")]
    page, size = [None if text is None else number_in(text) for text in texts]
    if any(text is not None and number is None for text, number in zip(texts, (page, size))):
        raise BadRequest("Pagination parameters are invalid")
    if page is not None and (page < 1 or size is not None and not 1 <= size <= MAX_PAGE_SIZE):
        asked = f"page number {page}, page size {'undefined' if size is None else size}"
        raise BadRequest(f"Invalid pagination parameters: {asked}", error="invalid_pagination_parameters")
    return page, DEFAULT_PAGE_SIZE if size is None else size


def _places(rows, query):
    """Return the indexes of the rows that match the query's ``name``, in the order of the query's ``sort``.
    May switch greenlets.
    """
    field, wanted = query.get("sort"), query.get("name")
    places: Any = range(len(rows.all))
    if wanted:
        matches = _matches(rows, wanted, query.get("use_regex", "false").lower() == "true")
    if field and (rows.are_kept or not wanted):
        places = _in_order(rows, field)
    if wanted:
        places = [place for _, some in chunks(places) for place in some if matches[place]]
        if field and not rows.are_kept:  # only the remaining rows are read and sorted
            places = [
                places[number]
                for number in _in_order(Rows(rows.kind, [rows.all[place] for place in places]), field)
            ]
    return places[::-1] if field and query.get("sort_reverse", "false").lower() == "true" else places


def _in_order(rows, field):
    return node().index.order(rows, field, rows.kind.fact(field))


def _matches(rows, wanted, is_pattern):
    """Return a list of bools: whether each row's name contains ``wanted`` or, if ``is_pattern``, matches it.
    Raises BadRequest. May switch greenlets.
    """
    name_of = rows.kind.name_of
    if is_pattern:
        pattern = pattern_of(wanted, ignore_case=True)
        try:
            return node().index.values(rows, ("pattern", wanted), lambda row: pattern.found_in(name_of(row)))
        except TimeoutError:
            raise BadRequest("the pattern takes too long: write it without nested repeats") from None
    lowered = wanted.lower()
    return node().index.values(rows, ("name", lowered), lambda row: lowered in name_of(row).lower())
