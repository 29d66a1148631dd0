"""Book: all messages of AMQP clients, and what tells them apart.

Messages are numbers, in the order in which they were published; a number's body follows from it. A message
may be in a queue more than once in its life: a Copy is told apart by how often it had died when it came.
"""
import math
from typing import NamedTuple

from tests.durability.account import body_of, number_in


class Message:
    """One that was published to ``queues`` over a ``source``: a channel, from its opening to its end.

    ``is_open``: in a transaction whose commit was not sent. ``ends``: how many processes had ended before.
    """

    routed = route = None  # of a RoutingLedger: how it was published, and once it is accepted where it went

    def __init__(self, number, source, queues, now_s, ends, priority=None, ttl_s=math.inf, delay_s=0.0,
                 is_open=False, size=None, is_transient=False, group=None):
        self.number = number
        self.source = source
        self.queues = queues
        self.published_s = now_s
        self.accepted_s = math.inf
        self.ends = ends
        self.priority = priority
        self.ttl_s = ttl_s
        self.delay_s = delay_s
        self.is_open = is_open
        self.size = size
        self.is_transient = is_transient
        self.group = group
        self.is_returned = False
        self.connections = {queue: queue.connections for queue in queues}

    @property
    def body(self):
        """What is published."""
        return body_of(self.number, self.size)


class Copy(NamedTuple):
    """A message, and how often it has died."""

    number: int
    deaths: int = 0

    def __repr__(self):
        return f"{self.number}{'+' * self.deaths}"


class Held(NamedTuple):
    """What a client has to know of a copy in its hand. ``root``: the queue that its message was sent to."""

    delivery_tag: int
    consumer_tag: str
    root: object


class Book:
    """All messages of AMQP clients. ``ends`` counts ends of processes, and ``orderly`` has those of them that
    were no kills.
    """

    def __init__(self, world):
        self.world = world
        self.messages = []
        self.queues = {}  # name -> QueueLedger
        self.ends = 0
        self.orderly = set()

    def publish(self, source, queues, **what):
        """Another Message."""
        self.messages.append(
            Message(len(self.messages), source, queues, self.world.now_s, self.ends, **what))
        return self.messages[-1]

    def message_of(self, body):
        """What was delivered, or None, which is a finding."""
        try:
            return self.messages[number_in(bytes(body))]
        except (AssertionError, ValueError, IndexError) as error:
            self.world.find(f"octets that nobody published: {error}")
            return None

    def accept(self, message):
        """The broker has said that it has it."""
        message.accepted_s = self.world.now_s
        for queue in message.queues:
            queue.accept(message)
