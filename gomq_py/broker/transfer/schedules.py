"""Schedules: messages of a delay queue that are sent at each of their times, until they are deleted.

Each schedule is one message in the queue's store, under the schedule's name. When its copies are safe, the
message is stored again with its next time. Of two messages with one name the younger counts; the older one is
acknowledged once the younger is safe. broker.transfer.delayed uses this module; a queue without schedules has
no Schedules. Never switches greenlets.
"""
from collections import deque
from functools import partial

from gomq_py.broker.exchanges import schedule as _schedule
from gomq_py.broker.queues.due_timer import DueTimer
from gomq_py.content.fields import Int64
from gomq_py.content.forms import BASIC
from gomq_py.observability.log import logger
from gomq_py.observability.quiet_log import QuietLog
from gomq_py.storage.errors import StoreError, StoreFull
from gomq_py.storage.message import Message

LOG = logger("queue")
QUIET = QuietLog(LOG)

# With ``missed`` = none, a time is missed if the message cannot be sent within so many milliseconds: more
# than a broker is busy, less than a restart with a full disk takes.
LATE_MS = 60_000
# Pause before the next attempt to store a message again on a full disk.
FULL_MS = 1000
# The heap keeps the places of replaced messages. It is made anew if they are the most of it, and so many.
STALE = 64


class Entry:
    """One schedule.

    ``location``: where the schedule's message is stored. ``former``: locations of older messages of this name
    that are not acknowledged yet. ``is_sent``: the message was sent for its time, but not yet stored again.
    ``late_left``: count of missed times to send before late_ms() is called again. ``is_aside``: the message
    cannot be sent and stays.
    """

    __slots__ = ("name", "location", "due_ms", "former", "is_sent", "late_left", "is_aside")

    def __init__(self, name):
        self.name = name
        self.location = self.due_ms = self.late_left = 0
        self.former = deque()
        self.is_sent = self.is_aside = False


