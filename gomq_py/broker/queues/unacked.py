"""Unacked: keeps the unsettled deliveries of one client session, by delivery tag.

A session, such as an AMQP channel, settles a tag here. The tag's entry names the Holder, which settles the
message with its queue. A ring has an entry of 20 bytes for each tag from the oldest outstanding to the
newest:

    offset  bytes
    0       8       location in the queue's store; 0: settled, or delivered without need of an ack
    8       4       slot of the holder (a consumer, or the basic.get calls on one queue)
    12      4       delivered at, Unix seconds
    16      4       size of the body

A full ring that is mostly settled moves the outstanding entries of its older half into the *list aside*. That
list has 28-byte entries {tag, entry}, sorted by tag. So one forgotten message does not make the ring grow
with every later delivery. An outstanding message costs 20 to 40 bytes. Never switches greenlets.
"""
from gomq_py import octets
from gomq_py.broker.features.retry import ACK, LOST, REJECT, TAKE
from gomq_py.broker.queues import queue as _queue  # noqa: F401  (its .pxd types the queues of holders)

ENTRY = 20
ASIDE = 28
FIRST_CAPACITY = 16
# A larger ring is freed when it becomes empty.
KEPT_CAPACITY = 1024
# A ``multiple`` over more entries than this is settled in slices: see settling.
LONG = 2500


class Holder:
    """Owner of unacked messages of one ``queue``: a ``consumer``, or None for basic.get calls."""

    __slots__ = ("queue", "consumer", "unacked_count", "slot", "gone", "own_timeout_ms")

    def __init__(self, queue, consumer, slot):
        self.queue = queue
        self.consumer = consumer
        self.slot = slot
        self.unacked_count = 0
        self.gone = False
        self.own_timeout_ms = -1

    def settle(self, location, how):
        """Settle a message with the queue. ``how``: ACK, LOST, RETURNED, FAILED or REJECT."""
        if how == ACK:
            self.queue.ack(location)
        elif how == LOST:
            self.queue.requeue(location)
        elif how == REJECT:
            self.queue.reject(location, False)
        else:
            self.queue.give_back(location, how)

    def timeout_ms(self):
        """Return how many ms a message may stay unacked; 0 if there is no limit."""
        return self.queue.consumer_timeout_ms if self.own_timeout_ms < 0 else self.own_timeout_ms


