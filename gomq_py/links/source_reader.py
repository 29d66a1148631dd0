"""Source reader: reads a transfer's messages from another broker, as a consumer over a connection.

Reads and relays messages (links.relay) when the transfer calls ``take``, and settles deliveries when it calls
``drop``. Refused messages wait here, in order, and are sent again before any new message is taken.

Messages are kept until the target confirms them, within a MemoryBudget that all links of an event loop share.
Each link may keep a part of the memory that is left, so a new link always gets memory. No link waits for
another: below LEAST_OCTETS a link may always keep more, and above that it continues when its own target
confirms. Beyond the budget there is a reserve of half its size. An account (the user who set a link, in a
vhost) may use the reserve while the account's links keep less than half of what is left of the reserve.
"""
from bisect import insort
from struct import Struct
from weakref import WeakKeyDictionary

from gomq_py.amqp.wire.errors import AMQPError
from gomq_py.broker.transfer.engine import Source
from gomq_py.client.errors import ClientError
from gomq_py.links.ends import CLOSED, RefusedByTarget
from gomq_py.links.relay import INPUT_OCTETS, OUTPUT_OCTETS, Unfit
from gomq_py.links.wire import READ_OCTETS

# Reads in a row without a message (only heartbeats or left-out messages) before others get their turn: a
# source may send these faster than they are read.
FRUITLESS_WALKS = 8
# type 1, channel, size | class and method, delivery tag, bits | CE
_SETTLE = Struct(">BHIIQBB")
# (method, bits) to settle one delivery: ack without multiple; reject; reject with requeue
_ACK, _REJECT, _REQUEUE = (0x3C0050, 0), (0x3C005A, 0), (0x3C005A, 1)
assert _SETTLE.size == 21
# All links together: a tenth of what a machine with 1 GiB has before its memory alarm.
ALL_OCTETS = 64 * 1024 * 1024
# One link: more than any target has in flight at once. Up to four links may have it.
MOST_OCTETS = 8 * 1024 * 1024
# Every link may keep one read, whatever the others keep.
LEAST_OCTETS = 64 * 1024
# A link may keep a PARTS-th of what is left: 4 links keep half of the budget, 50 links nine tenths, evenly.
PARTS = 4
_OF_HUBS: WeakKeyDictionary = WeakKeyDictionary()