class Schedules:
    """The schedules of a DelayQueue. ``pending``: {location: destinations that lack the message}.
    ``may_write(user)``, if set, returns False if that user may no longer publish to the exchange.
    ``sent_count``: number of messages sent. ``missed_count``: number of due times left out; several in a
    row count as one.
    """

    def __init__(self, queue, when_safe, pending, on_due):
        self.may_write = None
        self.sent_count = self.missed_count = 0
        self._queue = queue
        self._when_safe = when_safe
        self._pending = pending
        self._on_due = on_due
        self._due = DueTimer(queue.timers, on_due)
        self._by_name = {}
        self._by_location = {}  # of the messages that count
        self._sent = {}  # location: Entry whose copies are not safe yet
        self._is_stopped = False
        self._gone = set()  # locations of such messages that were deleted meanwhile

    # for operators

    @property
    def count(self):
        return len(self._by_name)

    def has(self, name):
        return name in self._by_name

    def names(self):
        return sorted(self._by_name)

    def show(self, name, message):
        """Fill ``message`` with the message of this name. Returns its due time (Unix ms); None if missing."""
        entry = self._by_name.get(name)
        if entry is None or self._queue.closed or not self._queue.store.read(entry.location, message):
            return None
        return entry.due_ms

    # setting and deleting

    def first_copy(self, message):
        """Return the message to store for ``message``, which sets a schedule and was checked. Returns None if
        it came too late for its last time, or there are too many schedules.
        """
        schedule = _schedule.of_message(message)
        time_ms = schedule.first_ms(message.describe()["timestamp_ms"])
        if not time_ms or self.is_full(schedule.name):
            return None
        return _copy(message, schedule, time_ms)

    def has_same(self, message):
        """True if the same schedule is stored, and its next time is no later than ``message`` would get."""
        schedule, there = _schedule.of_message(message), Message()
        entry = self._by_name.get(schedule.name)
        if entry is None or entry.is_aside or not self._queue.store.read(entry.location, there):
            return False
        time_ms = _schedule.of_message(there).time_ms
        return (
            there.get_body() == message.get_body() and there.get_routing_key() == message.get_routing_key()
            and there.get_properties() == _timed(message, time_ms)
            and time_ms <= schedule.first_ms(message.describe()["timestamp_ms"]))

    def set_aside(self, location):
        """Send this message no more. It stays until its schedule is deleted or replaced."""
        self._gone.discard(location)
        entry = self._sent.pop(location, None) or self._by_location.get(location)
        if entry is None:
            return
        if entry.location == location:
            entry.is_aside = True
        else:  # replaced meanwhile
            self._acknowledge(entry, location)

    def is_full(self, name):
        return name not in self._by_name and len(self._by_name) >= _schedule.MOST_SCHEDULES

    def delete(self, name):
        """Delete a schedule. Returns False if it is missing. Raises StoreError."""
        entry = self._by_name.pop(name, None)
        if entry is None:
            return False
        del self._by_location[entry.location]
        former, entry.former = [*entry.former, entry.location], deque()
        for location in former:
            self._queue.store.delete(location)
            self._pending.pop(location, None)
            if self._sent.pop(location, None) is not None:
                self._gone.add(location)
        self._queue.store.mark()  # an operator waits until the deletion is on the disk
        self._touch()
        return True

    def add(self, message):
        """Add a message of the store, which must be younger than all added before."""
        fields = message.describe()
        location = fields["location"]
        try:
            name = _schedule.of_message(message).name
        except Exception as error:  # of another version, or damaged
            self._queue.set_aside(location, error)
            return
        entry = self._by_name.get(name)
        if entry is None:
            entry = self._by_name[name] = Entry(name)
        else:
            self._outdate(entry)
        entry.location, entry.due_ms = location, fields["expires_at_ms"]
        entry.is_sent = entry.is_aside = False
        self._by_location[location] = entry
        self._due.push(entry.due_ms, location)

    def _outdate(self, entry):
        """Acknowledge the entry's message once the younger message of the same name is on disk."""
        location = entry.location
        del self._by_location[location]
        self._pending.pop(location, None)
        entry.former.append(location)
        self._acknowledge(entry, location)

    def _acknowledge(self, entry, location):
        # One that is being sent is acknowledged when that is over. An acknowledgement that
        # is on the disk without the younger message would end the schedule.
        self._queue.write_out()
        self._when_safe(partial(self._safe, entry, location))

    def _safe(self, entry, location, error):
        # After an error both stay. The next boot takes the younger, or the next message is safe.
        if error is not None or self._queue.closed:
            return
        sent = []
        try:
            while entry.former and entry.former[0] <= location:  # the younger lie behind the older
                former = entry.former.popleft()
                if former in self._sent:
                    sent.append(former)
                else:
                    self._queue.store.delete(former)
        except StoreError as fault:
            self._queue.fail(fault)
        entry.former.extendleft(reversed(sent))
        self._touch()

    # the timer

    def arm(self):
        if self._is_stopped:
            return
        if self._due.count > 2 * len(self._by_location) + STALE:
            self._due.stop()
            self._due = DueTimer(self._queue.timers, self._on_due)
            for location, entry in self._by_location.items():
                if location not in self._sent and not entry.is_aside:
                    self._due.push(entry.due_ms, location)
        self._due.arm()

    def stop(self):
        """Send no more messages. Messages sent already are still stored again."""
        self._due.stop()
        if not self._is_stopped:
            self._is_stopped = True
            for entry in [entry for entry in self._by_location.values() if entry.is_sent]:
                self._store_sent(entry)

    # what a transfer asks

    def take(self):
        """Return the location of a message that is due; None if there is none."""
        while (location := self._due.take()) is not None:
            if location in self._by_location:
                return location
        return None

    def is_one(self, location):
        """True if the due message at this location has, or had, a schedule."""
        return location in self._by_location or location in self._sent or location in self._gone

    def fill(self, location, message):
        """Fill ``message`` for sending. Returns False if it must not be sent. Raises StoreError."""
        entry = self._by_location.get(location)
        if entry is None or not self._queue.store.read(location, message):
            return False
        if not entry.is_sent and location not in self._pending and self._is_left_out(message):
            self.missed_count += 1
            entry.is_sent = True
        if entry.is_sent:
            self._store_again(entry, message)
            return False
        self._sent[location] = entry
        return True

    def dropped(self, location):
        """Have a message stored again with its next time, because its copies are safe."""
        if location in self._gone:
            self._gone.remove(location)
            self.sent_count += 1
            return
        entry = self._sent.pop(location)
        self.sent_count += 1
        if entry.location != location:  # replaced meanwhile
            self._acknowledge(entry, location)
            return
        entry.is_sent = True
        if self._is_stopped:
            self._store_sent(entry)
        else:  # in the transfer's slices: some 30 us each
            self._due.push(self._queue.timers.now_ms(), location)

    def _store_sent(self, entry):
        message = Message()
        try:
            if not self._queue.closed and self._queue.store.read(entry.location, message):
                self._store_again(entry, message)
        except StoreError as error:
            self._queue.fail(error)

    def put_back(self, location, due_ms):
        """Send the message later, because its copies are not safe, or a destination has no room."""
        if location in self._gone:
            self._gone.remove(location)
            self._pending.pop(location, None)
            return
        entry = self._sent.pop(location)
        if entry.location != location:
            self._pending.pop(location, None)
            self._acknowledge(entry, location)
            return
        self._due.push(due_ms, location)

    def _is_left_out(self, message):
        """True if the message must not be sent for its time: the time is missed, or the user has no right."""
        schedule = _schedule.of_message(message)
        if schedule.missed == _schedule.NONE:
            now_ms = self._queue.timers.now_ms()
            next_ms = schedule.next_ms(0)
            if now_ms > message.describe()["expires_at_ms"] + LATE_MS or 0 < next_ms <= now_ms:
                return True
        if self.may_write is None or schedule.user is None or self.may_write(schedule.user):
            return False
        QUIET.warning(
            (self._queue.name, "rights"),
            "%s: schedule %r is not sent: user %r, who set it, may not write to the exchange",
            self._queue.name, schedule.name, schedule.user)
        return True

    def _store_again(self, entry, message):
        schedule = _schedule.of_message(message)
        now_ms = self._queue.timers.now_ms()
        time_ms = self._next_ms(entry, schedule, now_ms)
        if not time_ms:
            self.delete(entry.name)
            return
        try:
            self._queue.store.append(_copy(message, schedule, time_ms))
        except StoreFull as error:
            entry.is_sent = True
            self._queue.complain("cannot store a schedule again: %s", error)
            self._due.push(now_ms + FULL_MS, entry.location)
            return
        if not self._queue.take_newest():
            raise StoreError(self._queue.store.folder, 0, "a message that was just stored cannot be read")
        self._touch()

    def _next_ms(self, entry, schedule, now_ms):
        """Return the schedule's next time in Unix ms, by its rule for missed times; 0 if no time is left."""
        time_ms = next_ms = schedule.next_ms(0)
        if not 0 < next_ms <= now_ms:
            entry.late_left = 0
            return next_ms
        if schedule.missed != _schedule.ALL:
            next_ms = schedule.next_ms(now_ms)
        elif entry.late_left:
            entry.late_left -= 1
        else:
            next_ms, entry.late_left = schedule.late_ms(now_ms), _schedule.MOST_MISSED - 1
        if next_ms != time_ms:
            self.missed_count += 1
        return next_ms

    def _touch(self):
        if not self._queue.touched:
            self._queue.scheduler.touch(self._queue)


def _timed(message, time_ms):
    return _schedule.with_fields(message.get_properties(), **{_schedule.TIME: Int64(time_ms)})


def _copy(message, schedule, time_ms):
    fields, copy = message.describe(), Message()
    copy.assign(
        message.get_exchange(), message.get_routing_key(), _timed(message, time_ms), message.get_body(),
        fields["timestamp_ms"], expires_at_ms=schedule.due_ms(time_ms), priority=fields["priority"],
        persistent=True)
    copy.set_kind(BASIC, _schedule.SCHEDULED)
    return copy
