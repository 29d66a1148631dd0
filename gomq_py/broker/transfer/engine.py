"""Transfer: moves messages from a source to a target. A message leaves the source once its copy is safe.

Used for dead letters, delayed messages, moves and messages of deleted queues. A Source gives messages in
order. A Target readdresses and publishes each message. The Transfer is a job that does the rest, in slices:

    take -> show -> send -> (the copies are safe) -> drop

- *Order*: messages are sent in the source's order. If a message has to wait, the source decides whether
  later messages wait, too.
- *No room*: a target returns the destinations that could not take a message. The message stays in its
  source. It is sent again after TRY_AGAIN_MS, unless the source decides otherwise (Source.no_room).
- *Safe*: ``when_safe(callback)`` calls ``callback(None)`` once all copies sent until now are safe, or
  ``callback(error)`` if they cannot be. For a target on this node it is Durability.when_safe; for a remote
  target it waits for the other side's confirms. After an error nothing is sent until copies can be made safe
  again. Until then each attempt would only add duplicates.
- *Poison*: a message that cannot be sent for a reason of its own is set aside with the reason, and later
  messages go on. A message that was sent and cannot be dropped is set aside, too.
- *Faults*: the source handles faults of its store. A fault that concerns no single message is reported to
  the source, which decides whether the job goes on (hub.scheduler).

A crash at any point leaves a message in two places rather than in none. Never switches greenlets.
"""
from typing import Any

from gomq_py import octets
from gomq_py.hub.scheduler import Job, SliceClock
from gomq_py.observability.log import logger
from gomq_py.storage.errors import StoreError
from gomq_py.storage.message import Message

LOG = logger("queue")

# Messages per slice: about a millisecond if they are plain. After SLICE_S a slice ends earlier: headers of
# 128 KiB take 8 ms each, and a headers exchange compares each message with all its bindings.
SLICE = 1000
SLICE_S = 0.005
CLOCK = SliceClock  # a module variable, for tests to replace

# Delay before messages without room are tried again.
TRY_AGAIN_MS = 1000

# Answers of Source.no_room: the message waits and others go on; all messages wait; the source itself retries.
OTHERS_GO_ON, ALL_WAIT, LEFT_TO_SOURCE = 0, 1, 2

# Octets of the copies' buffer: it starts small, so that one message a second stays cheap, and doubles up to a
# limit. For larger messages Python objects cost little beside the copy.
FIRST_OCTETS = 4096
MOST_OCTETS = 64 * 1024
NOTHING: Any = b""

# A target's answer if there is no original to drop.
NOTHING_TO_DROP = ()


class Source:
    """Gives the messages of a transfer. An *item* identifies one message; its type is the source's choice."""

    __slots__ = ()

    def take(self, message):
        """Return the next message's item; None if there is none. May fill ``message``. Raises StoreError."""
        raise NotImplementedError

    def show(self, item, message):
        """Fill ``message`` for this item. Returns False if it must not be sent. Raises StoreError."""
        raise NotImplementedError

    def drop(self, item):
        """Drop the item's message, because its copy is safe. Raises StoreError."""
        raise NotImplementedError

    def keep(self, items, error):
        """Keep the messages of these items in the source: ``error`` prevented safe copies."""
        raise NotImplementedError

    def no_room(self, item, pending):
        """Handle a message that the destinations ``pending`` could not store. Returns OTHERS_GO_ON (send
        later messages), ALL_WAIT (send none) or LEFT_TO_SOURCE (the source retries by itself, or never).
        After the first two answers, the transfer calls try_again() later.
        """
        raise NotImplementedError

    def set_aside(self, item, error, was_sent):
        """Keep an unsendable message apart from others. ``was_sent``: it was sent, but cannot be dropped."""
        raise NotImplementedError

    def fail(self, item, error):
        """Handle a StoreError, which has made the store unusable. ``item``: None if take() raised it."""
        raise NotImplementedError

    def broken(self, error):
        """Handle a fault that is not about one message. Returns True if the transfer is to go on."""
        raise NotImplementedError

    def try_again(self):
        """Called when waiting messages may be tried again."""

    def paused(self, unsafe):
        """Called when the transfer stops for now, and then whenever sent messages were dropped or kept.
        ``unsafe``: count of sent messages whose copies are not safe yet.
        """


