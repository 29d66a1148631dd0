"""Delay queue: keeps the messages of a delayed exchange in a store until they are due.

A message stays unacked in the store until it was released and its copies are on disk. A DueTimer, filled from
the store at boot, orders the messages by due time. Messages with the flag SCHEDULED are sent again and again
(broker.transfer.schedules). Never switches greenlets.

The only Python object of a message is its location: the headers are read in place, and a due message is
copied into a buffer that all messages of a slice share. Messages with unusual properties take a slower path
with the same results, through ``due_ms_of`` and ``release``.
"""
from gomq_py import octets
from gomq_py.broker.exchanges import schedule
from gomq_py.broker.queues import due_timer as _due_timer
from gomq_py.broker.queues.set_aside import SetAside, described
from gomq_py.broker.routing import route as _routes
from gomq_py.broker.transfer import engine as _engine
from gomq_py.broker.transfer.schedules import Schedules
from gomq_py.content import forms, properties
from gomq_py.content.properties import PropertyScan
from gomq_py.observability.log import logger
from gomq_py.observability.quiet_log import QuietLog
from gomq_py.storage.errors import StoreError, StoreFull, StoreLater
from gomq_py.storage.message import Message

LOG = logger("queue")
QUIET = QuietLog(LOG)

BASIC, SCHEDULED = forms.BASIC, schedule.SCHEDULED  # so that its .pxd can type them
# Delay before the next attempt for a message whose remaining queues are closed by a fault.
CLOSED_MS = 10_000
# Least interval between two log lines about a full disk.
COMPLAIN_MS = 10_000
# Messages whose due times are read between two looks at the clock: less than 1 ms.
REBUILT_AT_ONCE = 500