class Unacked:
    """A session's unsettled deliveries.

        next_tag               the tag of the next delivery
        count, body_octets     number and bytes of all outstanding messages
        consumer_count         number of outstanding messages, except those from basic.get
        acked_count            number of messages acknowledged
        returned_count         number of messages settled in another way
        redelivered_count      number of redeliveries, counted by the code that delivers
    """

    __slots__ = (
        "next_tag", "count", "consumer_count", "acked_count", "returned_count", "redelivered_count",
        "body_octets", "first_tag", "first", "capacity", "ring", "aside", "at", "aside_first", "aside_end",
        "aside_count", "holders", "free_slots", "found_ms", "found_slot", "taker",
    )

    def __init__(self):
        self.next_tag = self.first_tag = 1
        self.count = self.consumer_count = self.body_octets = self.first = self.capacity = 0
        self.acked_count = self.returned_count = self.redelivered_count = 0
        self.aside_first = self.aside_end = self.aside_count = self.found_ms = self.found_slot = 0
        self.ring = self.aside = self.taker = None
        self.holders = []
        self.free_slots = []

    # holders

    def make_holder(self, queue, consumer):
        """Make a Holder for a consumer. For None, return the Holder of all basic.get calls on ``queue``."""
        if consumer is None:
            for holder in self.holders:
                if holder is not None and holder.consumer is None and holder.queue is queue:
                    return holder
        if self.free_slots:
            slot = self.free_slots.pop()
        else:
            slot = len(self.holders)
            self.holders.append(None)
        holder = Holder(queue, consumer, slot)
        self.holders[slot] = holder
        return holder

    def let_go(self, holder):
        """Free the holder once its messages are settled. No more messages may be added for this holder."""
        holder.gone = True
        if holder.unacked_count == 0:
            self._free(holder)

    # deliveries

    def skip(self):
        """Use up a delivery tag for a delivery that needs no ack. Returns the tag."""
        tag = self.next_tag
        if tag == self.first_tag:
            self.first_tag += 1
        else:
            if tag - self.first_tag == self.capacity:
                self._make_room()
            octets.put_le64(self.at, self._offset(tag), 0)
        self.next_tag = tag + 1
        return tag

    def add(self, holder, location, size, now_s):
        """Add a delivery that needs an ack. Returns its delivery tag. ``size``: bytes of the body; ``now_s``:
        Unix seconds.
        """
        tag = self.next_tag
        if tag - self.first_tag == self.capacity:
            self._make_room()
        offset = self._offset(tag)
        octets.put_le64(self.at, offset, location)
        octets.put_le32(self.at, offset + 8, holder.slot)
        octets.put_le32(self.at, offset + 12, now_s)
        octets.put_le32(self.at, offset + 16, size)
        self.next_tag = tag + 1
        self.count += 1
        if holder.consumer is not None:
            self.consumer_count += 1
        self.body_octets += size
        holder.unacked_count += 1
        return tag

    # settling

    def is_outstanding(self, tag):
        """True if this tag was delivered and is not settled yet."""
        if tag >= self.next_tag or tag == 0:
            return False
        if tag >= self.first_tag:
            return octets.le64(self.at, self._offset(tag)) != 0
        return self._find_aside(tag) >= 0

    def settle(self, tag, multiple):
        """Settle a delivery as acknowledged (basic.ack). Returns False for an unknown tag, without any
        effect. With ``multiple`` settles all deliveries up to ``tag``, or all deliveries if ``tag`` is 0.
        """
        if not multiple and tag >= self.first_tag and tag < self.next_tag:
            offset = self._offset(tag)
            location = octets.le64(self.at, offset)
            if location == 0:
                return False
            octets.put_le64(self.at, offset, 0)
            self._release(self.at, offset, location, ACK)
            if tag == self.first_tag:
                self._advance()
            return True
        return self._settle_slow(tag, multiple, ACK)

    def reject(self, tag, multiple, requeue):
        """Reject a delivery if ``requeue`` is 0; otherwise requeue it as LOST, RETURNED or FAILED.
        Returns False for an unknown tag, without any effect. With ``multiple`` settles all deliveries up to
        ``tag``, or all deliveries if ``tag`` is 0.
        """
        return self._settle_slow(tag, multiple, requeue if requeue else REJECT)

    def take(self, tag, taker):
        """Remove a delivery and call ``taker(queue, location)``. Returns False for an unknown tag. In the
        queue the message stays unacked, until the taker has the queue settle the message.
        """
        self.taker = taker
        try:
            return self._settle_slow(tag, False, TAKE)
        finally:
            self.taker = None

    def take_some(self, tag, taker, limit):
        """Remove up to ``limit`` deliveries up to ``tag``, the oldest first. Returns True if more are left.
        Calls ``taker(queue, location)`` for each, as take() does.
        """
        self.taker = taker
        try:
            return self.settle_some(tag, TAKE, limit)
        finally:
            self.taker = None

    def is_long(self, tag):
        """True if the deliveries up to ``tag`` (all if 0) may be so many that they are settled in slices."""
        if tag == 0 or tag >= self.next_tag:
            tag = self.next_tag - 1
        return self.aside_count > LONG or tag >= self.first_tag + LONG

    def settle_some(self, tag, how, limit):
        """Settle up to ``limit`` outstanding messages up to ``tag``, the oldest first. Returns True if more
        are left. ``how``: ACK, LOST, RETURNED, FAILED or REJECT.
        """
        while limit > 0 and self.aside_count and self._aside_tag(self.aside_first) <= tag:
            self._settle_aside(self.aside_first, how)
            self._tidy_aside()
            limit -= 1
        if self.aside_count and self._aside_tag(self.aside_first) <= tag:
            return True
        while limit > 0 and self.first_tag <= tag and self.first_tag < self.next_tag:
            self._settle_ring(self.first_tag, how)
            self._advance()
            limit -= 1
        return self.first_tag <= tag and self.first_tag < self.next_tag

    def next_outstanding(self, tag):
        """Return the first outstanding tag above ``tag``; 0 if there is none."""
        if self.aside_count:
            row = self._aside_from(tag + 1)
            while row < self.aside_end:
                if self._aside_tag(row):
                    return self._aside_tag(row)
                row += 1
        tag += 1
        if tag < self.first_tag:
            tag = self.first_tag
        while tag < self.next_tag:
            if octets.le64(self.at, self._offset(tag)):
                return tag
            tag += 1
        return 0

    def entries(self, limit):
        """List up to ``limit`` outstanding messages, oldest first. Slow; for inspection only. An entry is
        (tag, Holder, location, delivered at in Unix seconds, bytes of the body).
        """
        found = []
        for row in range(self.aside_first, self.aside_end):
            tag = self._aside_tag(row)
            if tag and len(found) < limit:
                found.append((tag, *self._describe(octets.pointer(self.aside), row * ASIDE + 8)))
        for tag in range(self.first_tag, self.next_tag):
            if len(found) >= limit:
                break
            if self.is_outstanding(tag):
                found.append((tag, *self._describe(self.at, self._offset(tag))))
        return found

    def holding(self):
        return [holder for holder in self.holders if holder is not None and holder.unacked_count]

    def queue_of(self, tag):
        """Return the queue of an outstanding message; None for an unknown tag."""
        if not self.is_outstanding(tag):
            return None
        if tag >= self.first_tag:
            return self._describe(self.at, self._offset(tag))[0].queue
        return self._describe(octets.pointer(self.aside), self._find_aside(tag) * ASIDE + 8)[0].queue

    def due_ms(self):
        """Return when the first message exceeds its consumer timeout, in Unix ms; 0 if no message does."""
        # Entries are in order of delivery, so the search ends at the first that is young enough: it looks at
        # one entry if all queues have the same timeout.
        self._find_due()
        return self.found_ms

    def overdue(self, now_ms):
        """Return the Holder of the first message beyond its consumer timeout; None if there is none."""
        self._find_due()
        if self.found_ms == 0 or self.found_ms > now_ms:
            return None
        return self.holders[self.found_slot]

    def _find_due(self):
        self.found_ms = self.found_slot = 0
        shortest_ms = 0
        for holder in self.holders:
            if holder is not None and holder.unacked_count and holder.timeout_ms():
                timeout_ms = holder.timeout_ms()
                if shortest_ms == 0 or timeout_ms < shortest_ms:
                    shortest_ms = timeout_ms
        if shortest_ms == 0:
            return
        for row in range(self.aside_first, self.aside_end):
            if (
                self._aside_tag(row)
                and not self._note_due(octets.pointer(self.aside), row * ASIDE + 8, shortest_ms)
            ):
                return
        tag = self.first_tag
        while tag < self.next_tag:
            offset = self._offset(tag)
            if octets.le64(self.at, offset) and not self._note_due(self.at, offset, shortest_ms):
                return
            tag += 1

    def _note_due(self, at, offset, shortest_ms):
        # The delivery time is known in whole seconds: count from the end of its second.
        since_ms = octets.le32(at, offset + 12)
        since_ms = (since_ms + 1) * 1000
        if self.found_ms and since_ms + shortest_ms >= self.found_ms:
            return False
        slot = octets.le32(at, offset + 8)
        holder = self.holders[slot]
        timeout_ms = holder.timeout_ms()
        if timeout_ms and (self.found_ms == 0 or since_ms + timeout_ms < self.found_ms):
            self.found_ms = since_ms + timeout_ms
            self.found_slot = slot
        return True

    def queues(self):
        """Return the queues of outstanding messages, as keys of a dict."""
        return {holder.queue: None for holder in self.holders if holder is not None and holder.unacked_count}

    def memory_octets(self):
        return self.capacity * ENTRY + (0 if self.aside is None else len(self.aside))

    def _describe(self, at, offset):
        holder = self.holders[octets.le32(at, offset + 8)]
        return holder, octets.le64(at, offset), octets.le32(at, offset + 12), octets.le32(at, offset + 16)

    # the ring

    def _offset(self, tag):
        index = self.first + (tag - self.first_tag)
        if index >= self.capacity:
            index -= self.capacity
        return index * ENTRY

    def _advance(self):
        while self.first_tag < self.next_tag and octets.le64(self.at, self.first * ENTRY) == 0:
            self.first_tag += 1
            self.first += 1
            if self.first == self.capacity:
                self.first = 0
        if self.first_tag == self.next_tag and self.capacity > KEPT_CAPACITY:
            self.ring = None
            self.capacity = self.first = 0

    def _settle_ring(self, tag, how):
        offset = self._offset(tag)
        location = octets.le64(self.at, offset)
        if location:
            octets.put_le64(self.at, offset, 0)
            self._release(self.at, offset, location, how)

    def _release(self, at, offset, location, how):
        holder = self.holders[octets.le32(at, offset + 8)]
        self.count -= 1
        if holder.consumer is not None:
            self.consumer_count -= 1
        self.body_octets -= octets.le32(at, offset + 16)
        holder.unacked_count -= 1
        if how == ACK:
            self.acked_count += 1
        else:
            self.returned_count += 1
        if holder.gone and holder.unacked_count == 0:
            self._free(holder)
        if how == TAKE:
            self.taker(holder.queue, location)
        else:
            holder.settle(location, how)

    def _make_room(self):
        if self.capacity > KEPT_CAPACITY and self.count - self.aside_count <= self.capacity // 2:
            self._move_aside(self.capacity // 2)
            if self.capacity:
                return
            # the ring became empty and was freed
        if self.capacity < 65536:
            capacity = max(self.capacity * 2, FIRST_CAPACITY)
        else:
            # Large rings grow by an eighth, so that a million outstanding messages cost 20 to 23 octets each.
            capacity = self.capacity + self.capacity // 8
        ring = bytearray(capacity * ENTRY)
        head = self.capacity - self.first
        if self.ring is not None:
            ring[0:head * ENTRY] = self.ring[self.first * ENTRY:self.capacity * ENTRY]
            ring[head * ENTRY:self.capacity * ENTRY] = self.ring[0:self.first * ENTRY]
        self.ring = ring
        self.at = octets.pointer(ring)
        self.capacity = capacity
        self.first = 0

    # entries that moved aside

    def _move_aside(self, entries):
        if self.aside is None:
            self.aside = bytearray()
        row = bytearray(8)
        while entries > 0:
            if octets.le64(self.at, self.first * ENTRY):
                octets.put_le64(octets.pointer(row), 0, self.first_tag)
                self.aside += row
                self.aside += self.ring[self.first * ENTRY:self.first * ENTRY + ENTRY]
                self.aside_end += 1
                self.aside_count += 1
            self.first_tag += 1
            self.first += 1
            if self.first == self.capacity:
                self.first = 0
            entries -= 1
        self._advance()

    def _aside_tag(self, row):
        """Return the delivery tag in a row of ``aside``; 0 if that delivery is settled."""
        at = octets.pointer(self.aside)
        if octets.le64(at, row * ASIDE + 8) == 0:
            return 0
        return octets.le64(at, row * ASIDE)

    def _find_aside(self, tag):
        """Return the row of an outstanding tag in ``aside``; -1 if it is not there."""
        row = self._aside_from(tag)
        if row < self.aside_end and self._aside_tag(row) == tag:
            return row
        return -1

    def _aside_from(self, tag):
        """Return the first row in ``aside`` whose tag is ``tag`` or higher."""
        low = self.aside_first
        high = self.aside_end
        while low < high:
            middle = (low + high) // 2
            if octets.le64(octets.pointer(self.aside), middle * ASIDE) < tag:
                low = middle + 1
            else:
                high = middle
        return low

    def _settle_aside(self, row, how):
        offset = row * ASIDE + 8
        location = octets.le64(octets.pointer(self.aside), offset)
        if location == 0:
            return
        octets.put_le64(octets.pointer(self.aside), offset, 0)
        self.aside_count -= 1
        self._release(octets.pointer(self.aside), offset, location, how)

    def _tidy_aside(self):
        if self.aside_count == 0:
            self.aside = None
            self.aside_first = self.aside_end = 0
            return
        while self._aside_tag(self.aside_first) == 0:
            self.aside_first += 1
        if self.aside_end > 64 and self.aside_count < self.aside_end // 2:
            kept = bytearray()
            for row in range(self.aside_first, self.aside_end):
                if self._aside_tag(row):
                    kept += self.aside[row * ASIDE:row * ASIDE + ASIDE]
            self.aside = kept
            self.aside_first = 0
            self.aside_end = self.aside_count

    def _settle_slow(self, tag, multiple, how):
        if multiple and tag == 0:
            tag = self.next_tag - 1
        elif not self.is_outstanding(tag):
            return False
        if not multiple:
            if tag >= self.first_tag:
                self._settle_ring(tag, how)
                self._advance()
            else:
                self._settle_aside(self._find_aside(tag), how)
                self._tidy_aside()
            return True
        if self.aside_count:
            for row in range(self.aside_first, self.aside_end):
                if octets.le64(octets.pointer(self.aside), row * ASIDE) > tag:
                    break
                self._settle_aside(row, how)
            self._tidy_aside()
        while self.first_tag <= tag:
            self._settle_ring(self.first_tag, how)
            self.first_tag += 1
            self.first += 1
            if self.first == self.capacity:
                self.first = 0
        self._advance()
        return True

    def _free(self, holder):
        self.holders[holder.slot] = None
        self.free_slots.append(holder.slot)
        holder.consumer = None  # the consumer holds it
