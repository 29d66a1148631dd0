"""Log records: decodes and checks records of the logs of definitions and users.

A record is a field table (content.fields) whose ``op`` names its kind. A record with a valid checksum may
still be unusable, because another version or a bug wrote it. ``read_record`` refuses such a record; it is
left out, and the boot continues.
"""
from gomq_py.content.fields import decode_table
from gomq_py.errors import Malformed

# A peer's arguments, at their deepest allowed nesting, lie one table deeper in a record.
DEEPER = 1


class RecordError(ValueError):
    """The record cannot be used. The text has the reason."""


def is_text(value):
    """Return whether the value is str or bytes. Names that are not UTF-8 are bytes."""
    return isinstance(value, (str, bytes))


def is_flag(value):
    return isinstance(value, bool)


def is_table(value):
    return isinstance(value, dict)


def is_texts(value):
    return isinstance(value, list) and all(isinstance(item, (str, bytes)) for item in value)


def is_str(value):
    return isinstance(value, str)


def are_numbers(value):
    return (
        isinstance(value, dict)
        and all(isinstance(item, int) and not isinstance(item, bool) for item in value.values())
    )


def optional(check):
    """Return a check that accepts the same values as ``check``, and None for a missing field."""
    return lambda value: value is None or check(value)


def read_record(payload, shapes):
    """Decode a payload into a record, a dict, and check its fields. Raises RecordError. ``shapes``: {op:
    {field: check}}. The fields of a record with another op are not checked.
    """
    try:
        record, end = decode_table(payload, 0, DEEPER)
    except Malformed:
        raise RecordError(f"{len(payload)} bytes are no field table") from None
    op = record.get("op")
    if end != len(payload) or not isinstance(op, str):
        raise RecordError(f"{len(payload)} bytes are no record")
    for field, check in shapes.get(op, {}).items():
        if not check(record.get(field)):
            raise RecordError(f"{field} of a record about {op!r} is {record.get(field)!r}")
    return record