class DelayQueue(_routes.Destination):
    """Keeps messages until ``due_ms_of(message)`` (Unix milliseconds).

    At boot the owner calls ``rebuild_some`` until it returns False, to load stored messages.

        release(message, pending)    publishes a message; returns the destinations whose stores lack room.
                                     ``pending``: None at the first attempt, then the last result
        routes                       RememberedRoutes by exchange and routing key; None: ``release`` routes
                                     each message
        on_failed()                  if set, called when a fault has closed the queue
        may_write(user)              if set, returns False if a schedule of this user must not be sent
        schedules                    a Schedules; None before the first message with a schedule
    """

    __slots__ = (
        "store", "closed", "aside", "due_ms_of", "release", "routes", "scheduler", "timers", "due",
        "on_failed", "may_write", "schedules", "_complained_ms", "_transfer", "_waiting", "_message",
        "_when_safe",
    )

    def __init__(self, name, durable, store, scheduler, durability, timers):
        _routes.Destination.__init__(self, name, durable)
        self.store = store
        self.closed = False
        self.aside = None  # a SetAside, made for its first message
        self._complained_ms = 0
        self.due_ms_of = self.release = self.routes = None
        self.scheduler = scheduler
        self.timers = timers
        self._waiting = DueMessages(self)
        self._when_safe = durability.when_safe
        self._transfer = _engine.Transfer(
            "delayed messages", self._waiting, ReleasedMessages(self, self._waiting.pending), scheduler,
            timers, durability.when_safe,
        )
        self.due = _due_timer.DueTimer(timers, self._are_due)
        self._message = Message()
        self.on_failed = self.may_write = self.schedules = None
        store.listener = self

    @property
    def count(self):
        return self.due.count

    def first(self, count):
        """List (due_ms, location) of the ``count`` messages due first, in order."""
        return [] if self.closed else self.due.first(count)

    def show(self, location, message):
        """Fill ``message`` with the waiting message at ``location``. Returns False if it is missing."""
        return not self.closed and bool(self.store.read(location, message))

    def publish(self, message):
        """Store a message until it is due. Returns 1: stored; 0: refused; LATER: publish again later."""
        if self.closed:
            self.unable = True
            return 0
        self.unable = False
        if has_schedule(message):
            return self._publish_schedule(message)
        due_ms = self._scanned_due_ms(message)
        if due_ms <= 0:
            try:
                due_ms = self.due_ms_of(message)
            except Exception as error:
                QUIET.error(self.name, "%s refuses a message: %s", self.name, described(error))
                return 0
        return self._store(message, due_ms)

    def _store(self, message, due_ms):
        expires_at_ms = message.expires_at_ms  # the due time takes its place in the store
        message.expires_at_ms = due_ms
        try:
            self.store.append(message)
            self.take_newest()
        except StoreLater as error:
            message.lacking = error.wait
            return _routes.LATER
        except StoreError as error:
            self.unable = True
            if isinstance(error, StoreFull):
                self.complain("refuses messages: %s", error)
            else:
                self.fail(error)
            return 0
        finally:
            message.expires_at_ms = expires_at_ms
        if not self.touched:
            self.scheduler.touch(self)
        return 1

    def _publish_schedule(self, message):
        """Set or replace a schedule. An empty message deletes it."""
        if not message.body_length:
            self.delete_schedule(schedule.of_message(message).name)
            self.unable = self.closed
            return not self.closed
        try:
            if self.made_schedules().has_same(message):
                return 1
            copy = self.schedules.first_copy(message)
        except StoreError as error:
            self.unable = True
            self.fail(error)
            return 0
        except Exception as error:  # the file of its time zone is gone
            QUIET.error(self.name, "%s refuses a schedule: %s", self.name, described(error))
            return 0
        if copy is None:
            return 0
        copy.may_wait = message.may_wait
        answer = self._store(copy, copy.expires_at_ms)
        message.lacking = copy.lacking
        return answer

    def delete_schedule(self, name):
        """Delete a schedule. Returns False if it is missing, or if the queue is closed."""
        try:
            return not self.closed and self.schedules is not None and self.schedules.delete(name)
        except StoreError as error:
            self.fail(error)
            return False

    def made_schedules(self):
        if self.schedules is None:
            self.schedules = Schedules(self, self._when_safe, self._waiting.pending, self._are_due)
            self.schedules.may_write = self.may_write
        return self.schedules

    def _are_due(self):
        self._transfer.start()

    def _scanned_due_ms(self, message):
        """Return the due time (Unix ms) of a message whose headers are simple, without decoding them. A
        result of 0 or less means that due_ms_of() must compute it.
        """
        p, at = message.buffer, message.properties_at
        if (
            message.kind != forms.BASIC or message.properties_length <= 2
            or not octets.be16(p, at) & properties.HEADERS
        ):
            return properties.UNTOLD
        at = properties.headers_at(p, at)
        return properties.due_ms(p, at + 4, at + 4 + octets.be32(p, at), message.timestamp_ms)

    def next_store(self):
        return self.store if self.durable else None

    def outlives_kill(self):
        return not self.durable or self.store.outlives_kill()

    def not_stored(self, error):
        self.unable = True
        self.complain("refuses messages: %s", error)

    def write_out(self):
        """Write messages that are only in memory into the files, so that they outlive a kill."""
        if not self.closed:
            try:
                self.store.write_out()
            except StoreError as error:
                self.fail(error)

    def turn(self):
        """Start the timer for the first message, unless messages are being released. Returns 0."""
        if not self._transfer.running:
            self.arm()
        return 0

    def arm(self):
        self.due.arm()
        if self.schedules is not None:
            self.schedules.arm()

    def hold_back(self):
        """Release no more messages. Released messages are still removed from the store."""
        self.due.stop()
        if self.schedules is not None:
            self.schedules.stop()
        self._transfer.close()

    def close(self):
        """Refuse new messages, release no more, and close the store. The files stay."""
        self.hold_back()
        if not self.closed:
            self.closed = True
            self.store.close()

    def retire(self):
        """Refuse new messages and release no more. The store stays open until its files are removed."""
        # Acks are written into the files, so that no message is released twice if a kill undoes the deletion.
        self.write_out()
        self.hold_back()
        self.closed = True

    def delete(self):
        """Refuse new messages, release no more, and delete the store's files."""
        self.hold_back()
        self.closed = True
        self.store.delete_files()

    def rebuild_some(self):
        """Load a slice of the stored messages into the timer. Returns True if more are left."""
        for _ in range(REBUILT_AT_ONCE):
            if not self.store.ready_count or not self.take_newest():
                self.arm()
                return False
        return True

    def take_newest(self):
        """Add the store's next ready message to a timer. Returns False if the store cannot read one."""
        message = self._message
        if not self.store.peek(message):
            return False
        self.store.shift()
        if has_schedule(message):
            self.made_schedules().add(message)
        else:
            self.due.push(message.expires_at_ms, message.location)
        return True

    def wait_again(self, location):
        """Put a due message back into the timer, because its destinations cannot store it now."""
        self.complain("keeps messages that are due: there is no room where they go%s", "")
        if self.is_scheduled(location):
            self.schedules.put_back(location, self.timers.now_ms())
        elif self.store.read(location, self._message):
            self.due.push(self._message.expires_at_ms, location)

    def put_back(self, location, due_ms):
        if self.is_scheduled(location):
            self.schedules.put_back(location, due_ms)
        else:
            self.due.push(due_ms, location)

    def is_scheduled(self, location):
        return self.schedules is not None and self.schedules.is_one(location)

    def complain(self, text, detail):
        """Log ``text`` with the argument ``detail``, at most once in COMPLAIN_MS."""
        now_ms = self.timers.now_ms()
        if not 0 <= now_ms - self._complained_ms < COMPLAIN_MS:
            self._complained_ms = now_ms
            LOG.error(f"%s {text}", self.name, detail)

    def set_aside(self, location, error):
        """Keep a message that cannot be released or dropped, until the next start of the broker."""
        if self.aside is None:
            self.aside = SetAside(self.name)
        self.aside.add(location, error, "going on after the delay")
        if self.schedules is not None:
            self.schedules.set_aside(location)

    def fail(self, error):
        """Close the queue after a fault of its store, and call ``on_failed()``."""
        self.failed = True
        if self.closed:
            return
        LOG.error("%s closed: %s", self.name, error)
        self.closed = True
        self.hold_back()
        if self.on_failed is not None:
            self.on_failed()

    def store_fenced(self, store, error):
        self.fail(error)

    def record_damaged(self, store, path, start, end, count):
        LOG.error(
            "%s: %d damaged records in %s, bytes %d to %d, set aside", self.name, count, path, start, end
        )


