"""Columns: answers cut to the fields in the query's ``columns``, as in RabbitMQ:
``name,message_stats.publish_details.rate``.
"""


def paths_in(query):
    """The requested fields, each as a list of names; None if the query names none and gets all."""
    wanted = query.get("columns")
    return [column.split(".") for column in wanted.split(",") if column] if wanted else None


def at(item, path):
    """The value at a path in nested objects, or None."""
    for part in path:
        if not isinstance(item, dict):
            return None
        item = item.get(part)
    return item


def cut(item, paths):
    """An object with these fields only; other values stay as they are."""
    if not isinstance(item, dict):
        return item
    left = {}
    for path in paths:
        value = at(item, path)
        if value is None:
            continue
        inner = left
        for part in path[:-1]:
            inner = inner.setdefault(part, {})
        inner[path[-1]] = value
    return left
