"""Transfer: moves messages from a source to a target. A message is copied, and dropped only once the copy is
safe.

Dead letters, delayed messages and moves all use it. A Source gives messages in order, one at a time. A Target
writes their new address and publishes them. The Transfer between the two is a job that does the rest, in
slices:

    take -> show -> send -> (the copies are safe) -> drop

- *Order*: messages are sent in the order in which the source gives them. When one has to wait, the source
  says whether those behind it wait too.
- *No room*: a target names the destinations that could not take a message. The message stays in its source,
  and is tried again after TRY_AGAIN_MS.
- *Safe* is what ``when_safe`` says, Durability.when_safe for a target on this node: ``when_safe(callback)``
  calls ``callback(error or None)`` once all that was sent until now is safe, or cannot be. A target elsewhere
  answers when the other side has confirmed. Where copies cannot be made safe nothing is sent until that can
  be done again: what is copied meanwhile would be there twice.
- *Poison*: a message that cannot be sent for a reason of its own is set aside, with the reason, and those
  behind it go on. One that was sent and cannot be dropped is set aside, too.
- *A fault of the source's store* is the source's to settle. What is no single message's fault is told to the
  source, whose job it is (hub.job).

A crash at any point leaves a message in two places rather than in none. Never yields.
"""
from typing import Any

from gomq_py import octets
from gomq_py.hub.job import Job
from gomq_py.hub.slice_clock import SliceClock
from gomq_py.observability.log import logger
from gomq_py.storage.errors import StoreError
from gomq_py.storage.message import Message

LOG = logger("queue")

# Messages before others get their turn: of plain ones about a millisecond. Fewer where they take longer than
# SLICE_S: headers of 128 KiB take 8 ms each, and a headers exchange compares each message with all its
# bindings.
SLICE = 1000
SLICE_S = 0.005
CLOCK = SliceClock  # by its name here, so that tests can put another one in its place

# Until what there was no room for is tried again.
TRY_AGAIN_MS = 1000

# What Source.no_room answers: the message waits and others go on; all wait until it goes on; the source
# itself sees to it.
OTHERS_GO_ON, ALL_WAIT, LEFT_TO_SOURCE = 0, 1, 2

# Of the buffer that a slice makes its copies in: what the first of them takes, so that one a second costs no
# more, from where it doubles; and the most. Objects cost little beside the copies of larger messages.
FIRST_OCTETS = 4096
MOST_OCTETS = 64 * 1024
NOTHING: Any = b""

# A target's answer where nothing is left of the message in its source that would have to be dropped.
NOTHING_TO_DROP = ()


class Source:
    """Where messages come from. An *item* stands for one of them; what it is only its source knows."""

    __slots__ = ()

    def take(self, message):
        """The item of the message that is next; None: there is none for now. Raises StoreError."""
        raise NotImplementedError

    def show(self, item, message):
        """Fill ``message`` with the item's message. Raises StoreError.

        False: it is not to be sent, and the source has done what there was to do.
        """
        raise NotImplementedError

    def drop(self, item):
        """Drop the original: the copy is safe. Raises StoreError."""
        raise NotImplementedError

    def keep(self, items, error):
        """Keep the originals: the copies are not safe, because of ``error``."""
        raise NotImplementedError

    def no_room(self, item, pending):
        """The destinations ``pending`` could not take the message. Returns what waits.

        After OTHERS_GO_ON and ALL_WAIT ``try_again`` is called in a while, after LEFT_TO_SOURCE it is not.
        """
        raise NotImplementedError

    def set_aside(self, item, error, was_sent):
        """Set a message aside: it cannot be sent, or was sent and cannot be dropped."""
        raise NotImplementedError

    def fail(self, item, error):
        """A StoreError: the store cannot go on. ``item`` is None where none had been taken."""
        raise NotImplementedError

    def broken(self, error):
        """Something else than a single message failed, and was logged. Returns whether the transfer goes on.
        """
        raise NotImplementedError

    def try_again(self):
        """What waited for room may be taken again."""

    def paused(self, unsafe):
        """The transfer has taken all messages there are now; ``unsafe`` of those it sent are not safe yet."""