class SourceReader(Source):
    """Reads a link's source. ``owner``: the LinkSession, which limits and counts the messages."""

    def __init__(self, wire, channel, relay, buffers, owner, most, is_acked, account=None):
        self.wire = wire
        self.relay = relay
        self._channel = channel
        self._buffers = buffers
        self._budget = buffers.memory_budget
        self._account = account
        self._owner = owner
        self._most = most  # most messages of a batch
        self._is_acked = is_acked
        self._tail = wire.ahead
        self._rewalk = bool(self._tail)
        self._rejects_next = False  # the next message is to be rejected as unfit
        self._refused = []  # (tag, LinkBatch) to be sent again, in order
        self._is_probing = False  # the first of _refused is sent alone
        self._probe = None  # the batch being sent alone; no other batch is taken
        self._is_pausing = False  # pause after a refusal, until the transfer calls try_again()
        self._held = set()  # refused tags, not settled: multiple may not ack past them
        self._requeued = []  # tags of refused messages that were not kept
        self._large_offset = -1
        self.kept_octets = 0  # bytes of messages kept until they are confirmed
        self.unsettled = 0

    # called by the transfer

    def take(self, message):
        """Return the next LinkBatch, or None if no message came or may be read now. ``message`` is unused."""
        if self._probe is not None:
            return None
        owner = self._owner
        if self._refused and not self.relay.missing:
            return self._take_refused() if owner.may_send() else None
        try:
            for _ in range(FRUITLESS_WALKS):
                if not owner.may_take():
                    break
                try:
                    batch = self._read()
                except Unfit as error:
                    self._rejects_next = owner.unfit(error)
                    continue
                if batch is None:
                    return None
                if batch.count or batch.size:
                    self.keep_octets(batch.size if batch.is_whole else 0)
                    self.unsettled += batch.count
                    owner.taken(batch)
                    return batch
        except (AMQPError, ClientError, OSError) as error:
            owner.fail("source", error)
        return None

    def show(self, item, message):
        """Do nothing and return True: the target writer sends the whole batch later."""
        return True

    def drop(self, item):
        """Acknowledge, or reject, the deliveries of a LinkBatch at the source."""
        self._forget(item)
        if item.count:
            if not item.is_whole:
                self._owner.link.poison_detection.large_settled(item.checksum)
            self._settle(_REJECT if item.is_rejected else _ACK, item.first_tag, item.count)
            self._owner.settled(item)

    def has_refused(self):
        """True if a refused message is ready to be sent again."""
        return bool(self._refused) and self._probe is None and not (self._is_pausing or self.relay.missing)

    def waits(self):
        """True if the source must not be read: after a refusal, until the refused messages are settled."""
        # A half-sent large message is completed first, because no other message may interrupt it.
        return self._is_pausing or not self.relay.missing and (
            bool(self._refused) or self._probe is not None)

    def on_its_way(self):
        """Return the number of messages that were read and are neither settled nor refused."""
        return self.unsettled - len(self._refused)

    def may_keep_more(self):
        """True if this link keeps less than its share of memory."""
        # Else it only completes a large message.
        return self.kept_octets < self._budget.limit(self._account)

    def keep_octets(self, count):
        """Add ``count`` bytes (negative: remove) to the memory that this link keeps."""
        self.kept_octets += count
        self._budget.keep(count, self._account)

    def close(self):
        """Release all kept messages, and detach from the session. May be called again."""
        self.keep_octets(-self.kept_octets)
        self._refused.clear()
        self._probe = None
        self._owner = CLOSED
        self._budget = MemoryBudget()  # later settlements count in no shared budget

    def has_unread(self):
        """True if bytes of the last read may hold complete messages, which no socket event announces."""
        return self._rewalk and self._probe is None

    def has_held(self):
        """True if a refused delivery is still unsettled at the source, though later ones may be settled."""
        return bool(self._held)

    def forget_refusals(self):
        """Reset the refusal counts of refused messages, because a pause of the target explains them."""
        for _, batch in self._refused:
            batch.refusals = 0
        if self._probe is not None:
            self._probe.refusals = 0

    def keep(self, items, error):
        """Keep the refused messages of ``items`` (LinkBatches) to send them again, and settle all others."""
        refused = self._owner.writer.refused
        count = 0
        for batch in items:
            numbers = refused.intersection(range(batch.first_number, batch.first_number + batch.count))
            if not batch.is_sent or not numbers:
                self.drop(batch)
            else:
                self._split(batch, numbers)
                refused -= numbers
                count += len(numbers)
        if count:
            self._is_pausing = True
            self._owner.refused(count, error)

    def try_again(self):
        """After the pause, requeue the refused large messages, of which no copy was kept. A stream cannot
        requeue: the session then ends with an error.
        """
        # The link then reconnects and goes on after the last settled offset.
        self._is_pausing = False
        if self._requeued and self._owner.is_of_stream():
            self._owner.fail("destination", RefusedByTarget("a large message of a stream was refused"))
            return
        for tag in self._requeued:
            self._settle(_REQUEUE, tag, 1)
        self._owner.requeued(len(self._requeued))
        self._requeued.clear()

    def set_aside(self, item, error, was_sent):
        """End the session after an unexpected error. The source delivers unsettled messages again."""
        self._owner.fail("link", error)

    def fail(self, item, error):
        self._owner.fail("link", error)

    def broken(self, error):
        """End the session after an unexpected error, already logged. Returns False to stop the transfer."""
        self._owner.fail("link", error)
        return False

    def no_room(self, item, pending):
        """Not called: a target writer never refuses a batch."""
        raise NotImplementedError

    def paused(self, unsafe):
        self._owner.paused()

    # private from here on

    def _read(self):
        """Relay more bytes of the last read, or of a new read from the socket. Returns a LinkBatch, or None
        if nothing has arrived. Raises Unfit, AMQPError, ClientError, OSError.
        """
        tail, view, relay = self._tail, self._buffers.input_view, self.relay
        end = len(tail)
        view[:end] = tail
        if not self._rewalk:
            count = self.wire.receive_into(view[end:end + READ_OCTETS])
            if not count:
                return None
            end += count
        was_large = relay.missing > 0
        most = min(self._most, self._owner.room())
        if self._rejects_next:
            most, relay.skips = 1, True
        done = 0
        try:
            done = relay.walk(end, most)
        except Unfit:
            self._rewalk = True  # the message is still buffered and can be rejected without another read
            raise
        finally:
            self._tail = bytes(view[done:end])
        self._rewalk = 0 < done < end
        batch = self._batch(was_large)
        if relay.others:
            others, relay.others = relay.others, []
            self._owner.source_methods(others)
        return batch

    def _batch(self, was_large):
        """Return the LinkBatch that the relay has written. ``was_large``: it continues a large message."""
        relay = self.relay
        if self._rejects_next and relay.count:
            self._rejects_next = False
            self._owner.reject_next()
        written = bytes(self._buffers.output_view[:relay.written])
        if not (was_large or relay.missing):
            return LinkBatch(written, relay.first_tag, relay.count, not relay.left_out, relay.offset)
        if relay.offset >= 0:
            self._large_offset = relay.offset
        if relay.missing:
            return LinkBatch(written, relay.last_tag, 0, not relay.left_out, is_whole=False)
        offset, self._large_offset = self._large_offset, -1
        batch = LinkBatch(written, relay.last_tag, 1, not relay.left_out, offset, is_whole=False)
        batch.checksum = relay.checksum
        return batch

    def _take_refused(self):
        """Return the next refused batch to send again. The first batch after a pause is sent alone."""
        # So no message overtakes it.
        _, batch = self._refused.pop(0)
        if self._is_probing:
            self._probe = batch
        return batch

    def _forget(self, batch):
        if batch is self._probe:
            self._probe = None
            self._is_probing = False
        if batch.is_whole:
            self.keep_octets(-batch.size)
        self.unsettled -= batch.count

    def _split(self, batch, numbers):
        """Settle a batch's accepted messages, and keep or finally reject its refused messages. ``numbers``:
        the publish numbers of the refused ones.
        """
        self._forget(batch)
        self._is_probing = True
        tags = range(batch.first_tag, batch.first_tag + batch.count)
        refused = [i for i in range(batch.count) if batch.first_number + i in numbers]
        self._held.update(tags[i] for i in refused)
        for i, tag in enumerate(tags):
            if batch.first_number + i not in numbers:
                self._settle(_ACK, tag, 1)
                self._owner.settled(LinkBatch(b"", tag, 1))
        publishes = batch.publishes() if batch.is_whole else None
        poison = self._owner.link.poison_detection
        for i in refused:
            if publishes is None:
                self._wait_or_reject(tags[i], None, 0, poison.large_refused(batch.checksum))
            else:
                refusals = batch.refusals + 1
                self._wait_or_reject(tags[i], publishes[i], refusals, poison.is_limit(refusals))

    def _wait_or_reject(self, tag, frames, refusals, is_limit):
        if is_limit:
            batch = LinkBatch(b"", tag, 1)
            batch.is_rejected = True
            self._settle(_REJECT, tag, 1)
            self._owner.settled(batch)
        elif frames is None:
            self._requeued.append(tag)
        else:
            batch = LinkBatch(frames, tag, 1, refusals=refusals)
            self.keep_octets(batch.size)
            self.unsettled += 1
            insort(self._refused, (tag, batch))

    def _settle(self, how, first_tag, count):
        """Acknowledge, reject or requeue ``count`` deliveries. ``how``: _ACK, _REJECT or _REQUEUE."""
        if not self._is_acked:
            return
        method, bits = how
        write = self.wire.write
        if how is _ACK and not self._held:
            write(_SETTLE.pack(1, self._channel, 13, method, first_tag + count - 1, count > 1, 0xCE))
            return
        for tag in range(first_tag, first_tag + count):
            write(_SETTLE.pack(1, self._channel, 13, method, tag, bits, 0xCE))
            self._held.discard(tag)


