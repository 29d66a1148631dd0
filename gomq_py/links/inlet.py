"""Inlet: the source of a transfer that is a consumer at another broker, over a wire.

Reads when the transfer takes, relays (links.relay), and settles deliveries when the transfer drops them. What
the target refused waits here, in order; nothing else is taken before it.
"""
from bisect import insort
from struct import Struct

from gomq_py.amqp.wire.errors import AMQPError
from gomq_py.broker.transfer.engine import Source
from gomq_py.client.errors import ClientError
from gomq_py.links.buffers import Shares
from gomq_py.links.ends import GONE, Refused
from gomq_py.links.relay import Unfit
from gomq_py.links.run import Run
from gomq_py.links.wire import READ_OCTETS

# Walks in a row that bring no message, of signs of life or of what is left out: then others get their turn,
# for a source may send such things faster than they are read.
FRUITLESS_WALKS = 8
# type 1, channel, size | class and method, delivery tag, bits | CE
_SETTLE = Struct(">BHIIQBB")
# method, and its bits for one delivery: no multiple; no requeue; requeue
_ACK, _REJECT, _REQUEUE = (0x3C0050, 0), (0x3C005A, 0), (0x3C005A, 1)
assert _SETTLE.size == 21


class Inlet(Source):
    """``owner`` is the passage, which says how many messages may be taken and hears what becomes of them."""

    def __init__(self, wire, channel, relay, buffers, owner, most, is_acked, account=None):
        self.wire = wire
        self.relay = relay
        self._channel = channel
        self._buffers = buffers
        self._shares = buffers.shares
        self._account = account
        self._owner = owner
        self._most = most  # messages of a run
        self._is_acked = is_acked
        self._tail = wire.ahead
        self._rewalk = bool(self._tail)
        self._rejects_next = False  # the next message is known as unfit
        self._refused = []  # (tag, Run) that wait to be sent again, in order
        self._is_probing = False  # the first of them goes alone
        self._probe = None  # it is on its way, and nothing else is taken
        self._is_pausing = False  # since a refusal; the transfer calls try_again() when it is over
        self._held = set()  # tags that were refused and are not settled: nothing is acked with multiple
        self._requeued = []  # tags of refused messages that were not kept
        self._large_offset = -1
        self.kept_octets = 0  # of messages that are kept until they are confirmed
        self.unsettled = 0

    # What the transfer calls.

    def take(self, message):
        """The next run; None: nothing has come, or nothing may be taken now."""
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
                    run = self._read()
                except Unfit as error:
                    self._rejects_next = owner.unfit(error)
                    continue
                if run is None:
                    return None
                if run.count or run.size:
                    self.keep_octets(run.size if run.is_whole else 0)
                    self.unsettled += run.count
                    owner.taken(run)
                    return run
        except (AMQPError, ClientError, OSError) as error:
            owner.fail("source", error)
        return None

    def show(self, item, message):
        """A run is its own message."""
        return True

    def drop(self, item):
        """Settle the deliveries of a run."""
        self._forget(item)
        if item.count:
            if not item.is_whole:
                self._owner.large_settled(item.checksum)
            self._settle(_REJECT if item.is_rejected else _ACK, item.first_tag, item.count)
            self._owner.settled(item)

    def has_refused(self):
        """Whether something that was refused is to be sent now."""
        return bool(self._refused) and self._probe is None and not (self._is_pausing or self.relay.missing)

    def waits(self):
        """Whether the source is not read: during the pause after a refusal, and before what was refused is
        settled. A large message that is half sent is finished first: nothing may be sent in the middle of it.
        """
        return self._is_pausing or not self.relay.missing and (
            bool(self._refused) or self._probe is not None)

    def on_its_way(self):
        """How many messages are sent, and neither settled nor refused."""
        return self.unsettled - len(self._refused)

    def may_keep_more(self):
        """Whether as many octets are kept as this link may keep now. Then nothing is taken, beside the rest
        of a large message, until some are confirmed.
        """
        return self.kept_octets < self._shares.limit(self._account)

    def keep_octets(self, count):
        """So many more are kept, or less."""
        self.kept_octets += count
        self._shares.keep(count, self._account)

    def close(self):
        """Nothing is kept any more, nor is the owner called; once is enough."""
        self.keep_octets(-self.kept_octets)
        self._refused.clear()
        self._probe = None
        self._owner = GONE
        self._shares = Shares()  # what is settled from now on counts nowhere

    def has_unread(self):
        """Whether whole messages may lie here that were read and not taken; no socket tells of them."""
        return self._rewalk and self._probe is None

    def has_held(self):
        """Whether a delivery before the last settled one is not settled."""
        return bool(self._held)

    def forget_refusals(self):
        """None of them was of a message's fault."""
        for _, run in self._refused:
            run.refusals = 0
        if self._probe is not None:
            self._probe.refusals = 0

    def keep(self, items, error):
        """Some of these were refused: they wait, the others are settled."""
        refused = self._owner.refused_numbers()
        count = 0
        for run in items:
            numbers = refused.intersection(range(run.first_number, run.first_number + run.count))
            if not run.is_sent or not numbers:
                self.drop(run)
            else:
                self._split(run, numbers)
                refused -= numbers
                count += len(numbers)
        if count:
            self._is_pausing = True
            self._owner.refused(count, error)

    def try_again(self):
        """After a pause: what was refused and not kept is asked for again. A stream gives back nothing: its
        link connects anew, and goes on behind what is settled.
        """
        self._is_pausing = False
        if self._requeued and self._owner.is_of_stream():
            self._owner.fail("destination", Refused("a large message of a stream was refused"))
            return
        for tag in self._requeued:
            self._settle(_REQUEUE, tag, 1)
        self._owner.requeued(len(self._requeued))
        self._requeued.clear()

    def set_aside(self, item, error, was_sent):
        """A fault of ours: the passage ends, and its messages come again."""
        self._owner.fail("link", error)

    def fail(self, item, error):
        """There is no store here."""
        self._owner.fail("link", error)

    def broken(self, error):
        """A fault of ours, logged."""
        self._owner.fail("link", error)
        return False

    def no_room(self, item, pending):
        """A wire always takes a run."""
        raise NotImplementedError

    def paused(self, unsafe):
        """Nothing can be taken for now."""
        self._owner.paused()

    # The rest is private.

    def _read(self):
        """Relay what was read before and not relayed, or the next read; None: nothing has come."""
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
            self._rewalk = True  # it is here: nothing more need come before it is rejected
            raise
        finally:
            self._tail = bytes(view[done:end])
        self._rewalk = 0 < done < end
        run = self._run(was_large)
        if relay.others:
            others, relay.others = relay.others, []
            self._owner.source_methods(others)
        return run

    def _run(self, was_large):
        """What the walk has written. Of a large message only the last piece counts."""
        relay = self.relay
        if self._rejects_next and relay.count:
            self._rejects_next = False
            self._owner.reject_next()
        written = bytes(self._buffers.output_view[:relay.written])
        if not (was_large or relay.missing):
            return Run(written, relay.first_tag, relay.count, not relay.left_out, relay.offset)
        if relay.offset >= 0:
            self._large_offset = relay.offset
        if relay.missing:
            return Run(written, relay.last_tag, 0, not relay.left_out, is_whole=False)
        offset, self._large_offset = self._large_offset, -1
        run = Run(written, relay.last_tag, 1, not relay.left_out, offset, is_whole=False)
        run.checksum = relay.checksum
        return run

    def _take_refused(self):
        """One that was refused. After a pause the first goes alone: where it is refused again the others
        would be, too, or overtake it.
        """
        _, run = self._refused.pop(0)
        if self._is_probing:
            self._probe = run
        return run

    def _forget(self, run):
        """A run is not on its way any more."""
        if run is self._probe:
            self._probe = None
            self._is_probing = False
        if run.is_whole:
            self.keep_octets(-run.size)
        self.unsettled -= run.count

    def _split(self, run, numbers):
        """Settle those of a run that were not refused; the others wait, or were refused too often."""
        self._forget(run)
        self._is_probing = True
        tags = range(run.first_tag, run.first_tag + run.count)
        refused = [i for i in range(run.count) if run.first_number + i in numbers]
        self._held.update(tags[i] for i in refused)
        for i, tag in enumerate(tags):
            if run.first_number + i not in numbers:
                self._settle(_ACK, tag, 1)
                self._owner.settled(Run(b"", tag, 1))
        publishes = run.publishes() if run.is_whole else None
        for i in refused:
            if publishes is None:
                self._wait_or_reject(tags[i], None, 0, self._owner.large_refused(run.checksum))
            else:
                refusals = run.refusals + 1
                self._wait_or_reject(tags[i], publishes[i], refusals, self._owner.is_limit(refusals))

    def _wait_or_reject(self, tag, frames, refusals, is_limit):
        if is_limit:
            run = Run(b"", tag, 1)
            run.is_rejected = True
            self._settle(_REJECT, tag, 1)
            self._owner.settled(run)
        elif frames is None:
            self._requeued.append(tag)
        else:
            run = Run(frames, tag, 1, refusals=refusals)
            self.keep_octets(run.size)
            self.unsettled += 1
            insort(self._refused, (tag, run))

    def _settle(self, how, first_tag, count):
        """``how``: method and bits of a single delivery."""
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