class DueMessages(_engine.Source):
    """Source of a DelayQueue's due messages. ``pending``: {location: destinations that lack the message}."""

    __slots__ = ("pending", "_queue")

    def __init__(self, queue):
        self.pending = {}
        self._queue = queue

    def take(self, message):
        if self._queue.schedules is not None:
            item = self._queue.schedules.take()
            if item is not None:
                return item
        return self._queue.due.take()

    def show(self, item, message):
        if self._queue.schedules is not None and self._queue.is_scheduled(item):
            return not self._queue.closed and self._queue.schedules.fill(item, message)
        return not self._queue.closed and self._queue.store.read(item, message)

    def drop(self, item):
        queue = self._queue
        if not queue.closed:
            if queue.schedules is not None and queue.is_scheduled(item):
                queue.schedules.dropped(item)
            else:
                queue.store.delete(item)
            if not queue.touched:
                queue.scheduler.touch(queue)

    def keep(self, items, error):
        """Put the messages at the locations ``items`` back, due at once: their copies are not on disk."""
        QUIET.error(
            (self._queue.name, "keep"),
            "%s: %d messages that were due stay, their copies are not on disk: %s", self._queue.name,
            len(items), error,
        )
        for item in items:
            self._queue.put_back(item, self._queue.timers.now_ms())

    def no_room(self, item, pending):
        """Put the message back. The others wait, too, unless faults have closed all of ``pending``."""
        self.pending[item] = pending
        if are_closed(pending):
            self._queue.put_back(item, self._queue.timers.now_ms() + CLOSED_MS)
            return _engine.LEFT_TO_SOURCE
        self._queue.wait_again(item)
        return _engine.ALL_WAIT

    def set_aside(self, item, error, was_sent):
        self._queue.set_aside(item, error)

    def fail(self, item, error):
        self._queue.fail(error)

    def broken(self, error):
        """Return False, which ends the transfer. It starts again when the next message is due."""
        return False

    def paused(self, unsafe):
        queue = self._queue
        if queue.routes is not None and not queue.count:
            queue.routes.forget()  # they refer to queues that may be deleted meanwhile
        queue.arm()


