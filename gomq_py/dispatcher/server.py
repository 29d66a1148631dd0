"""Server: a connection that publishes tasks, serves workers and reconnects. Modelled on gofort/dispatcher.

    server = Server(ServerConfig(url="amqp://localhost", init_queues=[InitQueue("jobs", ["jobs"])],
                                 default_routing_key="jobs"))
    server.publish(Task("resize", ["cat.png", 640]))

Workers share the connection; each worker has its own channel and name. Any number of threads and greenlets
may publish at once.
"""

import contextlib
import logging
import sys
import threading
import time
from concurrent.futures import Future, TimeoutError as FutureTimeout
from dataclasses import dataclass, field
from collections.abc import Callable, Container
from typing import Any, Self

from gomq_py.client.backoff import Backoff
from gomq_py.client.errors import ChannelClosed, Disconnected, NotConfirmed
from gomq_py.client.link import Link
from gomq_py.client.publisher import Publisher
from gomq_py.client.url import DEFAULT_URL
from gomq_py.content.properties import Properties
from gomq_py.dispatcher.delays import delays_of
from gomq_py.dispatcher.errors import (
    LONGEST_DELAY_S, BadTask, DispatcherError, NotDelivered, NotSupported, ServiceDisconnected,
    checked_seconds,
)
from gomq_py.dispatcher.remote import RemoteControl
from gomq_py.dispatcher.tasks import Task, TaskConfig
from gomq_py.dispatcher.worker import Worker, WorkerConfig

_LOG = logging.getLogger("gomq_py.dispatcher")
# A delayed task needs a declaration first, so it waits here for a connection.
_LOOK_FOR_CONNECTION_S = 0.2
_NOT_FOUND = 404  # an exchange was deleted


@dataclass
class InitQueue:
    """A durable queue that the Server, whenever it connects, declares and binds with these keys.
    ``arguments``: a dict, or a function that is called with the Server's BrokerDelays or QueueDelays and
    returns the dict.
    """

    name: str
    binding_keys: list[str] = field(default_factory=list)
    arguments: Any = field(default_factory=dict)


@dataclass
class ServerConfig:
    """The broker's URL, and the exchange, queues and bindings that the Server declares.

    The exchange is durable and direct.

        reconnection_interval_s     first wait before a reconnect; waits double, each less a random part
        reconnection_most_s         the longest wait
        reconnection_retries        after so many failures (None: never) the Server ends and calls
                                    ``on_connection_broken(error)``
        publish_timeout_s           limits each call of ``publish``, including reconnects
        unique_s                    for how many seconds after a unique task the broker drops equal tasks
                                    (None: no unique tasks)
        remote                      whether tasks can be revoked, and workers inspected
    """

    url: str = DEFAULT_URL
    exchange: str = "dispatcher"
    default_routing_key: str = ""
    init_queues: list[InitQueue] = field(default_factory=list)
    reconnection_retries: int | None = 25
    reconnection_interval_s: float = 1.0
    reconnection_most_s: float = 30.0
    publish_timeout_s: float = 30.0
    unique_s: float | None = None
    tls_context: Any = None
    heartbeat_s: int | None = 30
    name: str | None = None
    logger: logging.Logger = _LOG
    on_connection_broken: Callable[[BaseException], object] | None = None
    remote: bool = False

    def check(self) -> None:
        """Raise ValueError if a field is invalid."""
        if not self.exchange:
            raise ValueError("Can't bind key to queue without exchange")
        for each in self.init_queues:
            if not each.name:
                raise ValueError("Empty queue name passed")
            if not all(each.binding_keys):
                raise ValueError(f"Empty binding key passed for queue {each.name!r}")
        for name in ("reconnection_interval_s", "reconnection_most_s", "publish_timeout_s"):
            checked_seconds(name, getattr(self, name))
        if self.unique_s is not None and not 0.001 <= self.unique_s <= LONGEST_DELAY_S:
            raise ValueError(
                f"unique_s is {self.unique_s!r}: from 0.001 seconds on, or None for no unique tasks")
        if self.heartbeat_s is not None and self.heartbeat_s not in range(65536):
            raise ValueError(f"heartbeat_s is {self.heartbeat_s!r}: whole seconds up to 65535, 0 for none")


