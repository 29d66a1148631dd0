"""Worker: consumes from one queue and runs the tasks. Its state changes only in the link's thread.

Messages end as follows:

    not JSON, not a task, wrong argument types    dead letters, with the reason
    a task that this worker does not know         delayed, because another worker may know it; after several
                                                  delays dead letters
    the function returns                          acknowledged
    the function raises or takes too long         tried again as its TaskConfig says; then acknowledged, or
                                                  dead letters
    expired or revoked                            acknowledged
    the connection is lost                        the broker delivers the message again

Dead letters go to the queue ``<queue>.dead``. To delay or dead-letter a message, the worker publishes a copy,
and acknowledges the original when the copy is confirmed: a crash in between leaves both.
"""

import logging
import threading
import time
from dataclasses import dataclass, field, replace
from typing import Any

from gomq_py.client.backoff import Backoff
from gomq_py.client.channel import Channel
from gomq_py.client.connection import Connection
from gomq_py.client.errors import ChannelClosed, ClientError, Disconnected
from gomq_py.dispatcher import tasks as wire
from gomq_py.dispatcher.arguments import convert, name_of, on_one_line, shown, text_of, trace_of
from gomq_py.dispatcher.copies import Copies
from gomq_py.dispatcher.delays import left_s
from gomq_py.dispatcher.errors import (
    LONGEST_DELAY_S, BadArgument, BadTask, Dropped, Expired, Reject, Retry, Revoked, TaskTimeout, UnknownTask,
)
from gomq_py.dispatcher.pace import Pace
from gomq_py.dispatcher.runners import KINDS, Hooks, Invocation, make_runner
from gomq_py.dispatcher.signatures import check_of
from gomq_py.errors import Malformed

RETURN_KEY = "dispatcher.return."
# Longest error text in a header; it must fit into a frame.
_REASON_OCTETS = 1000
DEFAULT_LIMIT = 3
_MOST_PREFETCH = 65535  # of basic.qos


@dataclass
class WorkerConfig:
    """Configures a worker.

    ``name``: the consumer tag. ``limit``: most tasks at once. ``prefetch``: most unacknowledged deliveries
    (0: as ``limit``). ``interval_s``: least time between the beginnings of two tasks. ``unknown_retries``:
    how often a task that the worker does not know is delayed. ``dead_letters``: the queue for tasks that
    cannot succeed (None: ``<queue>.dead``). If it is "", the worker rejects these tasks, and the broker drops
    them unless their queue has a dead-letter exchange.
    """

    queue: str
    name: str
    binding_keys: list[str] = field(default_factory=list)
    limit: int = DEFAULT_LIMIT
    prefetch: int = 0
    arguments: dict[str, Any] = field(default_factory=dict)
    dead_letters: str | None = None
    dead_letter_arguments: dict[str, Any] = field(default_factory=dict)
    unknown_retries: int = 5
    unknown_backoff: Backoff | None = None
    interval_s: float = 0.0

    def check(self) -> None:
        """Raise ValueError if a field is invalid."""
        if not self.queue:
            raise ValueError("Empty queue name passed")
        if not self.name:
            raise ValueError(f"the worker of queue {self.queue!r} has no name")
        if not all(self.binding_keys):
            raise ValueError(f"Empty binding key passed for queue {self.queue!r}")
        if not 1 <= self.limit <= _MOST_PREFETCH or not 0 <= self.prefetch <= _MOST_PREFETCH:
            raise ValueError(
                f"worker {self.name!r}: a limit of {self.limit} tasks and a prefetch of {self.prefetch} are "
                f"none: both are at most {_MOST_PREFETCH}")


