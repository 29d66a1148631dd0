"""Remote control: revokes tasks by id, and asks workers which tasks they run. A Server has one RemoteControl.

For an exchange X of tasks:

    X.control    a fanout exchange for inspect requests. Each Server that has workers binds an exclusive
                 queue to it, and answers to the sender's direct reply-to queue (amq.rabbitmq.reply-to)
    X.revoked    a stream of the ids of revoked tasks, each a JSON object {"uuid": "..."}. A Server reads it
                 whole before its workers consume, and then follows it. So a worker that starts later drops
                 these tasks, too
"""

import json
import os
import socket
import time
import uuid
from typing import Any

from gomq_py.client.channel import Channel
from gomq_py.client.connection import Connection
from gomq_py.client.errors import ChannelClosed
from gomq_py.content.properties import Properties
from gomq_py.dispatcher.arguments import shown
from gomq_py.dispatcher.errors import BadTask, DispatcherError, NotDelivered
from gomq_py.dispatcher.tasks import CONTENT_TYPE, PERSISTENT
from gomq_py.errors import Malformed

# How long a revocation counts.
REVOKED_DAYS = 7
_REVOKED_S = REVOKED_DAYS * 24 * 3600
# Bounds what a worker reads when it starts: 25 000 to 34 000 revocations.
_REVOKED_ARGUMENTS = {
    "x-queue-type": "stream", "x-max-age": f"{REVOKED_DAYS}D", "x-max-length-bytes": 4_000_000,
    "x-stream-max-segment-size-bytes": 1_000_000,
}
#: Most ids in one call of revoke(): more would displace each other. 36 characters each.
MOST_REVOKED = 25_000
_LONGEST_ID = 255
# Of a worker: anybody with the right to write may send many before the stream forgets the oldest.
_MOST_KEPT = 100_000
_PREFETCH = 1000
# Patience with the next message of the stream; fewer than counted come if the oldest are just being deleted.
_READ_S = 5.0
# RabbitMQ tells no count of a stream's messages: it ends when none has come for so long.
_QUIET_S = 0.5
_REPLY_TO = "amq.rabbitmq.reply-to"
_NOT_FOUND = 404
# Longest list of running tasks in an answer.
_MOST_SHOWN = 100
# Bounds what other programs can have inspect() keep and ask for, in bytes and in queues.
_LONGEST_ANSWER, _MOST_QUEUES = 4_000_000, 1000
_LONGEST_NAME = 255  # of a queue, in bytes
# Fields of an answer and their types.
_PROCESS = {"host": str, "pid": int, "version": str, "tasks": list, "workers": list}
_WORKER = {
    "name": str, "queue": str, "limit": int, "consuming": bool, "done": int, "failed": int, "revoked": int,
    "expired": int, "taken": int, "running": list,
}
_RUNNING = {"uuid": str, "name": str, "attempt": int, "seconds": (int, float, type(None))}


