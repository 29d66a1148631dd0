"""Which modules of the broker work on one thing that a client asks for. A profiler tells it, in the
interpreted mode.

``python -m tests.support.files_entered FOLDER`` prints them as JSON:

    {what was asked for: {"entered": [...], "chain": [...]}}

``entered``: the modules between the socket and the disk of which a function ran. ``chain``: those on the
stack when the thing was done: the ack written, the copy of a dead letter written, the declare refused. Each
thing is done several times. Only what every time entered counts, so that a timer which came between does not.
"""
import json
import os
import sys
from pathlib import Path

import gevent

import gomq_py
from gomq_py.amqp.wire.methods import (
    BasicAck, BasicGet, BasicGetOk, BasicReject, ChannelClose, ChannelCloseOk, ChannelOpen, ChannelOpenOk,
    QueueDeclare, QueueDeclareOk,
)
from tests.support.door import Door
from tests.support.waiting import wait_until

PACKAGE = os.path.dirname(gomq_py.__file__) + os.sep
# Where the way begins and ends, and what only translates octets: neither is counted.
SOCKET = ("net.",)
DISK = (
    "storage.disk.files", "storage.flush.group_commit", "storage.flush.bell", "storage.flush.flushing",
    "storage.flush.gathering",
)
WIRE_AND_CODEC = ("amqp.wire.", "content.", "octets", "storage.format.")
NOT_COUNTED = SOCKET + DISK + WIRE_AND_CODEC

DURABLE = b"\x10\0\2"
TIMES = 3
# Polls of the loop after which all that follows from what a client sent is done: each step of a job has a
# poll.
POLLS = 50


class Profile:
    """The modules entered while it is on; ``done`` names the function whose stack is the chain."""

    def __init__(self, done):
        self.done = done
        self.entered = set()
        self.chain = None

    def __enter__(self):
        sys.setprofile(self._called)
        return self

    def __exit__(self, *_):
        sys.setprofile(None)

    def _called(self, frame, event, _argument):
        name = module(frame) if event == "call" else None
        if name is None:
            return
        self.entered.add(name)
        if self.chain is None and frame.f_code.co_qualname == self.done:
            self.chain = {module(one) for one in stack(frame)} - {None}


def module(frame):
    """``broker.queues.queue`` and the like for a frame of the package that is counted, or None."""
    path = frame.f_code.co_filename
    if not path.startswith(PACKAGE):
        return None
    name = path[len(PACKAGE):].removesuffix(".py").replace(os.sep, ".")
    return None if name.startswith(NOT_COUNTED) else name


def stack(frame):
    """A frame and those that called it."""
    while frame is not None:
        yield frame
        frame = frame.f_back


def polls(count=POLLS):
    """Let the loop poll so often."""
    for _ in range(count):
        gevent.sleep(0)


def measured(door, done, prepare, act, is_done):
    """What doing it entered each time, after a first time that is not counted."""
    every, chains = [], []
    for _ in range(TIMES + 1):
        prepared = prepare()
        settle(door)
        with Profile(done) as profile:
            act(prepared)
            wait_until(is_done, sleep=gevent.sleep)
            settle(door)
        every.append(profile.entered)
        chains.append(profile.chain)
    return {"entered": sorted(set.intersection(*every[1:])), "chain": sorted(set.intersection(*chains[1:]))}


def settle(door):
    """Let everything end that a client's frame has begun, the disk's part too."""
    polls()
    while door.committer.finish():
        polls()


def declare(client, name, arguments):
    client.send_method(QueueDeclare(queue=name, durable=True, arguments=arguments))


def get(door, client, queue):
    """Publish a message into a durable queue and take it. Returns its delivery tag."""
    client.publish(queue, b"x", properties=DURABLE)
    wait_until(lambda: door.queue(queue).ready_count, sleep=gevent.sleep)
    client.send_method(BasicGet(queue=queue))
    return client.expect_message(BasicGetOk)[0].delivery_tag


def measure(folder):
    """All three."""
    with Door(folder, manual=True) as door:
        client = door.client()
        dead = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"}
        for name, arguments in (("acked", {}), ("dead", {}), ("dying", dead)):
            declare(client, name, arguments)
            wait_until(door.committer.finish, sleep=gevent.sleep)
            client.expect(QueueDeclareOk)
        acked = measured(
            door, "Segment.put_ack", lambda: get(door, client, "acked"),
            lambda tag: client.send_method(BasicAck(delivery_tag=tag)),
            lambda: door.queue("acked").unacked_count == 0)
        letter = measured(
            door, "Segment.append", lambda: get(door, client, "dying"),
            lambda tag: client.send_method(BasicReject(delivery_tag=tag, requeue=False)),
            lambda: settle(door) or door.queue("dying").unacked_count == 0)
        door.broker.users.set_permission("guest", "/", "^allowed", "", "")
        client.send_method(QueueDeclare(queue="refused"))
        client.expect(ChannelClose)
        refused = measured(
            door, "NoPermission.__init__", lambda: another_channel(client),
            lambda _: declare(client, "refused", {}), lambda: client.expect(ChannelClose))
    return {"an ack": acked, "a dead letter": letter, "a refused declare": refused}


def another_channel(client):
    """The broker has closed the channel: open it again."""
    client.send_method(ChannelCloseOk())
    client.call(ChannelOpen(), ChannelOpenOk)


if __name__ == "__main__":
    print(json.dumps(measure(Path(sys.argv[1]))))
