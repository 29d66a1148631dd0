"""Schedule: the header ``x-schedule``, which gives the times at which a delayed exchange sends a message.

The header is a table with a ``name``, and ``cron`` and ``timezone`` or ``every``; ``start``, ``end``,
``jitter`` and ``missed`` are optional. The exchange's store keeps two more fields: the ``user`` who set it,
and the ``time`` for which the message is sent next. broker.transfer.schedules keeps the messages.
"""
from datetime import datetime, timezone
from itertools import islice
from random import randrange

from gomq_py.broker.values import MAX_TIMER_MS, is_integer, type_name
from gomq_py.content.fields import Int64, Seconds, get_key, remove_key, set_key
from gomq_py.content.properties import (
    PERSISTENT, X_DELAY, X_DELIVER_AT, X_SCHEDULE, Properties, PropertyEdit,
)
from gomq_py.errors import PreconditionFailed
from gomq_py.late_imports import importing

NAME, CRON, TIMEZONE, EVERY, START, END, JITTER, MISSED = (
    "name", "cron", "timezone", "every", "start", "end", "jitter", "missed")
FIELDS = (NAME, CRON, TIMEZONE, EVERY, START, END, JITTER, MISSED)
USER, TIME = "user", "time"
ONCE, ALL, NONE = "once", "all", "none"
# Headers of a message that is sent: the schedule's name, and its time in Unix milliseconds.
X_SCHEDULE_NAME, X_SCHEDULE_TIME = "x-schedule-name", "x-schedule-time"
# Octets of a name, of a cron line and of a time zone: short strings. The longest line costs 0.3 ms.
MOST_TEXT = 255
# Each time costs two flushes and a record, so seconds are the least that cron lines and intervals tell apart.
LEAST_EVERY_MS = 1000
MOST_JITTER_MS = 24 * 3600 * 1000
# Octets of properties and body: the message is written again at each of its times.
MOST_OCTETS = 64 * 1024
# Schedules of one exchange: each costs some 1 KiB of memory, and is decoded at boot.
MOST_SCHEDULES = 10_000
# Late times that a schedule with ``missed`` = all sends: the last ones, so that a year of seconds ends soon.
MOST_MISSED = 1000
# The flag of a stored message that has a schedule. Bit 0 is the record's own.
SCHEDULED = 2


