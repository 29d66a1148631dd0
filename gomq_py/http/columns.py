"""Columns: answers cut to the fields that the query's ``columns`` names, as RabbitMQ has it:
``name,message_stats.publish_details.rate``.
"""


def paths_in(query):
    """The fields that are asked for, each as a list of names; None where the query asks for none, and gets
    all.
    """
    wanted = query.get("columns")
    return [column.split(".") for column in wanted.split(",") if column] if wanted else None


def at(item, path):
    """What is there in nested objects, or None."""
    for part in path:
        if not isinstance(item, dict):
            return None
        item = item.get(part)
    return item


def cut(item, paths):
    """An object with nothing but these fields; what is no object stays as it is."""
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