def has_schedule(message):
    """True if a message has a schedule. Messages of other protocols have flags of their own."""
    return message.kind == BASIC and (message.flags & SCHEDULED) != 0


def are_closed(destinations):
    return all(getattr(destination, "closed", False) for destination in destinations)


class ReleasedMessages(_engine.Target):
    """Target that publishes due messages to the destinations that the exchange finds."""

    __slots__ = ("_queue", "_pending", "_scan", "_copy", "_room")

    def __init__(self, queue, pending):
        self._queue = queue
        self._pending = pending
        self._scan = PropertyScan()
        self._copy = Message()
        self._room = _engine.CopyRoom()

    def send(self, item, message):
        queue = self._queue
        if queue.routes is None or has_schedule(message) or self._pending and item in self._pending:
            return queue.release(message, self._pending.pop(item, None)) or None
        route = self._route(queue.routes, message)
        if route is None or not self._fill(message):
            return queue.release(message, None) or None
        unable = None
        route.exchange.publish_out += len(route.queues)
        for destination in route.queues:
            if not destination.publish(self._copy) and destination.unable:
                unable = [*(unable or ()), destination]
        return unable

    def slice_over(self):
        self._copy.let_go()
        self._room.let_go()

    def _route(self, routes, message):
        """Return the cached Route of the message, or None if ``release`` must route it."""
        route = routes.last
        if route is not None:
            if not route.is_current():
                routes.forget()  # for messages of one exchange
            elif message.routing_length == len(routes.last_key) and octets.same(
                    message.buffer, message.routing_at, routes.last_key, 0, message.routing_length):
                return route
        return routes.find(message.buffer, message.routing_at, message.routing_length)

    def _fill(self, message):
        """Copy the due message to ``_copy``, with the delay headers negated. Returns False if only
        ``release`` can handle the message, as with unusual properties.
        """
        p, scan, copy = message.buffer, self._scan, self._copy
        start, end = message.properties_at, message.properties_at + message.properties_length
        # Not plain: it has further keys, or an expiration that counts from now.
        if (
            message.kind != forms.BASIC or scan.scan(p, start, end) != 0 or scan.headers_at < 0
            or scan.special or scan.expiration_at >= 0
        ):
            return False
        if not self._room.has(
                message.routing_length + message.properties_length + properties.MOST_LONGER
                + message.body_length):
            return False
        target = self._room.p
        octets.copy(target, 0, p, message.routing_at, message.routing_length)
        to = message.routing_length
        entries, rest = scan.headers_at + 4, scan.headers_at + scan.headers_length
        octets.copy(target, to, p, start, entries - start)
        table = to + entries - start
        to = properties.negate(target, table, p, entries, rest)
        if to < 0:
            return False
        octets.put_be32(target, table - 4, to - table)
        octets.copy(target, to, p, rest, end - rest)
        to += end - rest
        self._room.complete(copy, message, message.routing_length, to)
        # Its age begins now but not before it was due, because a slice has one time.
        copy.timestamp_ms = max(self._queue.scheduler.now_ms, message.expires_at_ms)
        return True