class Target:
    """Where messages go."""

    __slots__ = ()

    def send(self, item, message):
        """Publish a message under its new address.

        Returns None if it was sent, NOTHING_TO_DROP, or the destinations that could not take it. Any error
        other than StoreError is a fault of this message.
        """
        raise NotImplementedError

    def slice_over(self):
        """The slice is over; other jobs go on."""


class CopyRoom:
    """The buffer in which a target writes the messages of a slice as they go on, one after the other: what
    goes on has new properties, and lies in one buffer. No Python object per message.

    ``p`` is where one is written, of up to as many octets as ``has()`` said; ``owner`` keeps it.
    """

    __slots__ = ("p", "owner", "_count")

    def __init__(self):
        self.let_go()

    def has(self, count):
        """Whether there is room for so many octets; what was written last may be gone then."""
        return count <= self._count or self._grow(count)

    def complete(self, copy, message, routing_length, length):
        """Routing and properties have been written, of ``length`` octets in all: put the body of ``message``
        behind them, and have ``copy`` be that, as durable and urgent as ``message`` is.
        """
        octets.copy(self.p, length, message.buffer, message.body_at, message.body_length)
        copy.owner = self.owner
        copy.buffer = self.p
        copy.routing_at = 0
        copy.routing_length = copy.properties_at = routing_length
        copy.properties_length = length - routing_length
        copy.body_at = length
        copy.body_length = message.body_length
        copy.persistent = message.persistent
        copy.priority = message.priority

    def let_go(self):
        """The slice is over: keep nothing."""
        self.owner = NOTHING
        self._count = 0
        self.p = octets.pointer(self.owner)

    def _grow(self, count):
        if count > MOST_OCTETS:
            return False
        self.owner = bytearray(min(max(count, 2 * self._count, FIRST_OCTETS), MOST_OCTETS))
        self._count = len(self.owner)
        self.p = octets.pointer(self.owner)
        return True