class RemoteControl:
    """Knows the ids of revoked tasks, and answers inspect requests about the workers.

    ``revoked``: {id: Unix time of the revocation}. All code here runs in the link's thread. If the user lacks
    a right that remote control needs, a warning is logged, and the workers run without it.
    """

    def __init__(self, server: Any) -> None:
        self.revoked: dict[str, float] = {}
        self._server = server
        self._channels: list[Channel] = []

    def up(self, connection: Connection) -> None:
        """On a new connection, read the stream of revoked ids, then consume new ones and inspect requests."""
        if not self._channels:
            self._attempt(connection, self._follow, "revoked tasks run")
            self._attempt(connection, self._listen, "workers cannot be inspected")

    def down(self) -> None:
        """Forget the channels, because the connection is lost."""
        self._channels = []

    def channel_closed(self, connection: Connection, error: ChannelClosed) -> bool:
        """Open new channels if the closed channel was one of this object's. Returns whether it was."""
        if not any(error.is_same(each.error) for each in self._channels):
            return False
        self._again(connection)
        return True

    def _again(self, connection):
        for channel in self._channels:
            channel.close()
        self.down()
        self.up(connection)

    def _attempt(self, connection, begin, consequence):
        channel = connection.channel()
        try:
            begin(channel)
        except ChannelClosed as error:
            self._server.logger.warning("%s: %s", consequence, error)
        else:
            channel.cancel_listener = lambda _: self._server.link.post(self._cancelled, channel)
            self._channels.append(channel)

    def _cancelled(self, channel):
        if channel in self._channels:  # the queue was deleted
            self._again(self._server.link.connection)

    def _follow(self, channel):
        stream = _declare_revoked(channel, self._server.config.exchange)
        channel.qos(_PREFETCH)
        tag = channel.consume(stream.queue, arguments={"x-stream-offset": "first"})
        count, patience_s = stream.message_count, _READ_S
        if not self._server.delays.can_count_streams:
            count, patience_s = _MOST_KEPT, _QUIET_S
        for _ in range(count):
            delivery = channel.next_delivery(patience_s)
            if delivery is None:
                break
            self._note(delivery)
        channel.consumers[tag] = self._note

    def _note(self, delivery):
        delivery.ack()
        now = time.time()
        try:
            at, identifier = delivery.properties.timestamp or now, json.loads(delivery.body)["uuid"]
        except (Malformed, ValueError, TypeError, KeyError, RecursionError):
            return  # written by somebody else
        if _is_id(identifier):
            self.revoked.pop(identifier, None)  # the order of the dict is that of the stream
            self.revoked[identifier] = min(at, now)
        while self.revoked and (
            len(self.revoked) > _MOST_KEPT or next(iter(self.revoked.values())) < now - _REVOKED_S
        ):
            del self.revoked[next(iter(self.revoked))]

    def _listen(self, channel):
        exchange = f"{self._server.config.exchange}.control"
        channel.exchange_declare(exchange, "fanout", durable=True)
        queue = f"{exchange}.{uuid.uuid4()}"
        channel.queue_declare(queue, exclusive=True, auto_delete=True)
        channel.queue_bind(queue, exchange)
        channel.consume(queue, self._asked, no_ack=True)

    def _asked(self, delivery):
        try:
            asker = delivery.properties.reply_to or ""
        except Malformed:
            return
        # To other queues this would write with the rights of the worker's user.
        if asker.startswith(f"{_REPLY_TO}."):
            body = json.dumps(self._described()).encode()
            self._server.send_copy("", asker, body, Properties(content_type=CONTENT_TYPE))

    def _described(self):
        from gomq_py import __version__

        workers = self._server.workers
        return {
            "host": socket.gethostname(), "pid": os.getpid(), "version": __version__,
            "tasks": sorted({name for worker in workers for name in worker.tasks}),
            "workers": [_worker(each) for each in workers],
        }


def revoke(connection: Connection, exchange: str, identifiers: list[str]) -> None:
    """Revoke the tasks with these ids, if they have not begun. Returns when the broker has the revocations on
    disk. Raises BadTask, DispatcherError, NotDelivered.
    """
    for each in identifiers:
        if not _is_id(each):
            raise BadTask(f"an id of a task is a text of up to {_LONGEST_ID} characters, not {shown(each)}")
    if len(identifiers) > MOST_REVOKED:
        raise BadTask(f"{len(identifiers)} ids are too many: the broker keeps the last {MOST_REVOKED}")
    properties = Properties(content_type=CONTENT_TYPE, delivery_mode=PERSISTENT, timestamp=int(time.time()))
    try:
        with connection.channel() as channel:
            stream = _declare_revoked(channel, exchange).queue
            channel.confirm_select()
            for each in identifiers:
                channel.publish("", stream, json.dumps({"uuid": each}), properties, mandatory=True)
            if not channel.wait_for_confirms() or channel.returned:
                raise NotDelivered(f"the broker refused a revocation: stream {stream!r}")
    except ChannelClosed as error:
        raise DispatcherError(str(error)) from None