class Schedule:
    """The times at which one message is sent. ``table``: the message's x-schedule, checked by read().
    ``time_ms``: the time for which the message is sent next, in Unix ms; 0 before it is stored.
    """

    __slots__ = ("table", "name", "user", "time_ms", "missed", "_every_ms", "_start_ms", "_end_ms")

    def __init__(self, table):
        self.table = table
        self.name = table[NAME]
        self.user = table.get(USER)
        self.time_ms = table.get(TIME, 0)
        self.missed = table.get(MISSED, ONCE)
        self._every_ms = table.get(EVERY)
        self._start_ms = _unix_ms(table.get(START, 0))
        self._end_ms = _unix_ms(table.get(END, 0))

    def first_ms(self, now_ms):
        """Return the first time of a schedule that is set at ``now_ms``, in Unix ms; 0 if no time is left."""
        if self._every_ms is None:
            return self._within(self._cron_ms(max(now_ms, self._start_ms - 1)))
        if self._start_ms >= now_ms:
            return self._within(self._start_ms)
        return self._within(self._after_ms(self._start_ms or now_ms, now_ms))

    def next_ms(self, past_ms):
        """Return the first time that is after both ``past_ms`` and ``time_ms``; 0 if no time is left."""
        if self._every_ms is None:
            return self._within(self._cron_ms(max(past_ms, self.time_ms)))
        return self._within(self._after_ms(self.time_ms, max(past_ms, self.time_ms)))

    def late_ms(self, now_ms):
        """Return the first of the missed times that are still sent: the last MOST_MISSED up to ``now_ms``."""
        until_ms = min(now_ms, self._end_ms or now_ms)
        if self._every_ms is None:
            first_ms = next(islice(self._cron_back(until_ms), MOST_MISSED - 1, None), 0)
        else:
            first_ms = self._after_ms(self.time_ms, until_ms) - MOST_MISSED * self._every_ms
        return self.next_ms(first_ms - 1)

    def due_ms(self, time_ms):
        """Return when the message for ``time_ms`` is sent: that time plus a random part of the jitter."""
        return time_ms + randrange(self.table.get(JITTER, 0) + 1)

    def described(self):
        """Return the fields as a dict. Times are Unix ms. A missing field has its default or None."""
        return {
            **{field: self.table.get(field) for field in (NAME, CRON, TIMEZONE, EVERY)},
            START: self._start_ms or None, END: self._end_ms or None, JITTER: self.table.get(JITTER, 0),
            MISSED: self.missed, USER: self.user, TIME: self.time_ms}

    def _within(self, time_ms):
        return 0 if self._end_ms and time_ms > self._end_ms else time_ms

    def _after_ms(self, time_ms, past_ms):
        return time_ms + ((past_ms - time_ms) // self._every_ms + 1) * self._every_ms

    def _cron_back(self, until_ms):
        """Yield the times after ``time_ms`` and up to ``until_ms``, the latest first."""
        for at in _cron(self.table[CRON], until_ms + 1000, self._zone(), reverse=True):
            time_ms = int(at.timestamp()) * 1000
            if time_ms <= self.time_ms:
                return
            if time_ms <= until_ms:
                yield time_ms

    def _zone(self):
        zone = self.table.get(TIMEZONE)
        return timezone.utc if zone is None else _zone(zone)

    def _cron_ms(self, past_ms):
        try:
            for at in _cron(self.table[CRON], past_ms, self._zone()):
                time_ms = int(at.timestamp()) * 1000
                if time_ms > past_ms:  # in an hour that comes twice, a time may be the first hour's
                    return time_ms
        except OverflowError:  # beyond the year 9999
            pass
        return 0


def read(headers, is_empty, now_ms):
    """Check x-schedule in a message's headers and return the Schedule. ``is_empty``: True if the message has
    no body: it deletes a schedule, and only ``name`` is read. Raises PreconditionFailed, OutOfResources.
    """
    table = headers[X_SCHEDULE]
    if not isinstance(table, dict):
        raise PreconditionFailed(f"invalid header '{X_SCHEDULE}': must be a table, not {type_name(table)}")
    _check(table, NAME, _is_text, f"a text of 1 to {MOST_TEXT} bytes", is_needed=True)
    if is_empty:
        return Schedule({NAME: table[NAME]})
    for field in table:
        if field not in FIELDS:
            raise _fault(ascii(field)[1:-1][:40], f"is unknown: the fields are {', '.join(FIELDS)}")
    if (CRON in table) == (EVERY in table):
        raise _fault(CRON, f"or '{EVERY}' must be set, and not both")
    _check(table, EVERY, _from_to(LEAST_EVERY_MS, MAX_TIMER_MS),
           f"an integer from {LEAST_EVERY_MS} to {MAX_TIMER_MS} milliseconds")
    most_jitter_ms = min(MOST_JITTER_MS, table.get(EVERY, MOST_JITTER_MS))
    _check(table, JITTER, _from_to(0, most_jitter_ms),
           f"an integer from 0 to {most_jitter_ms} milliseconds, and not above '{EVERY}'")
    for field in (START, END):
        _check(table, field, lambda value: 0 < _unix_ms(value), "a timestamp, or milliseconds since 1970")
    if _unix_ms(table.get(START, 0)) > now_ms + MAX_TIMER_MS:
        raise _fault(START, "must be within ten years")
    _check(table, MISSED, (ONCE, ALL, NONE).__contains__, f"{ONCE}, {ALL} or {NONE}")
    _check_cron(table)
    schedule = Schedule(table)
    if not schedule.first_ms(now_ms):
        raise _fault(CRON if CRON in table else END, "leaves no time to come")
    for header in (X_DELAY, X_DELIVER_AT):
        if header in headers:
            raise PreconditionFailed(
                f"invalid header '{header}': excludes '{X_SCHEDULE}', whose field '{START}' does the same")
    return schedule


def _check_cron(table):
    _check(table, CRON, _is_text, f"a cron line of 1 to {MOST_TEXT} bytes")
    _check(table, TIMEZONE, _is_text, "the name of a time zone, such as Europe/Berlin")
    if CRON not in table:
        if TIMEZONE in table:
            raise _fault(TIMEZONE, f"needs '{CRON}'")
        return
    if TIMEZONE in table:
        try:
            _zone(table[TIMEZONE])
        except (KeyError, ValueError, OSError):  # missing; no path; a folder of the database
            raise _fault(TIMEZONE, "must be the name of a time zone, such as Europe/Berlin") from None
    with importing("a schedule"):
        from cronsim import CronSimError
    try:
        _cron(table[CRON], 0, timezone.utc)
    except CronSimError as error:
        raise _fault(CRON, f"must be a cron line: {str(error).lower()}") from None


def _cron(line, from_ms, zone, reverse=False):
    with importing("a schedule"):
        from cronsim import CronSim
    return CronSim(line, datetime.fromtimestamp(from_ms // 1000, zone), reverse)


def _zone(name):
    with importing("a schedule"):
        from zoneinfo import ZoneInfo
    return ZoneInfo(name)


def _check(table, field, is_valid, what, is_needed=False):
    if (is_needed or field in table) and not is_valid(table.get(field)):
        raise _fault(field, f"must be {what}")


def _fault(field, text):
    return PreconditionFailed(f"invalid header '{X_SCHEDULE}': field '{field}' {text}")


def _is_text(value):
    try:
        return isinstance(value, str) and 0 < len(value.encode()) <= MOST_TEXT
    except UnicodeEncodeError:  # half of a surrogate pair, in JSON
        return False


def _from_to(least, most):
    return lambda value: is_integer(value) and least <= value <= most


def _unix_ms(value):
    """Return the Unix milliseconds of a timestamp or an integer; -1 for any other value."""
    if isinstance(value, datetime):
        return int(value.timestamp() * 1000)
    if isinstance(value, Seconds):
        return int(value) * 1000
    return value if is_integer(value) else -1


# in the store

def of_message(message):
    """Return the Schedule of a stored message, which was checked when it was set."""
    return Schedule(get_key(PropertyEdit(message.get_properties()).headers, X_SCHEDULE))


def with_fields(properties, **fields):
    """Return a copy of encoded properties with these fields of x-schedule set."""
    edit = PropertyEdit(properties)
    edit.headers = set_key(edit.headers, X_SCHEDULE, {**get_key(edit.headers, X_SCHEDULE), **fields})
    return edit.octets()


def as_sent(edit):
    """Change the headers in a stored message's PropertyEdit for consumers: the schedule's name and time
    replace x-schedule. Returns True if the message is persistent.
    """
    schedule = Schedule(get_key(edit.headers, X_SCHEDULE))
    headers = set_key(remove_key(edit.headers, X_SCHEDULE), X_SCHEDULE_NAME, schedule.name)
    edit.headers = set_key(headers, X_SCHEDULE_TIME, Int64(schedule.time_ms))
    return Properties.decode(edit.octets()).delivery_mode == PERSISTENT