class Transfer(Job):
    """From ``source`` to ``target``. ``start`` when there is something to take; ``name`` is the job's.

    ``most``, ``most_octets``: how many messages, and of their bodies, may be sent and not yet safe: so many
    are sent before they are made safe together, if there are as many. 0: any number, and each slice is made
    safe by itself.
    """

    __slots__ = (
        "name", "_source", "_target", "_scheduler", "_timers", "_when_safe", "_most", "_most_octets", "_sent",
        "_sent_octets", "_unsafe", "_unsafe_octets", "_timer", "_is_resting", "_is_full",
        "_is_unsafe", "_closed",
    )

    def __init__(self, name, source, target, scheduler, timers, when_safe, most=0, most_octets=0):
        Job.__init__(self)
        self.name = name
        self._source = source
        self._target = target
        self._scheduler = scheduler
        self._timers = timers
        self._when_safe = when_safe
        self._most = most
        self._most_octets = most_octets
        self._sent = []  # items that nobody has been asked to make safe yet
        self._sent_octets = self._unsafe = self._unsafe_octets = 0
        self._timer = None
        self._is_resting = self._is_full = self._closed = False
        self._is_unsafe = False  # copies could not be made safe, and it is not known that they can be again

    def start(self):
        """There is something to take."""
        if not self.running and not self._is_resting and not self._closed:
            self._scheduler.start(self)

    def try_again_later(self):
        """Something waits for room."""
        if self._timer is None and not self._closed:
            self._timer = self._timers.start(TRY_AGAIN_MS, self._room_again)

    def close(self):
        """Send nothing any more; what was sent is settled."""
        self._closed = True
        self._make_safe()
        if self._timer is not None:
            self._timer.stop()
            self._timer = None

    def step(self):
        """The scheduler's next slice."""
        message = Message()
        clock = CLOCK(SLICE_S)
        more = not (self._closed or self._is_resting)
        left = SLICE
        while more and left and not self._has_too_much():
            left -= 1
            more = self._next(message)
            if clock.is_over():
                break
        if self._has_too_much() or not more or not (self._most or self._most_octets):
            self._make_safe()
        self._target.slice_over()
        if more and not self._has_too_much():
            return True
        self._is_full = more
        if not (more or self._is_resting):
            self._source.paused(self._unsafe)
        return False

    def failed(self, error):
        """What failed was no single message."""
        self._make_safe()
        self._target.slice_over()
        if self._source.broken(error):
            return True
        self._source.paused(self._unsafe)
        return False

    def _next(self, message):
        """Deal with the next message. False: there is none for now, or nothing goes on."""
        item = None
        octets = 0
        try:
            item = self._source.take(message)
            if item is None:
                return False
            if not self._source.show(item, message):
                return True
            if self._most_octets:
                octets = message.get_body_length()
            pending = self._target.send(item, message)
        except StoreError as error:
            self._source.fail(item, error)
            return True
        except Exception as error:  # whatever is the matter with this one, the others must not suffer for it
            if item is None:
                raise
            self._source.set_aside(item, error, False)
            return True
        if pending is None:
            self._sent.append(item)
            self._sent_octets += octets
            return True
        return not pending or self._wait(self._source.no_room(item, pending))

    def _wait(self, how):
        """There is no room for the message that is next. Whether the ones behind it go on."""
        if how != LEFT_TO_SOURCE:
            self.try_again_later()
        self._is_resting = how == ALL_WAIT
        return not self._is_resting

    def _room_again(self):
        self._timer = None
        if self._is_unsafe:
            self._when_safe(self._asked)
        else:
            self._go_on()

    def _go_on(self):
        self._is_resting = False
        self._source.try_again()
        self.start()

    def _has_too_much(self):
        """Whether what is on its way must be safe before more is sent."""
        return (
            (0 < self._most <= self._unsafe + len(self._sent))
            or (0 < self._most_octets <= self._unsafe_octets + self._sent_octets)
        )

    def _make_safe(self):
        """What was sent is dropped when it is safe: at once where nothing waits for the disk, and it must not
        be in memory alone then while its originals are dropped.
        """
        if self._sent:
            self._scheduler.flush()
            sent, octets = self._sent, self._sent_octets
            self._sent, self._sent_octets = [], 0
            self._unsafe += len(sent)
            self._unsafe_octets += octets
            self._when_safe(lambda error: self._settle(sent, octets, error))

    def _settle(self, sent, octets, error):
        """These are safe, or cannot be."""
        self._unsafe -= len(sent)
        self._unsafe_octets -= octets
        try:
            if error is not None:
                self._rest_until_safe()
                self._source.keep(sent, error)
            else:
                self._drop(sent)
        except Exception as fault:  # the source must hear of it all the same
            LOG.exception("%s: what was sent cannot be settled", self.name)
            self._source.broken(fault)
        if self.running:
            return
        if self._is_full and not self._closed:
            self._is_full = False
            self.start()
        else:
            self._source.paused(self._unsafe)

    def _rest_until_safe(self):
        """Send nothing until what is done is safe again. A transfer without timers is its source's to end."""
        if self._timers is not None and not self._is_unsafe and not self._closed:
            self._is_unsafe = self._is_resting = True
            self._when_safe(self._asked)

    def _asked(self, error):
        """Whether anything can be made safe now."""
        if error is None:
            self._is_unsafe = False
            self._go_on()
        else:
            self.try_again_later()

    def _drop(self, sent):
        for item in sent:
            try:
                self._source.drop(item)
            except StoreError as error:
                self._source.fail(item, error)
            except Exception as error:
                self._source.set_aside(item, error, True)