class Worker:
    """Runs the tasks of one queue. Made by ``Server.new_worker``. ``failed_count``: the number of failed
    runs, without those that raised Retry.
    """

    def __init__(self, server: Any, config: WorkerConfig, task_configs: dict[str, wire.TaskConfig]) -> None:
        self.config = config
        self.name = config.name
        self.tasks = {name: _checked(name, task) for name, task in task_configs.items()}
        self.hooks = Hooks(server.logger)
        self.hooks.check = lambda context: self._check_wanted(context.uuid, context.name, context.headers)
        self.done_count = self.failed_count = self.revoked_count = self.expired_count = 0
        self._server = server
        self._log = server.logger
        self._dead_letters = f"{config.queue}.dead" if config.dead_letters is None else config.dead_letters
        self._unknown_backoff = config.unknown_backoff or Backoff(1.0, 60.0)
        self._channel: Any = None
        self.is_consuming = False  # started and not stopped
        self._running: dict[Invocation, bool] = {}  # invocation -> True, until it is settled
        self._idle = threading.Event()
        self._idle.set()
        self._copies = Copies(self.name, server, self._idle.clear, self._note_idle)
        self._pace = Pace(config.interval_s, server.link, self._forget, self._give_up)
        self._runners: dict[str, Any] = {}
        self._watch_at: float | None = None  # when timeouts are checked next

    @property
    def running(self) -> list[Invocation]:
        """The Invocations whose tasks are delivered and not settled."""
        return list(self._running)

    @property
    def running_count(self) -> int:
        return len(self._running)

    def start(self) -> None:
        """Start to consume from the queue, now and after each reconnect."""
        self._server.link.call(self._start)

    def stop(self) -> None:
        """Stop consuming. Delivered tasks that have not begun return to the queue."""
        self._call(self._stop)

    def close(self, timeout_s: float | None = None) -> bool:
        """Stop, wait up to ``timeout_s`` for running tasks, leave the Server. Return True if all finished."""
        self.stop()
        finished = self._idle.wait(timeout_s)
        if not finished:
            names = sorted({each.context.name for each in list(self._running)})
            self._log.warning(
                "worker %r leaves %d tasks behind: %s", self.name, len(self._running), ", ".join(names))
        self._call(self._leave)
        self._server.forget(self)
        for runner in self._runners.values():
            runner.close()
        return finished

    # Called by the server, in the link's thread.

    def up(self, connection: Connection) -> None:
        """Declare the queues over a new connection, and consume if the worker is started."""
        channel = connection.channel()
        self.declare(channel)
        channel.qos(self.config.prefetch or self.config.limit)
        channel.cancel_listener = lambda tag: self._post(self._cancelled, channel)
        self._channel = channel
        self._consume()

    def declare(self, channel: Channel) -> None:
        config, exchange = self.config, self._server.config.exchange
        channel.queue_declare(config.queue, durable=True, arguments=config.arguments)
        for key in (*config.binding_keys, RETURN_KEY + config.queue):
            channel.queue_bind(config.queue, exchange, key)
        if self._dead_letters:
            channel.queue_declare(self._dead_letters, durable=True, arguments=config.dead_letter_arguments)

    def down(self, error: BaseException | None) -> None:
        """Forget tasks that have not begun and cancel unconfirmed copies, because the channel is lost."""
        self._channel = None
        self._take_back()
        self._copies.cancel()

    def channel_closed(self, connection: Connection, error: ChannelClosed) -> bool:
        """Open a new channel, if the closed channel was this worker's. Returns whether it was."""
        if self._channel is None or not error.is_same(self._channel.error):
            return False
        self._log.warning("the broker closed the channel of worker %r: %s", self.name, error)
        self.down(error)
        self.up(connection)
        return True

    def end(self, error: BaseException | None) -> None:
        """Stop for good, because the link has ended. Running tasks go on; other workers may get them, too."""
        self.down(error)
        self.is_consuming = False
        self._copies.forget()
        self._note_idle()
        for invocation in list(self._running):
            if invocation.config.timeout_s:  # the link's thread, which checks timeouts, ends
                left_s = self._due(invocation) - time.monotonic()
                timer = threading.Timer(max(0.0, left_s), self._time_out, [invocation])
                timer.daemon = True
                timer.start()

    # The rest is private and runs in the link's thread.

    def _post(self, function, *args):
        """Let the link's thread call the function soon. Returns False if the link has ended."""
        try:
            self._server.link.post(function, *args)
        except Disconnected:
            return False
        return True

    def _call(self, function):
        """Let the link's thread call the function, and wait for it. A lost connection is only logged."""
        # The broker has then returned all tasks to the queue.
        try:
            self._server.link.call(function)
        except (ClientError, OSError) as error:
            self._log.info("worker %r: %s", self.name, error)

    def _start(self):
        self.is_consuming = True
        self._consume()

    def _consume(self):
        if self.is_consuming and self._channel is not None:
            self._channel.consume(self.config.queue, self._delivered, consumer_tag=self.name)

    def _cancelled(self, channel):
        """Consume again, after the broker has cancelled the consumer (queue deleted or moved)."""
        if channel is self._channel and self.is_consuming:
            self._log.warning(
                "the broker cancelled worker %r: declares queue %r and consumes again", self.name,
                self.config.queue,
            )
            channel.close()
            self.down(None)
            self.up(self._server.link.connection)

    def _stop(self):
        consuming, self.is_consuming = self.is_consuming, False
        channel = self._channel
        if not consuming or channel is None:
            return
        channel.cancel(self.name)
        for delivery in (*channel.deliveries, *(each.delivery for each in self._take_back())):
            delivery.nack(requeue=True)
        channel.deliveries.clear()

    def _leave(self):
        channel, self._channel = self._channel, None
        if channel is not None:
            channel.close()  # unacknowledged tasks return to the queue
        self._running.clear()

    def _take_back(self):
        back = [each for holder in (self._pace, *self._runners.values()) for each in holder.take_back()]
        for invocation in back:
            self._forget(invocation)
        return back

    def _delivered(self, delivery):
        try:
            self._take(delivery)
        except (ClientError, OSError):
            raise
        except Exception as error:  # an unforeseen fault costs one message only
            self._log.exception("worker %r met a message it cannot deal with", self.name)
            self._give_up(delivery, error)

    def _take(self, delivery):
        try:
            headers = delivery.properties.headers or {}
            task = wire.decode(bytes(delivery.body))
            self._check_wanted(task.uuid, task.name, headers)
            config, early_s = self.tasks.get(task.name), left_s(headers)
            values = self._values(task, config) if config is not None and early_s <= 0 else []
        except (BadTask, Malformed) as error:
            self._give_up(delivery, error)
            return
        except Dropped as error:
            self._drop(delivery, error)
            return
        if config is None:
            self._put_off_unknown(delivery, task)
        elif early_s > 0:
            self._put_off(delivery, min(early_s, LONGEST_DELAY_S), {})
        else:
            context = wire.TaskContext(
                task.uuid, task.name, values, headers, wire.counted(headers, wire.ATTEMPT_HEADER, 1),
                self.config.queue, self.name, delivery.redelivered,
            )
            self._begin(config, context, delivery)

    def _check_wanted(self, identifier, name, headers):
        """Raise Revoked or Expired if this task must not begin. Any thread may call this."""
        config = self.tasks.get(name)
        if identifier in self._server.revoked:
            raise Revoked(f"task {shown(name)} ({on_one_line(identifier)}) was revoked")
        if wire.has_expired(headers, config and config.expires_s):
            raise Expired(f"task {shown(name)} ({on_one_line(identifier)}) has expired")

    def _drop(self, delivery, error):
        if isinstance(error, Revoked):
            self.revoked_count += 1
        else:
            self.expired_count += 1
        self._log.info("worker %r drops a message of queue %r: %s", self.name, self.config.queue, error)
        self._ack(delivery)

    def _values(self, task, config):
        values, where = [], ""
        try:
            for number, (type_name, value) in enumerate(task.args, start=1):
                where = f"argument {number}: "
                values.append(convert(type_name, value))
            where = ""
            if config.check is not None:
                config.check(values, [each[0] for each in task.args])
        except BadArgument as error:
            raise BadArgument(f"task {shown(task.name)} of worker {self.name!r}: {where}{error}") from None
        return values

    def _begin(self, config, context, delivery):
        runner = self._runners.get(config.run_in)
        if runner is None:
            runner = self._runners[config.run_in] = make_runner(config.run_in, self.config.limit, self.name)
        values = [context.uuid, *context.args] if config.task_uuid_as_first_arg else context.args
        invocation = Invocation(config, context, values, delivery, self._returned, self.hooks)
        self._idle.clear()  # first: close() must wait for a task that it sees running
        self._running[invocation] = True
        if config.timeout_s:
            self._watch(time.monotonic() + config.timeout_s)
        self._pace.begin(runner, invocation)

    def _returned(self, invocation, error):
        """Run the hooks and settle the task, after its function has ended. Runners call this."""
        self.hooks.ended(invocation.context, error)
        if not self._post(self._settle, invocation, error):
            self._forget(invocation)

    def _settle(self, invocation, error):
        if self._running.pop(invocation, None) is None:
            return  # taken back when the connection was lost
        if error is None:
            self.done_count += 1
            self._ack(invocation.delivery)
        elif isinstance(error, Dropped):
            self._drop(invocation.delivery, error)
        else:
            self.failed_count += not isinstance(error, Retry)
            try:
                self._settle_failed(invocation, error)
            except (ClientError, OSError):
                raise
            except Exception as fault:
                # an unforeseen fault costs one message, and no place among the running tasks
                self._log.exception("worker %r met an error that it cannot deal with", self.name)
                self._give_up(invocation.delivery, fault)
        self._note_idle()

    def _settle_failed(self, invocation, error):
        delivery, config, attempt = invocation.delivery, invocation.config, invocation.context.attempt
        if isinstance(error, Reject) or not isinstance(error, Retry) and attempt > config.retries:
            self._log_failure(logging.ERROR, "failed", invocation, error)
            if config.dead_letter or isinstance(error, Reject):
                self._give_up(delivery, error)
            else:
                self._ack(delivery)
            return
        wait_s = getattr(error, "delay_s", None)
        if wait_s is None:
            wait_s = (config.backoff or Backoff()).wait_s(attempt) or 0.0
        wait_s = min(wait_s, LONGEST_DELAY_S)
        of_all = f" of {config.retries + 1}" if attempt <= config.retries else ""
        self._log_failure(
            logging.INFO if isinstance(error, Retry) else logging.WARNING,
            f"will run again in {round(wait_s, 2):g} s, attempt {attempt + 1}{of_all}", invocation, error)
        self._put_off(delivery, wait_s, {wire.ATTEMPT_HEADER: attempt + 1})

    def _log_failure(self, level, what, invocation, error):
        context = invocation.context
        quiet = isinstance(error, (Retry, Reject, TaskTimeout))
        exc_info, trace = (None, "") if quiet else trace_of(error)
        self._log.log(
            level, "task %r (%s) of worker %r %s: %s: %s%s", context.name, on_one_line(context.uuid),
            self.name, what, name_of(error), text_of(error), trace, exc_info=exc_info,
        )

    def _watch(self, when):
        """Schedule a check of timeouts at ``when``, unless an earlier check is scheduled."""
        if self._watch_at is None or when < self._watch_at:
            self._watch_at = when
            self._server.link.call_later(max(0.0, when - time.monotonic()), self._look_at_timeouts, when)

    def _look_at_timeouts(self, when):
        if when != self._watch_at:
            return  # an earlier check has planned the next
        self._watch_at = None
        now = time.monotonic()
        for invocation in list(self._running):
            if invocation.config.timeout_s:
                due = self._due(invocation)
                if due <= now:
                    self._time_out(invocation)
                else:
                    self._watch(due)

    @staticmethod
    def _due(invocation):
        """Return the monotonic time of the invocation's timeout, counted from the call of its function."""
        return (invocation.began or time.monotonic()) + invocation.config.timeout_s

    def _time_out(self, invocation):
        if not invocation.claim():
            return  # has just ended
        context = invocation.context
        error = TaskTimeout(
            f"task {context.name!r} ({on_one_line(context.uuid)}) of worker {self.name!r} took over "
            f"{invocation.config.timeout_s:g} s")
        self._settle(invocation, error)
        self._runners[invocation.config.run_in].abandon(invocation)
        self.hooks.ended(context, error)

    def _forget(self, invocation):
        self._running.pop(invocation, None)
        self._note_idle()

    def _note_idle(self):
        if not self._running and not self._copies.futures:
            self._idle.set()

    def _ack(self, delivery):
        if not delivery.channel.closed:  # otherwise the broker delivers it again
            delivery.ack()
            self._server.link.worked()

    def _put_off_unknown(self, delivery, task):
        count = wire.counted(delivery.properties.headers or {}, wire.UNKNOWN_HEADER, 0)
        if count >= self.config.unknown_retries:
            known = ", ".join(sorted(self.tasks)) or "none"
            self._give_up(
                delivery,
                UnknownTask(
                    f"task {shown(task.name)} is not known to worker {self.name!r}, nor to who else had it "
                    f"in {count} tries: there are {known}"),
            )
            return
        self._log.warning("task %s is not known to worker %r: put off", shown(task.name), self.name)
        self._put_off(
            delivery, self._unknown_backoff.wait_s(count + 1) or 0.0, {wire.UNKNOWN_HEADER: count + 1})

    def _put_off(self, delivery, wait_s, headers):
        """Replace the message by a copy that reaches this queue after ``wait_s`` seconds."""
        key = RETURN_KEY + self.config.queue
        self._copies.replace(
            delivery, headers,
            lambda properties: self._server.send_later(key, delivery.body, properties, wait_s),
            lambda error: self._give_up(delivery, error),
        )

    def _give_up(self, delivery, error):
        """Dead-letter the message, with the error as reason, or reject it if ``dead_letters`` is ""."""
        text = text_of(error)
        self._log.error("worker %r gives up a message of queue %r: %s", self.name, self.config.queue, text)
        if not self._dead_letters:
            if not delivery.channel.closed:
                delivery.nack(requeue=False)
            return
        reason = text.encode("utf-8")[:_REASON_OCTETS].decode("utf-8", "ignore")
        headers = {
            wire.REASON_HEADER: reason,
            wire.ERROR_HEADER: name_of(error),
            wire.QUEUE_HEADER: self.config.queue,
            wire.WORKER_HEADER: self.name,
        }

        def send(properties):
            return self._server.send_copy("", self._dead_letters, delivery.body, properties)

        def send_bare(unsent):
            self._log.error(
                "a dead letter of queue %r goes without its own headers: %s", self.config.queue,
                text_of(unsent),
            )
            self._copies.replace(delivery, headers, send, drop, bare=True)

        def drop(unsent):
            self._log.error(
                "a message of queue %r cannot be a dead letter and is refused: %s", self.config.queue,
                text_of(unsent),
            )
            delivery.nack(requeue=False)

        self._copies.replace(delivery, headers, send, send_bare)


def _checked(name, config):
    """Return the TaskConfig; if it has no ``check``, add one of the argument count. Raises ValueError."""
    if config.run_in not in KINDS:
        raise ValueError(f"task {name!r}: tasks run in {', '.join(KINDS)}, not in {config.run_in!r}")
    config.check_limits(name)
    wire.check_kind(name, config.function, config.run_in)
    if config.check is not None:
        return config
    return replace(config, check=check_of(config.function, 1 if config.task_uuid_as_first_arg else 0))
