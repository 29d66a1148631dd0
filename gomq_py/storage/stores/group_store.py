"""Group store: a message store for queues with x-message-group (docs/decisions/0034). It shows the messages
of one group in order, and to one consumer at a time.

A consumer is *bound* to a group from a delivery until every delivered message of the group is deleted or
returned. Until then, other consumers get no message of this group. Lines.turn_to() chooses the consumer that
peek() serves.

Reading skips a message that may not be delivered now, and does so only once. A skipped message *waits* in the
list of its group (storage.stores.groups) and still counts as ready. A returned message goes back into this
list. A group without delivered messages is *free* for any consumer.

peek() chooses the group that has waited longest since its last delivery, or since its message arrived. The
files are those of a message store. The order is in memory, and a later run reads the keys again. Never
switches, never flushes.
"""
from array import array
from functools import partial

from gomq_py.content import forms
from gomq_py.errors import Malformed
from gomq_py.storage.format import record
from gomq_py.storage.message import Message
from gomq_py.storage.stores import message_store
from gomq_py.storage.stores.group_key import GroupKey
from gomq_py.storage.stores.groups import Group, Lines, WaitingLists
from gomq_py.storage.stores.recovery import open_store
from gomq_py.storage.stores.requeued import DeliveryCounts

BASIC = forms.BASIC  # so that its .pxd can type it

# Most messages that wait behind their group, twelve octets each: 48 MiB. If they are that many, the cursor
# rests until some of them are delivered.
WAITING_MAX = 4 << 20
# Most groups that are bound or have waiting messages: some 300 octets each. Further groups wait.
GROUPS_MAX = 1 << 16
# With a ready group the cursor passes over no more messages if so many wait: nobody needs it then.
LOOK_AHEAD = 100_000
# Messages that the cursor passes over in one turn of the queue: about a millisecond.
PASSED_IN_A_TURN = 2000
# Properties of so many octets, among which the key is searched and digested, count as one message more.
KEY_OCTETS_PER_PASS = 256

# Most messages of a group at a time, where nothing else is said.
NO_LIMIT = 1 << 30
BEHIND_ALL = (1 << 64) - 1  # higher than any location

_FROM_GROUP = 3  # beside message_store's