class Server:
    """A connection to the broker for tasks and workers. The constructor connects.

    If all attempts fail, the constructor raises the last error (OSError, ClientError). ``connection_broken``:
    an Event, set when the Server has lost its connection and stops reconnecting.
    """

    def __init__(self, config: ServerConfig | None = None) -> None:
        self.config = config or ServerConfig()
        self.config.check()
        self.connection_broken = threading.Event()
        self.logger = self.config.logger
        self.delays: Any = None  # BrokerDelays or QueueDelays, once connected
        self._publisher = Publisher()
        self._workers: dict[str, Worker] = {}
        self._put_off: dict[Future[str], Task] = {}  # Future of a delayed task -> the task, until connected
        self._closing = False
        self._remote = RemoteControl(self)
        self._control: Any = None  # the channel for declaring; for the link's thread
        backoff = Backoff(
            self.config.reconnection_interval_s,
            max(self.config.reconnection_most_s, self.config.reconnection_interval_s),
            self.config.reconnection_retries,
        )
        self.link = self._publisher.link = Link(
            self.config.url, on_up=self._up, on_down=self._down, on_end=self._end,
            on_channel_closed=self._channel_closed, backoff=backoff, final=(NotSupported,),
            logger=self.logger, tls_context=self.config.tls_context, heartbeat_s=self.config.heartbeat_s,
            name=self.config.name or "dispatcher",
        )
        self.link.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def is_connected(self) -> bool:
        return self.link.is_up

    def publish(self, task: Task, timeout_s: float | None = None) -> str:
        """Send a task, and wait for the broker's confirm. Returns the task's uuid.

        Raises BadTask, NotSupported, ServiceDisconnected, or NotDelivered if the broker refuses the task or
        no queue is bound with its routing key. In an asyncio event loop use ``submit``, which does not wait.
        """
        if self.link.is_own_thread():
            raise RuntimeError("publish() waits for the thread it was called from: use submit() there")
        timeout_s = self.config.publish_timeout_s if timeout_s is None else timeout_s
        placed, greenlets = self._placed(task), _greenlets()
        if task.delay_s > 0:
            future = self._send(placed, task)
        else:
            future = self._publish(placed, task, serve_s=0.0 if greenlets else timeout_s)
        if greenlets is not None:
            greenlets.wait_for(future, timeout_s)
        else:
            with contextlib.suppress(FutureTimeout):
                future.exception(timeout_s)
        if future.cancel():
            raise ServiceDisconnected(
                "Service is disconnected, or does not answer: "
                f"task {task.name!r} was not confirmed within {timeout_s} s")
        if (error := future.exception(0)) is not None:
            raise error if isinstance(error, DispatcherError) else _translated(task, error)
        return task.uuid

    def submit(self, task: Task) -> Future[str]:
        """Send a task without waiting. Returns a concurrent.futures.Future for its uuid. Raises BadTask,
        NotSupported.
        """
        return self._send(self._placed(task), task)

    def new_worker(self, config: WorkerConfig, tasks: dict[str, TaskConfig] | None = None) -> Worker:
        """Make a Worker, declare its queue, and return the Worker, which is not started yet. ``tasks``: the
        TaskConfig of each task, by name. Raises ValueError, ServiceDisconnected, DispatcherError.
        """
        if self._closing:
            raise ServiceDisconnected("Service is disconnected: the server was closed")
        if config.name in self._workers:
            raise ValueError(
                f"there is a worker {config.name!r} already: a name is a consumer tag, and used once")
        config.check()
        worker = Worker(self, config, tasks or {})
        self._workers[config.name] = worker
        try:
            self.link.call(self._add_worker, worker)
        except BaseException:
            del self._workers[config.name]
            raise
        return worker

    def get_worker(self, name: str) -> Worker:
        """Return the worker of this name. Raises KeyError, whose text lists the workers' names."""
        if name not in self._workers:
            raise KeyError(f"no worker {name!r}: there are {', '.join(sorted(self._workers)) or 'none'}")
        return self._workers[name]

    @property
    def workers(self) -> list[Worker]:
        return list(self._workers.values())

    def close(self, timeout_s: float | None = None) -> bool:
        """Stop consuming, wait up to ``timeout_s`` for running tasks, and disconnect. Returns True if all
        tasks have finished. Unfinished tasks return to their queues.
        """
        self._closing = True
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        workers = self.workers
        for worker in workers:
            worker.stop()
        finished = [
            worker.close(None if deadline is None else max(0.0, deadline - time.monotonic()))
            for worker in workers
        ]
        self.link.close()
        return all(finished)

    def abort(self) -> None:
        """Cut the connection. Unfinished tasks return to their queues at once."""
        self._closing = True
        self.link.abort()
        self.link.close()

    # Called by workers, in the link's thread.

    def send_copy(
        self, exchange: str, routing_key: str, body: bytes, properties: Properties,
    ) -> Future[None]:
        """Publish a copy of a message for a worker. Returns a Future that is done at the broker's confirm."""
        return self._publisher.publish(exchange, routing_key, body, properties)

    def send_later(
        self, routing_key: str, body: bytes, properties: Properties, delay_s: float,
    ) -> Future[None]:
        """Publish a message that reaches the tasks' exchange after ``delay_s`` seconds. Returns a Future,
        which is done at the broker's confirm.
        """
        exchange, headers = self.delays.place(delay_s)
        self.delays.prepare(self._control, delay_s)
        properties.headers = {**(properties.headers or {}), **headers}
        return self._publisher.publish(exchange, routing_key, body, properties)

    @property
    def revoked(self) -> Container[str]:
        return self._remote.revoked

    def forget(self, worker: Worker) -> None:
        self._workers.pop(worker.name, None)

    # The rest is private.

    def _placed(self, task):
        """Return a task's message: (exchange, routing key, body, headers). Raises BadTask, NotSupported."""
        body = task.encode()
        routing_key = task.routing_key or self.config.default_routing_key
        if not routing_key:
            raise BadTask(f"task {task.name!r} has no routing key, and the server has no default one")
        if task.unique and self.config.unique_s is None:
            raise NotSupported(
                f"task {task.name!r} is unique by {task.unique!r}, but the server was made without unique_s")
        exchange, headers = self.config.exchange, {}
        if task.schedule is not None:
            exchange, headers = self.delays.place_schedule(task.schedule)
        elif task.delay_s > 0 or task.unique:
            exchange, headers = self.delays.place(task.delay_s, task.unique)
        return exchange, routing_key, body, headers

    def _send(self, placed, task):
        answer: Future = Future()
        if task.delay_s > 0:
            try:
                self.link.post(self._prepare_and_send, answer, placed, task)
            except Disconnected as error:
                answer.set_exception(_translated(task, error))
        else:
            self._pass_on(self._publish(placed, task), answer, task)
        return answer

    def _prepare_and_send(self, answer, placed, task):
        self._put_off.pop(answer, None)
        if answer.done():
            return
        if self.link.has_ended:
            _fail(answer, task, "the link has ended")
            return
        if self.link.connection is None:
            self._put_off[answer] = task
            self.link.call_later(_LOOK_FOR_CONNECTION_S, self._prepare_and_send, answer, placed, task)
            return
        self.delays.prepare(self._control, task.delay_s)
        self._pass_on(self._publish(placed, task), answer, task)

    def _publish(self, placed, task, serve_s=0.0):
        exchange, routing_key, body, headers = placed
        # Not mandatory: the broker would return a dropped duplicate as unroutable.
        return self._publisher.publish(
            exchange, routing_key, body, task.properties(headers), mandatory=not task.unique, serve_s=serve_s)

    def _pass_on(self, sent, answer, task):
        def ended(future):
            error = future.exception() if not future.cancelled() else None
            if not answer.set_running_or_notify_cancel():
                return
            if error is None:
                answer.set_result(task.uuid)
            else:
                answer.set_exception(_translated(task, error))

        def given_up(future):
            if future.cancelled():
                sent.cancel()

        sent.add_done_callback(ended)
        answer.add_done_callback(given_up)

    def _up(self, connection):
        self._control = connection.channel()
        self.delays = delays_of(connection.server_properties, self.config.exchange)
        self._declare()
        for worker in self.workers:
            self._worker_up(worker, connection)
        self._publisher.up(connection)

    def _declare(self):
        channel = self._control
        channel.exchange_declare(self.config.exchange, "direct", durable=True)
        self.delays.declare(channel, self.config.unique_s)
        for each in self.config.init_queues:
            arguments = each.arguments(self.delays) if callable(each.arguments) else each.arguments
            channel.queue_declare(each.name, durable=True, arguments=arguments)
            for key in each.binding_keys:
                channel.queue_bind(each.name, self.config.exchange, key)

    def _worker_up(self, worker, connection):
        if self.config.remote:
            self._remote.up(connection)  # first: a revoked task must not begin
        worker.up(connection)

    def _down(self, error):
        self._control = None
        self._remote.down()
        self._publisher.down()
        for worker in self.workers:
            worker.down(error)

    def _channel_closed(self, error):
        connection = self.link.connection
        if self._publisher.channel_closed(connection, error):
            if error.reply_code == _NOT_FOUND:
                self.logger.warning("%s: declares its exchanges and queues again", error)
                self._declare()
                for worker in self.workers:
                    worker.declare(self._control)
            return True
        return self._remote.channel_closed(connection, error) or any(
            worker.channel_closed(connection, error) for worker in self.workers)

    def _end(self, error):
        self._publisher.end(error)
        for answer, task in self._put_off.items():
            _fail(answer, task, error or "the link was closed")
        self._put_off.clear()
        for worker in self.workers:
            worker.end(error)
        if error is not None and not self._closing and self.link.losses:
            self.connection_broken.set()
            if self.config.on_connection_broken is not None:
                self.config.on_connection_broken(error)

    def _add_worker(self, worker):
        connection = self.link.connection
        if connection is not None:  # otherwise with the next connection
            try:
                self._worker_up(worker, connection)
            except ChannelClosed as error:
                raise DispatcherError(f"worker {worker.name!r}: {error}") from None


def _greenlets():
    """Return the module ``greenlets`` if the caller runs in a greenlet, otherwise None."""
    if "gevent" not in sys.modules:
        return None
    from gomq_py.dispatcher import greenlets

    return greenlets if greenlets.is_in_greenlet() else None


def _fail(answer, task, why):
    if answer.set_running_or_notify_cancel():
        answer.set_exception(_translated(task, Disconnected(f"disconnected: {why}")))


def _translated(task, error):
    text = f"task {task.name!r} ({task.uuid})"
    if isinstance(error, Disconnected):
        return ServiceDisconnected(f"Service is disconnected: {text}: {error}")
    if isinstance(error, NotConfirmed):
        return NotDelivered(f"Failed to deliver message: {text}: {error}")
    return (
        BadTask(f"{text}: {error}") if isinstance(error, (ValueError, TypeError, RecursionError)) else error
    )
