"""Delay scan: reads the headers of a delayed exchange in place, without decoding: when a message is due, and
its table negated for the next exchange.

Beside delayed, which defines these headers. Handles only the types that clients use; for others it answers
UNTOLD, and delayed decodes them. For octets that were checked on arrival.
"""
from gomq_py import octets
from gomq_py.broker.exchanges import delayed
from gomq_py.content import fields

_DELAY, _DELIVER_AT = delayed.X_DELAY.encode(), delayed.X_DELIVER_AT.encode()  # kept: C points here
DELAY, DELAY_BYTES = _DELAY, len(_DELAY)
DELIVER_AT, DELIVER_AT_BYTES = _DELIVER_AT, len(_DELIVER_AT)
MOST_MS = delayed.MAX_DELAY_MS
LARGEST = delayed.LARGEST
LAST_DATE_S = fields.LAST_DATETIME_S
# Most octets that negating adds to a table: a one-octet integer then takes four.
MOST_LONGER = 6

# Answers of due_ms(): NOT_DELAYED; UNTOLD: ask delayed.due_ms_of().
NOT_DELAYED = 0
UNTOLD = -1


def due_ms(p, at, end, arrived_ms):
    """When a message with these header entries is due, in Unix milliseconds; NOT_DELAYED; UNTOLD."""
    delay_at = deliver_at = -1
    while at < end:
        value = at + 1 + p[at]
        if delay_at < 0 and is_key(p, at, DELAY, DELAY_BYTES):
            delay_at = value
        elif deliver_at < 0 and is_key(p, at, DELIVER_AT, DELIVER_AT_BYTES):
            deliver_at = value
        at = fields.skip_value(p, value)
    due = NOT_DELAYED
    if delay_at >= 0:
        if not fields.is_integer(p, delay_at):
            return UNTOLD
        number = fields.integer(p, delay_at)
        if number > 0:
            due = arrived_ms + (number if number < MOST_MS else MOST_MS)
    if deliver_at >= 0:
        if not is_told(p, deliver_at):
            return UNTOLD
        number = told(p, deliver_at)
        if number > 0:
            due = number if number < arrived_ms + MOST_MS else arrived_ms + MOST_MS
    return due


def negate(target, to, p, at, end):
    """Copy these entries with the two headers negated, like delayed.gone_on(), to ``target``, which must have
    room for MOST_LONGER more octets. Returns the offset behind them, or UNTOLD.
    """
    delay_at = deliver_at = -1
    while at < end:
        value = at + 1 + p[at]
        after = fields.skip_value(p, value)
        length = after - at
        if delay_at < 0 and is_key(p, at, DELAY, DELAY_BYTES):
            delay_at = value
            length = value - at
        elif deliver_at < 0 and is_key(p, at, DELIVER_AT, DELIVER_AT_BYTES):
            deliver_at = value
            length = value - at
        octets.copy(target, to, p, at, length)
        to += length
        if at + length < after:
            if not is_told(p, value):
                return UNTOLD
            number = told(p, value)
            to = fields.put_integer(target, to, -number if number > 0 else number)
        at = after
    return to


def is_key(p, at, key, length):
    """Whether the entry at ``at`` has this key."""
    return p[at] == length and octets.same(p, at + 1, key, 0, length)


def is_told(p, at):
    """True if told() can read the value at ``at``: a date, or an integer whose negative fits."""
    if p[at] == fields.TIMESTAMP:
        return octets.be64(p, at + 1) <= LAST_DATE_S
    return fields.is_integer(p, at) and fields.integer(p, at) >= -LARGEST


def told(p, at):
    """Read the integer, or the date in milliseconds, at ``at``."""
    return octets.be64(p, at + 1) * 1000 if p[at] == fields.TIMESTAMP else fields.integer(p, at)
