"""Log records: checks records of the logs of definitions and users. A record is a field table whose ``op``
names its kind.

Used by the readers of logs; uses content.fields. A record with a valid checksum may still be unusable in this
version: another version, or a fault, wrote the record. Such a record is left out, and the boot goes on:
``read_record`` refuses it before any part of it is used.
"""
from gomq_py.content.fields import decode_table
from gomq_py.errors import Malformed

# A peer's arguments, at their deepest allowed nesting, lie one table deeper in a record.
DEEPER = 1


class RecordError(ValueError):
    """The record cannot be used; the text says why."""


def is_text(value):
    """Whether the value is str or bytes: names that are not UTF-8 arrive as bytes."""
    return isinstance(value, (str, bytes))


def is_flag(value):
    """Whether the value is True or False."""
    return isinstance(value, bool)


def is_table(value):
    """Whether the value is a dict, a field table of arguments."""
    return isinstance(value, dict)


def is_texts(value):
    """Whether the value is a list of str or bytes."""
    return isinstance(value, list) and all(isinstance(item, (str, bytes)) for item in value)


def is_str(value):
    """Whether the value is a str."""
    return isinstance(value, str)


def are_numbers(value):
    """Whether the value is a dict whose values are all integers."""
    return (
        isinstance(value, dict)
        and all(isinstance(item, int) and not isinstance(item, bool) for item in value.values())
    )


def optional(check):
    """Make a check of a field's value that also accepts None, a missing field."""
    return lambda value: value is None or check(value)


def read_record(payload, shapes):
    """Decode a payload into a record, a dict, and check its fields.

    ``shapes``: {op: {field: check}}; a record with another op is returned unchecked.

    Raises RecordError.
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