class Target:
    """Publishes the messages of a transfer."""

    __slots__ = ()

    def send(self, item, message):
        """Readdress and publish a message. Returns None if it was sent, else the destinations without room.
        Returns NOTHING_TO_DROP if the source has no original to drop. After an error other than StoreError
        the message is set aside.
        """
        raise NotImplementedError

    def slice_over(self):
        """Called at the end of each slice, so that a target can write its output and free its buffers."""


class CopyRoom:
    """A buffer that the copies of a slice use in turn. ``p``: pointer to write a copy to, valid once has()
    has returned True. ``owner``: the object that holds the memory.
    """

    __slots__ = ("p", "owner", "_count")

    def __init__(self):
        self.let_go()

    def has(self, count):
        """Make room for ``count`` bytes, which overwrite the last copy. Returns False above MOST_OCTETS."""
        return count <= self._count or self._grow(count)

    def complete(self, copy, message, routing_length, length):
        """Append the body of ``message`` to the routing and properties in the buffer, and make ``copy`` the
        resulting Message. The caller has written these ``length`` bytes.
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
    """Job that moves messages from ``source`` to ``target``. Call ``start`` when the source has messages.
    ``most``, ``most_octets``: how many messages, and bytes of bodies, may be sent before their copies are
    safe; 0: no limit. If both are 0, the copies are made safe after each slice.
    """

    __slots__ = (
        "name", "_source", "_target", "_scheduler", "_timers", "_when_safe", "_most", "_most_octets", "_sent",
        "_sent_octets", "_unsafe", "_unsafe_octets", "_timer", "_is_resting", "_is_full",
        "_is_unsafe", "_closed",
    )

    moves_messages = True

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
        self._sent = []  # items sent since the last when_safe()
        self._sent_octets = self._unsafe = self._unsafe_octets = 0
        self._timer = None
        self._is_resting = self._is_full = self._closed = False
        self._is_unsafe = False  # copies could not be made safe, and no later attempt has succeeded

    def start(self):
        """Start the job, unless it runs already, must wait, or is closed."""
        if not self.running and not self._is_resting and not self._closed:
            self._scheduler.start(self)

    def try_again_later(self):
        """Retry waiting messages after TRY_AGAIN_MS."""
        if self._timer is None and not self._closed:
            self._timer = self._timers.start(TRY_AGAIN_MS, self._room_again)

    def close(self):
        """Send no more messages. Originals of sent messages are still dropped once their copies are safe."""
        self._closed = True
        self._make_safe()
        if self._timer is not None:
            self._timer.stop()
            self._timer = None

    def step(self):
        """Move a slice of messages. Returns True if more can be moved at once."""
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
        """Report a fault that is not about one message to the source. Returns True if the job goes on."""
        self._make_safe()
        self._target.slice_over()
        if self._source.broken(error):
            return True
        self._source.paused(self._unsafe)
        return False

    def _next(self, message):
        """Take and send one message. Returns False if there is none, or the transfer must wait."""
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
        except Exception as error:  # a fault of one message must not affect the others
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
        """True if no more may be sent before copies of sent messages are safe."""
        return (
            (0 < self._most <= self._unsafe + len(self._sent))
            or (0 < self._most_octets <= self._unsafe_octets + self._sent_octets)
        )

    def _make_safe(self):
        """Have the sent messages dropped from the source once their copies are safe."""
        # The copies are written to their files first, before the acks of the originals.
        if self._sent:
            self._scheduler.write_out()
            sent, octets = self._sent, self._sent_octets
            self._sent, self._sent_octets = [], 0
            self._unsafe += len(sent)
            self._unsafe_octets += octets
            self._when_safe(lambda error: self._settle(sent, octets, error))

    def _settle(self, sent, octets, error):
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
        """Send nothing until copies can be made safe again. Without timers, Source.keep() has to do that."""
        if self._timers is not None and not self._is_unsafe and not self._closed:
            self._is_unsafe = self._is_resting = True
            self._when_safe(self._asked)

    def _asked(self, error):
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