class GroupStore(message_store.MessageStore):
    """Keeps the messages of one queue with groups. Made by open_group_store.

        group_key     the GroupKey that reads the group of a message
        group_limit   limit of unacknowledged messages per group
        waiting       the WaitingLists
        lines         the Lines, which choose the next group for a consumer
        passes_on     True after PASSED_IN_A_TURN skipped messages, until begin_turn()
        is_full       True after too many waiting messages or groups have stopped peek(), until begin_turn()
        _groups       {key: Group} of groups that are bound, have waiting messages, or were served lately
        _by_id        list of the same groups; a free id has None and is in _free_ids
        _out          location of a delivered message -> id of its Group
        _resting      locations of delivered messages that wait for a retry; each blocks its group
        _removed      locations of unacked messages that leave() or pick() took out of a list
    """

    __slots__ = (
        "group_key", "group_limit", "waiting", "lines", "passes_on", "is_full", "_groups", "_by_id",
        "_free_ids", "_out", "_resting", "_removed", "_passes_left", "_shown_location", "_shown_key",
        "_shown_group", "_awaited", "_lately", "_looked_at", "_opened", "waiting_max", "groups_max",
        "look_ahead",
    )

    def __init__(self, key, group_limit, *arguments):
        message_store.MessageStore.__init__(self, *arguments)
        self.group_key = key
        self.group_limit = group_limit or NO_LIMIT
        self.waiting = WaitingLists()
        self.lines = Lines()
        self.waiting_max, self.groups_max, self.look_ahead = WAITING_MAX, GROUPS_MAX, LOOK_AHEAD
        self.passes_on = self.is_full = False
        self._groups = {}
        self._by_id: list[Group | None] = [None]  # 0 is no group
        self._free_ids = []
        self._out = DeliveryCounts()  # a table of numbers, of failed deliveries elsewhere
        self._resting = set()
        self._removed = set()
        self._shown_group = self._shown_key = self._awaited = self._lately = self._opened = None
        self._passes_left = PASSED_IN_A_TURN
        self._shown_location = 0
        self._looked_at = Message()

    # taking messages

    def peek(self, message):
        """Set ``message`` to the next message that the served consumer may have.

        This is a returned message without a group, or the first message of the group that has been ready
        longest. An unread message comes first if it came earlier. False without one, or while is_waiting().
        """
        self._awaited = None
        first = self.lines.first()
        if self.requeued is not None and self.requeued.heap.count and (
            first is None or self.requeued.heap.first() < first.since
        ):
            return self._peek_requeued(message)
        while not self.passes_on and (first is None or self.waiting.count < self.look_ahead):
            if not message_store.MessageStore.peek(self, message):
                break
            if first is not None and self._peeked_location >= first.since:
                break
            if self._peeked_location != self._shown_location:
                self._shown_location = self._peeked_location
                self._shown_key = self._key_of(message)
                self._passes_left -= message.properties_length // KEY_OCTETS_PER_PASS
            if self._shown_key is None:
                return True
            group = self._shown_group = self._groups.get(self._shown_key)
            if group is None:
                if len(self._groups) - self.lines.served_count() < self.groups_max:
                    return True
                self.is_full = True
                break
            if group.count == 0 and group.since <= self._peeked_location and (
                group.out == 0 or (group.line is self.lines.now and self._may_go(group))
            ):
                return True
            if self.waiting.count >= self.waiting_max:
                self.is_full = True
                break
            self._pass_over(group)
            first = self.lines.first()
        return False if first is None else self._peek_group(message, first)

    def shift(self):
        """Take the message of the last peek, and bind its group to the served consumer."""
        location = self._peeked_location
        if self._peeked == _FROM_GROUP:
            group = self._shown_group
            self._take_waiting(group)
            self._go_out(group, location)
            if group.count and self._may_go(group):
                self.lines.make_ready(group, self._since(group))
            return 0
        came_now = self._peeked == message_store._FROM_CURSOR
        message_store.MessageStore.shift(self)
        if came_now and self._shown_location == location and self._shown_key is not None:
            self._go_out(self._shown_group or self._group(self._shown_key), location)
        return 0

    def oldest(self, message):
        """Set ``message`` to the oldest ready message, whatever the state of its group. Take it with leave().
        """
        group = self.waiting.oldest(self._groups)
        if self.requeued is not None and self.requeued.heap.count and (
            group is None or self.requeued.heap.first() < self.waiting.first(group)
        ):
            return self._peek_requeued(message)
        if group is not None:
            return self._peek_group(message, group)
        return message_store.MessageStore.peek(self, message)

    def leave(self):
        """Take the message of the last peek() or oldest() without binding its group to a consumer."""
        if self._peeked != _FROM_GROUP:
            return message_store.MessageStore.shift(self)
        group = self._shown_group
        self._removed.add(self._peeked_location)
        self._take_waiting(group)
        if group.count == 0:
            self._forget(group)
        return 0

    def begin_turn(self):
        """Begin another delivery round, in which peek() may skip PASSED_IN_A_TURN messages."""
        self.passes_on = self.is_full = False
        self._passes_left = PASSED_IN_A_TURN

    def deliverable(self):
        """Return the number of ready messages that peek() may show to any consumer: not those of bound groups
        (see Lines.due), and unread ones only while ``passes_on`` and ``is_full`` are False.
        """
        count = self.lines.free.count
        if not self.passes_on and not self.is_full:
            count += self.ready_count - self.waiting.count
        elif self.requeued is not None:
            count += self.requeued.heap.count
        return count

    def is_waiting(self):
        if self._awaited is not None:
            return self.opener is not None and self.opener.is_awaited(self._awaited)
        if self.lines.first() is not None or (self.requeued is not None and self.requeued.heap.count):
            return False
        return self.passes_on or message_store.MessageStore.is_waiting(self)

    def shows_recovered(self):
        if self._peeked == _FROM_GROUP:
            return self._peeked_count > 0 and (
                self.requeued is None or self.requeued.counts.get(self._peeked_location) == 0)
        return message_store.MessageStore.shows_recovered(self)

    def peeked_due_s(self, now_s):
        if self._peeked != _FROM_GROUP:
            return message_store.MessageStore.peeked_due_s(self, now_s)
        segment = self._find(self._peeked_location)
        if segment is None or segment.recovered is None:
            return 0
        recovered = segment.recovered
        return recovered.due_before(record.position_of(self._peeked_location), self._peeked_count, now_s)

    def delete(self, location):
        message_store.MessageStore.delete(self, location)
        if self._removed:
            self._removed.discard(location)
        group = self._out_of(location)
        if group is not None:
            self._out.discard(location)
            self._come_in(group, location)
        return 0

    def requeue(self, location):
        group = self._out_of(location)
        if group is not None:
            self._out.discard(location)
            self._put_back(location, group, 1)
            return self._come_in(group, location)
        key = self._key_at(location)
        if key is not None:  # it was taken by leave()
            return self._wait_again(location, self._group(key), 1)
        return message_store.MessageStore.requeue(self, location)

    def postpone(self):
        location = self._peeked_location
        message_store.MessageStore.postpone(self)
        return self._rest(location)

    def wait_until(self, location, count, due_s):
        self._rest(location)
        return message_store.MessageStore.wait_until(self, location, count, due_s)

    def _rest(self, location):
        """Stop deliveries of the message's group until the message is ready again or deleted."""
        group = self._out_of(location)
        if group is not None:
            self._resting.add(location)
            group.resting += 1
            if group.place:
                group.line.remove(group)
        return 0

    def _out_of(self, location):
        return self._by_id[self._out.get(location)]

    def _may_go(self, group):
        return group.resting == 0 and group.out < self.group_limit

    def _group(self, key):
        group = self._groups.get(key)
        if group is None:
            if not self._free_ids:
                self._free_ids.append(len(self._by_id))
                self._by_id.append(None)
            group = self._groups[key] = Group(key, self._free_ids.pop(), self.lines.free)
            self._by_id[group.id] = group
        return group

    def _drop_group(self, group):
        del self._groups[group.key]
        self._by_id[group.id] = None
        self._free_ids.append(group.id)
        group.number = 0  # Lines forgets it
        if self._shown_group is group:
            self._shown_group = None
        return 0

    def _go_out(self, group, location):
        if group.out == 0:
            self.lines.bind(group)
        group.out += 1
        self._out.put(location, group.id, 0)
        if group.place and not self._may_go(group):
            group.line.remove(group)
        return 0

    def _come_in(self, group, location):
        group.out -= 1
        if self._resting and location in self._resting:
            self._resting.remove(location)
            group.resting -= 1
        if group.out and group.place and not group.returned:
            return 0
        since = self._since(group)
        if group.out:
            if group.count == 0:
                group.since = since
            else:
                self._perhaps_ready(group, since)
            return 0
        self.lines.release(group)
        if group.count:
            return self.lines.make_ready(group, since)
        self.lines.note_served(group, since)
        cursor = self._cursor_location()
        while (served := self.lines.next_forgotten(cursor)) is not None:
            self._drop_group(served)
        return 0

    def _since(self, group):
        """Return a location that stands for the time at which the group's present wait began: that of the
        group's first message if this message was returned, otherwise the log's end.
        """
        if group.count and group.returned:
            location = self.waiting.first(group)
            if location <= group.returned:
                return location
        return self._end_location()

    def _perhaps_ready(self, group, since):
        if not self._may_go(group):
            return 0
        if group.place and group.since <= since:
            return self.lines.note(group.line)
        return self.lines.make_ready(group, since)

    def _end_location(self):
        """Return the location of the end of the last segment; 0 without a segment."""
        if self._last is None:
            return 0
        return record.location_of(self._level_bits, self._last.number, self._last.end + self._staged)

    def _cursor_location(self):
        """Return the location up to which messages were read; BEHIND_ALL after the last one or a stop."""
        requeued = 0 if self.requeued is None else self.requeued.heap.count
        if self.ready_count - self.waiting.count - requeued <= 0 or self.read_segment is None:
            return BEHIND_ALL
        return record.location_of(self._level_bits, self.read_segment.number, self.read_at)

    def _pass_over(self, group):
        """Skip the unread message that peek() has reached, and add it to the list of its group."""
        location = self._peeked_location
        self.waiting.push(group, location)
        segment = self.read_segment
        segment.take(self.read_at)
        self.read_at += self._peeked_size
        self._peeked = 0
        self._passes_left -= 1
        if self._passes_left <= 0:
            self.passes_on = True
        if not group.place:
            self._perhaps_ready(group, max(group.since, location))
        return 0

    def _peek_group(self, message, group):
        """Set ``message`` to the group's first waiting message. Returns False if its file is not open yet."""
        location = self.waiting.first(group)
        segment = self._segment_of(location, True)
        if segment is None:
            return False
        at = record.position_of(location)
        self._peeked_size = segment.fill(at, message)
        self._peeked = _FROM_GROUP
        self._shown_group = group
        self._peeked_body = message.body_length
        self._peeked_location = message.location = location
        if self.requeued is not None or segment.recovered is not None:
            self._peeked_count, self._peeked_entry = self._counts_of(segment, location)
        else:
            self._peeked_count = self._peeked_entry = 0
        message.delivery_count = self._peeked_count
        message.redelivered = self._peeked_count > 0
        return True

    def _take_waiting(self, group):
        self.waiting.pop(group)
        self._peeked = 0
        self._shown_group = None
        if self._peeked_count:
            self._remember_count()
        self._count_taken(1, self._peeked_body)
        return 0

    def _forget(self, group):
        if group.out == 0:
            self._drop_group(group)
        return 0

    def _counts_of(self, segment, location):
        """Return (failed deliveries, index + 1 of the COUNT entry or 0) of a waiting message."""
        if self.requeued is not None:
            count = self.requeued.counts.get(location)
            if count:
                return count, self.requeued.counts.get_entry(location)
        recovered = segment.recovered
        return (0, 0) if recovered is None else recovered.failed_before(record.position_of(location))

    def _key_of(self, message):
        if self.group_key.is_in_routing:
            return self.group_key.in_routing(message.buffer, message.routing_at)
        if message.kind == BASIC:
            return self.group_key.in_properties(message.buffer, message.properties_at)
        try:
            return self.group_key.of_octets(message.get_properties())
        except Malformed:
            return None

    # files

    def _segment_of(self, location, can_wait):
        """Return the open Segment of a waiting message; None while a thread opens it, or on an I/O error."""
        segment = self._lately
        if segment is None or segment.number != record.number_of(location):
            segment = self._lately = self._segments[record.number_of(location)]
        if not segment.is_open and not self._try_to_open(segment, can_wait):
            if self.failure is None:
                self._awaited = segment
            return None
        recovered = segment.recovered
        if recovered is not None and segment is not self.read_segment and recovered.proven < segment.end:
            if not recovered.prove_all(self, segment):
                return None
        return segment

    def _is_idle(self, segment):
        # waiting messages need no open file
        return (
            segment is not self.read_segment and segment is not self._run.segment
            and segment.taken - self.waiting.in_segment(segment.number) == segment.acked
        )

    def _pass(self, segment):
        message_store.MessageStore._pass(self, segment)
        if (
            segment.is_open and not self.durable and segment is not self._write
            and self.waiting.in_segment(segment.number) and self._is_idle(segment)
        ):
            self._close_segment(segment)  # a durable one is closed after its flush
        return 0

    # out of turn

    def pick(self, location):
        group = self._waits_in(location)
        if group is None:
            return message_store.MessageStore.pick(self, location)
        segment = self._segment_of(location, False)
        self._peeked = 0
        if segment is None or not self.waiting.remove(group, location):
            return False
        failed, entry = self._counts_of(segment, location)
        if failed:  # kept in case it comes back again
            self._have_requeued().counts.put(location, failed, entry)
        self._removed.add(location)
        self._count_taken(1, segment.body_length_at(record.position_of(location)))
        if group.count == 0:
            self._forget(group)
        return True

    def unpick(self, location):
        if self._before_cursor(location) is not None:
            return message_store.MessageStore.unpick(self, location)
        key = self._key_at(location)
        if key is None:
            return message_store.MessageStore.unpick(self, location)
        return self._wait_again(location, self._group(key), 0)

    def _wait_again(self, location, group, failed):
        """Return a message taken by leave() or pick() to its group, adding ``failed`` failed deliveries."""
        self._put_back(location, group, failed)
        return self._perhaps_ready(group, location) if group.count else 0

    def _put_back(self, location, group, failed):
        self._removed.discard(location)
        segment = self._find(location)
        if segment is None:
            return 0
        if failed:
            counts = self._have_requeued().counts
            counts.put(location, counts.get(location) + failed, counts.get_entry(location))
        self.waiting.insert(group, location)
        group.returned = max(group.returned, location)
        self._count_taken(-1, segment.body_length_at(record.position_of(location)))
        return 0

    def _waits_in(self, location):
        """Return the Group whose list contains the location, or None."""
        if not self.waiting.in_segment(record.number_of(location)) or location in self._removed:
            return None
        if self._before_cursor(location) is not None or self._out.get(location):
            return None
        was_open = self._segments[record.number_of(location)].is_open
        segment = self._segment_of(location, False)
        if segment is None:
            return None
        if not was_open:
            self._close_again()
            self._opened = segment
        key = self._key_in(segment, location)
        group = None if key is None else self._groups.get(key)
        if group is None or group.count == 0 or self.waiting.first(group) > location:
            return None
        return group

    def _close_again(self):
        # A browser may look at each message of a long queue, and must not leave all its files open.
        segment, self._opened = self._opened, None
        if segment is not None and segment.is_open and not segment.unsynced and self._is_idle(segment):
            self._close_segment(segment)

    def _key_at(self, location):
        segment = self._find(location)
        return None if segment is None else self._key_in(segment, location)

    def _key_in(self, segment, location):
        segment.fill(record.position_of(location), self._looked_at)
        return self._key_of(self._looked_at)

    # the slow verbs

    def purge(self):
        requeued = self._have_requeued()
        for group in self._groups.values():
            for location in self.waiting.drain(group):
                requeued.heap.push(location)
        for group in list(self._groups.values()):
            if group.out == 0:
                self._drop_group(group)
        self.begin_turn()
        return message_store.MessageStore.purge(self)

    def passed_over(self):
        locations = array("Q")
        for group in self._groups.values():
            locations.extend(self.waiting.all(group))
        return locations

    def is_passed_over(self, location):
        return self._waits_in(location) is not None

    def oldest_ready_ms(self):
        oldest = message_store.MessageStore.oldest_ready_ms(self)
        waiting = self.longest_wait_ms()
        return waiting if waiting and (oldest == 0 or waiting < oldest) else oldest

    # shown to operators

    @property
    def groups_out(self):
        """Number of groups that are bound to a consumer."""
        return self.lines.bound_count()

    @property
    def messages_out(self):
        """Number of delivered and not yet settled messages that belong to a group."""
        return self._out.count

    def longest_wait_ms(self):
        """Return the Unix ms at which the oldest waiting message arrived; 0 without a waiting message."""
        group = self.waiting.oldest(self._groups)
        if group is None:
            return 0
        location = self.waiting.first(group)
        segment = self._segments[record.number_of(location)]
        at = record.position_of(location)
        return segment.timestamp_at(at) if segment.is_open else segment.timestamps[0]

    def deepest(self):
        """Return (key, message count) of the group with the most waiting messages; (None, 0) without one."""
        deepest = None
        for group in self._groups.values():
            if group.count > (0 if deepest is None else deepest.count):
                deepest = group
        return (None, 0) if deepest is None else (deepest.key, deepest.count)


def open_group_store(
    folder, files, pool, committer, incarnation, named_by, group_limit=0, segment_bytes=8388608,
    durable=True, listener=None
):
    """Create or open a GroupStore; see open_store for the other arguments and the result. ``named_by``: the
    arguments of GroupKey. ``group_limit``: limit of unacknowledged messages per group; 0: none.
    """
    return open_store(
        folder, files, pool, committer, incarnation, segment_bytes, durable, 0, listener,
        partial(GroupStore, GroupKey(*named_by), group_limit))