class LinkBatch:
    """Messages that are read, sent and settled together.

    The batch has ``count`` deliveries, with delivery tags from ``first_tag`` on. Each piece of a large
    message is a batch, with ``count`` 1 for the last piece and 0 for the others.

        octets          the frames to send to the target; None once a piece of a large message is sent
        first_number    number of the first publish, set when the batch is sent
        is_sent         False if the messages are not sent, only settled at their source
        is_rejected     True if the batch is settled by basic.reject
        is_whole        False for a piece of a large message
        offset          stream offset of the last message, or -1
        refusals        how often the target has refused the batch
        checksum        recognizes a large message when it is delivered again
    """

    __slots__ = (
        "octets", "first_tag", "count", "first_number", "is_sent", "is_rejected", "offset", "refusals",
        "size", "is_whole", "checksum",
    )

    def __init__(self, octets, first_tag, count, is_sent=True, offset=-1, refusals=0, is_whole=True):
        self.octets = octets
        self.size = len(octets)
        self.first_tag = first_tag
        self.count = count
        self.first_number = 0
        self.is_sent = is_sent
        self.is_rejected = False
        self.is_whole = is_whole
        self.offset = offset
        self.refusals = refusals
        self.checksum = 0

    def publishes(self):
        """Return a list with one bytes object per message: its publish, header and body frames."""
        view, starts, at = memoryview(self.octets), [], 0
        while at < len(view):
            if view[at] == 1:
                starts.append(at)
            at += 8 + int.from_bytes(view[at + 3:at + 7], "big")
        return [bytes(view[start:end]) for start, end in zip(starts, [*starts[1:], at], strict=True)]