def inspect(
    connection: Connection, exchange: str, queues: list[str], timeout_s: float = 2.0,
) -> dict[str, Any]:
    """Ask all workers which tasks they run. Returns {"processes": [...], "queues": [...]}.

    "processes" has a dict for each worker process that answered: its host, pid, version, tasks and workers.
    "queues" has a dict for each of ``queues`` and of the answering workers' queues: its waiting and dead
    tasks, and its consumers. Returns after ``timeout_s``, or once as many workers of ``queues`` have
    answered as these queues have consumers. Raises DispatcherError.
    """
    deadline = time.monotonic() + timeout_s
    consumers = sum(each["consumers"] for each in _queues(connection, queues))
    answers: list[dict[str, Any]] = []
    try:
        with connection.channel() as channel:
            control = f"{exchange}.control"
            channel.exchange_declare(control, passive=True)
            channel.consume(_REPLY_TO, no_ack=True)
            channel.publish(control, "", b"", Properties(reply_to=_REPLY_TO))
            while (left_s := deadline - time.monotonic()) > 0:
                if consumers and sum(
                    worker["queue"] in queues for each in answers for worker in each["workers"]
                ) >= consumers:
                    break
                delivery = channel.next_delivery(left_s)
                if delivery is not None and (answer := _answer(delivery.body)) is not None:
                    answers.append(answer)
    except ChannelClosed as error:
        if error.reply_code != _NOT_FOUND:  # the exchange, which the first worker declares
            raise DispatcherError(str(error)) from None
    answers.sort(key=lambda each: (each["host"], each["pid"]))
    found = sorted({worker["queue"] for each in answers for worker in each["workers"]}.difference(queues))
    return {
        "processes": answers, "queues": _queues(connection, sorted([*found[:_MOST_QUEUES], *set(queues)]))}


def _answer(body):
    """Decode a worker process's answer. Returns None for other forms, which other programs may send."""
    if len(body) > _LONGEST_ANSWER:
        return None
    try:
        answer = json.loads(body)
        fits = (
            _has(answer, _PROCESS) and all(isinstance(each, str) for each in answer["tasks"])
            and all(
                _has(each, _WORKER) and 0 < len(each["queue"].encode()) <= _LONGEST_NAME
                and all(_has(task, _RUNNING) for task in each["running"])
                for each in answer["workers"])
        )
    except (ValueError, RecursionError):
        return None
    return answer if fits else None


def _has(value, fields):
    return isinstance(value, dict) and all(
        isinstance(value.get(name, fields), kinds) for name, kinds in fields.items())


def _is_id(value):
    return isinstance(value, str) and 0 < len(value) <= _LONGEST_ID


def _worker(worker):
    running = worker.running
    return {
        "name": worker.name, "queue": worker.config.queue, "limit": worker.config.limit,
        "consuming": worker.is_consuming, "done": worker.done_count, "failed": worker.failed_count,
        "revoked": worker.revoked_count, "expired": worker.expired_count, "taken": len(running),
        "running": [
            {
                "uuid": each.context.uuid, "name": each.context.name, "attempt": each.context.attempt,
                "seconds": None if each.began is None else round(time.monotonic() - each.began, 3),
            }
            for each in running[:_MOST_SHOWN]
        ],
    }


def _queues(connection, names):
    """Return [{"queue", "waiting", "dead", "consumers"}] for those of the named queues that exist."""
    found = []
    for name in names:
        counts = _counts(connection, name)
        if counts is not None:
            waiting, consumers = counts
            dead, _ = _counts(connection, f"{name}.dead") or (0, 0)
            found.append({"queue": name, "waiting": waiting, "dead": dead, "consumers": consumers})
    return found


def _counts(connection, queue):
    try:
        with connection.channel() as channel:
            declared = channel.queue_declare(queue, passive=True)
            return declared.message_count, declared.consumer_count
    except ChannelClosed:
        return None


def _declare_revoked(channel, exchange):
    return channel.queue_declare(f"{exchange}.revoked", durable=True, arguments=_REVOKED_ARGUMENTS)