class MemoryBudget:
    """Limits the memory of all links of an event loop. ``kept_octets``: bytes that all links keep. An account
    is (user who set a link, the link's virtual host).
    """

    __slots__ = ("kept_octets", "_of_accounts", "_all_octets", "_most_octets")

    def __init__(self, all_octets=ALL_OCTETS, most_octets=MOST_OCTETS):
        self.kept_octets = 0
        self._of_accounts = {}
        self._all_octets, self._most_octets = all_octets, most_octets

    def limit(self, account=None):
        """Return how many bytes a link of this account may keep now. At this limit it must stop reading."""
        left = self._all_octets - self.kept_octets
        reserve = self._all_octets // 2 + min(0, left)
        part = max(left, reserve // 2 - self._of_accounts.get(account, 0)) // PARTS
        return max(LEAST_OCTETS, min(self._most_octets, part))

    def keep(self, octets, account=None):
        """Add ``octets`` bytes (negative: remove) to the memory that this account's links keep."""
        self.kept_octets += octets
        kept = self._of_accounts.pop(account, 0) + octets
        if kept:
            self._of_accounts[account] = kept


class LinkBuffers:
    """The buffers that all links of an event loop share. They are empty between two callbacks."""

    def __init__(self):
        self.input, self.output = bytearray(INPUT_OCTETS), bytearray(OUTPUT_OCTETS)
        self.input_view, self.output_view = memoryview(self.input), memoryview(self.output)
        self.memory_budget = MemoryBudget()


def buffers_of(hub):
    """Return the LinkBuffers of this event loop, created by the first call."""
    buffers = _OF_HUBS.get(hub)
    if buffers is None:
        buffers = _OF_HUBS[hub] = LinkBuffers()
    return buffers
