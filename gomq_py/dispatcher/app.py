"""Makes functions into tasks: a decorator defines a task, ``delay()`` sends it, and the command
``gomq-py-worker module:app`` runs it.

    app = Dispatcher("amqp://localhost")

    @app.task(retries=3, timeout_s=30)
    def resize(path: str, width: int): ...

    resize.delay("cat.png", 640)

Nothing connects before the first task is sent or the worker starts.
"""

import inspect
import itertools
import os
import random
import threading
import time
import uuid
from collections.abc import Callable
from concurrent.futures import Future
from datetime import datetime, timezone
from functools import partial, update_wrapper
from typing import Any, Concatenate, Generic, Literal, ParamSpec, TypedDict, TypeVar, Unpack, overload

from gomq_py.client.backoff import Backoff
from gomq_py.client.connection import Connection
from gomq_py.client.url import DEFAULT_URL
from gomq_py.dispatcher import remote
from gomq_py.dispatcher.arguments import shown
from gomq_py.dispatcher.errors import BadTask, NotDelivered, NotSupported
from gomq_py.dispatcher.pace import interval_of
from gomq_py.dispatcher.server import InitQueue, Server, ServerConfig
from gomq_py.dispatcher.signatures import Signature
from gomq_py.dispatcher.tasks import KEY_HEADER, Task, TaskConfig, TaskContext, check_kind
from gomq_py.dispatcher.worker import DEFAULT_LIMIT, Worker, WorkerConfig


# Ten years, the broker's limit of an interval.
LONGEST_EVERY_S = 10 * 365 * 24 * 3600

Called = ParamSpec("Called")  # of a task's function
Sent = ParamSpec("Sent")  # the same without the uuid that a worker passes
Result = TypeVar("Result")
Before = TypeVar("Before", bound=Callable[[TaskContext], object])
Failed = TypeVar("Failed", bound=Callable[[TaskContext, BaseException], object])


class TaskOptions(TypedDict, total=False):
    """The keyword arguments of ``Dispatcher.task`` except ``with_uuid``, for type checkers."""

    name: str | None
    queue: str | None
    timeout_s: float
    retries: int
    backoff: Backoff | float | None
    run_in: str | None
    priority: int | None
    unique: bool
    key: str | None
    key_concurrency: int
    rate: str | None
    expires_s: float | None
    every_s: float | None
    cron: str | None
    timezone: str | None


class AppTask(Generic[Called, Sent, Result]):
    """A function decorated as a task. Calling it runs it here; ``delay`` and ``send`` send it to a worker."""

    def __init__(
        self, app: "Dispatcher", function: Callable[Called, Result], name: str, queue: str,
        priority: int | None, unique: bool, run_in: str | None, key_concurrency: int = 1,
        schedule: dict[str, Any] | None = None, expires_s: float | None = None, key: str | None = None,
        rate: str | None = None, **options: Any,
    ) -> None:
        """``schedule``: the times of a periodic task, as fields of the header x-schedule. ``key``: the
        parameter whose value is the task's key. ``options``: further fields of the TaskConfig.
        """
        self.app = app
        self.function = function
        self.name = name
        self.queue = queue
        self.signature = Signature(name, function, int(options["task_uuid_as_first_arg"]))
        self._priority = priority
        self._unique = unique
        self._run_in = run_in
        self._key_concurrency = key_concurrency
        self._schedule = schedule or {}
        self._expires_s = expires_s
        self._key_at = None if key is None else self.signature.position_of(key)
        self.interval_s = 0.0 if rate is None else interval_of(rate)
        self._sent = itertools.count(random.randrange(key_concurrency))
        self._options = options
        update_wrapper(self, function, ("__module__", "__name__", "__doc__"), ())

    def __call__(self, *args: Called.args, **kwargs: Called.kwargs) -> Result:
        return self.function(*args, **kwargs)

    def __repr__(self) -> str:
        return f"<task {self.name!r} on queue {self.queue!r}>"

    def delay(self, *args: Sent.args, **kwargs: Sent.kwargs) -> str:
        """Send the task with these arguments, and wait for the broker's confirm. Returns the task's uuid.
        Raises BadArgument, NotDelivered.
        """
        return self.send(args, kwargs)

    def send(
        self, args: tuple[Any, ...] | list[Any] = (), kwargs: dict[str, Any] | None = None, *,
        delay_s: float = 0.0, eta: datetime | float | None = None, priority: int | None = None,
        unique: str | None = None, headers: dict[str, Any] | None = None, key: str | int | None = None,
        expires_s: float | None = None,
    ) -> str:
        """Send the task, and wait for the broker's confirm. Returns the task's uuid.

        ``delay_s``, ``eta``: run after so many seconds, or at this time (datetime or Unix seconds).
        ``priority``: higher ones run first. ``unique``: the broker drops the task if a recent one had the
        same text ``unique``. ``key``: tasks with the same key (a text or an integer) run in order, one at a
        time. ``expires_s``: drop the task if it has not begun after so many seconds. Raises BadTask,
        NotDelivered.
        """
        return self.app.server.publish(
            self.task(args, kwargs, delay_s, eta, priority, unique, headers, key, expires_s))

    def submit(self, *args: Sent.args, **kwargs: Sent.kwargs) -> Future[str]:
        """Send the task without waiting. Returns a concurrent.futures.Future for the task's uuid."""
        return self.app.server.submit(self.task(args, kwargs))

    def task(
        self, args: tuple[Any, ...] | list[Any] = (), kwargs: dict[str, Any] | None = None,
        delay_s: float = 0.0, eta: datetime | float | None = None, priority: int | None = None,
        unique: str | None = None, headers: dict[str, Any] | None = None, key: str | int | None = None,
        expires_s: float | None = None,
    ) -> Task:
        """Return the Task that ``send`` sends for the same arguments. Raises BadTask (BadArgument)."""
        if eta is not None:
            try:
                at = eta.astimezone(timezone.utc).timestamp() if isinstance(eta, datetime) else float(eta)
            except (ValueError, OverflowError, TypeError) as error:
                raise BadTask(f"task {self.name!r}: eta {eta!r} is no time: {error}") from None
            delay_s = max(at - time.time(), 0.0)  # in this order NaN stays, and is refused
        arguments = self.signature.arguments(args, kwargs or {})
        if unique is None and self._unique:
            unique = f"{self.name}:{[each.value for each in arguments]!r}"
        headers = dict(headers or {})
        if key is None and self._key_at is not None:
            key = arguments[self._key_at].value
        if key is not None:
            headers[KEY_HEADER] = self._group(key)
        return Task(
            self.name, arguments, routing_key=self.queue, headers=headers, delay_s=delay_s,
            unique=unique or "", priority=self._priority if priority is None else priority,
            expires_s=self._expires_s if expires_s is None else expires_s,
            broker_drops=not self.app.has_dead_letters,
        )

    @property
    def is_periodic(self) -> bool:
        return bool(self._schedule)

    def scheduled(self) -> Task:
        """Return a Task to send: it sets this task's schedule at the broker, or deletes the schedule if this
        task is not periodic. Raises BadArgument if this task needs arguments.
        """
        task = self.task() if self.is_periodic else Task(self.name, routing_key=self.queue)
        # One for all times, or each start would replace the schedule.
        task.uuid = str(uuid.uuid5(uuid.NAMESPACE_URL, f"{self.queue}:{self.name}"))
        task.expires_s = None  # counted by the worker from each of its times
        task.schedule = {"name": schedule_name(self.queue, self.name), **self._schedule}
        return task

    def _group(self, key):
        """Return the message group for a key. A key with key_concurrency n has n groups, used in turn."""
        if not self.app.is_keyed:
            raise BadTask(f"task {self.name!r} has a key, which needs Dispatcher(keyed=True)")
        if not isinstance(key, (str, int)) or isinstance(key, bool) or key == "":
            raise BadTask(f"task {self.name!r}: a key is a text or an integer, not {shown(key)}")
        return (
            str(key) if self._key_concurrency == 1 else f"{key}/{next(self._sent) % self._key_concurrency}")

    def call(self, *values: Any) -> Any:
        return self.signature.call(self.function, values)

    def config(self, run_in: str | None = None) -> TaskConfig:
        """Return the TaskConfig for a worker. ``run_in``: used if the decorator does not say where to run."""
        kind = self._run_in or (
            "asyncio" if inspect.iscoroutinefunction(self.function) else run_in or "threads"
        )
        return TaskConfig(
            self.call, run_in=kind, dead_letter=True, check=self.signature.check, expires_s=self._expires_s,
            **self._options)


class Dispatcher:
    """An app: its tasks, their queues and their broker. Further keywords are those of ServerConfig.

    For queues that Go workers declare, too, pass ``delivery_limit=None, priorities=0``.

        queue             for tasks that name no queue
        delivery_limit    after so many redeliveries of a task whose workers were lost, the broker
                          dead-letters it; None: no limit; only with gomq-py as broker
        priorities        the highest priority of the queues (0: no priorities)
        unique_s          for how many seconds after a unique task the broker drops equal tasks
        keyed             tasks may have keys; only with gomq-py as broker, and without priorities
    """

    def __init__(
        self, url: str = DEFAULT_URL, *, queue: str = "tasks", concurrency: int = DEFAULT_LIMIT,
        prefetch: int = 0, delivery_limit: int | None = 20, priorities: int = 0,
        unique_s: float | None = None, keyed: bool = False, **server_options: Any,
    ) -> None:
        if keyed and priorities:
            raise ValueError("queues have priorities or keys, not both")
        if not 0 <= priorities <= 255:
            raise ValueError(f"a queue has up to 255 priorities, not {priorities}")
        self.url = url
        self.queue = queue
        self.concurrency = concurrency
        self.prefetch = prefetch
        self.tasks: dict[str, AppTask[..., ..., Any]] = {}
        self._delivery_limit = delivery_limit
        self._priorities = priorities
        self.is_keyed = keyed
        self._unique_s = unique_s
        self._server_options = server_options
        self._hooks: dict[str, list[Any]] = {"before_task": [], "after_task": [], "failed_task": []}
        self._processes = {os.getpid(): _Process()}

    @overload
    def task(
        self, function: Callable[Called, Result], **options: Unpack[TaskOptions],
    ) -> AppTask[Called, Called, Result]: ...

    @overload
    def task(
        self, function: None = None, *, with_uuid: Literal[False] = False, **options: Unpack[TaskOptions],
    ) -> Callable[[Callable[Called, Result]], AppTask[Called, Called, Result]]: ...

    @overload
    def task(
        self, function: None = None, *, with_uuid: Literal[True], **options: Unpack[TaskOptions],
    ) -> Callable[
        [Callable[Concatenate[str, Sent], Result]], AppTask[Concatenate[str, Sent], Sent, Result],
    ]: ...

    def task(
        self, function=None, *, name=None, queue=None, timeout_s=0.0, retries=0, backoff=None, run_in=None,
        priority=None, unique=False, with_uuid=False, key=None, key_concurrency=1, rate=None, expires_s=None,
        every_s=None, cron=None, timezone=None,
    ):
        """Decorator: make a function a task. ``name``: the function's name by default.

        ``retries``: how often the task is run again after an error or a timeout. ``backoff``: the waits
        before each (a Backoff, or the first wait in s, which doubles). ``unique``: drop a task sent with
        equal arguments within ``unique_s``. ``with_uuid``: pass the task's uuid as the first argument.

        ``key``: the parameter whose value is the task's key. ``key_concurrency``: how many tasks with the
        same key run at once; above 1 in no order. ``rate``: how many begin in a second, minute or hour
        ("10/s", "100/m", "5/h"), over all workers; such a task has its own queue, by default ``<the app's
        queue>.<name>``. ``expires_s``: drop a task that has not begun so many seconds after it was sent, or
        after the scheduled time of a periodic task.

        ``every_s``, or ``cron`` and ``timezone`` (UTC): the broker sends the task at these times, once they
        are set by ``set_schedules`` or the start of a worker.
        """
        if function is None:
            return partial(
                self.task, name=name, queue=queue, timeout_s=timeout_s, retries=retries, backoff=backoff,
                run_in=run_in, priority=priority, unique=unique, with_uuid=with_uuid,
                key=key, key_concurrency=key_concurrency, rate=rate, expires_s=expires_s, every_s=every_s,
                cron=cron, timezone=timezone)
        name = name or function.__name__
        if not isinstance(name, str):
            raise ValueError(f"a task's name is a text, not {name!r}")
        if name in self.tasks:
            raise ValueError(f"there is a task {name!r} already, of {self.tasks[name].__module__}")
        if unique and self._unique_s is None:
            raise ValueError(f"task {name!r} is unique: Dispatcher(unique_s=...) says for how long")
        if isinstance(backoff, (int, float)):
            backoff = Backoff(backoff, max(backoff, 3600.0))
        if priority is not None and priority not in range(256):
            raise ValueError(f"task {name!r}: a priority is from 0 to 255, not {priority!r}")
        if key is not None and not self.is_keyed:
            raise ValueError(f"task {name!r} has a key, which needs Dispatcher(keyed=True)")
        if not isinstance(key_concurrency, int) or key_concurrency < 1:
            raise ValueError(f"task {name!r}: key_concurrency is a number from 1 on, not {key_concurrency!r}")
        queue = queue or (self.queue if rate is None else f"{self.queue}.{name}")
        task = AppTask(
            self, function, name, queue, priority, unique, run_in, key_concurrency,
            _schedule(name, every_s, cron, timezone), expires_s, key, rate, timeout_s=timeout_s,
            retries=retries, backoff=backoff, task_uuid_as_first_arg=with_uuid)
        self._check_queue(task)
        config = task.config()
        config.check_limits(name)
        check_kind(name, function, config.run_in)
        task.scheduled()
        self.tasks[name] = task
        return task

    def _check_queue(self, task):
        """Raise ValueError if a task with a rate shares its queue: the other tasks would have to wait."""
        sharing = [each for each in self.tasks.values() if each.queue == task.queue]
        if task.interval_s and (sharing or task.queue == self.queue) or any(
                each.interval_s for each in sharing):
            raise ValueError(
                f"task {task.name!r}: a task with a rate has its queue for itself, here {task.queue!r}")

    def before(self, hook: Before) -> Before:
        """Decorator: workers call ``hook(TaskContext)`` before each task. If it raises, the task fails."""
        self._hooks["before_task"].append(hook)
        return hook

    def after(self, hook: Before) -> Before:
        """Decorator: workers call ``hook(TaskContext)`` after each task that succeeded."""
        self._hooks["after_task"].append(hook)
        return hook

    def failed(self, hook: Failed) -> Failed:
        """Decorator: workers call ``hook(TaskContext, error)`` whenever a task fails or times out."""
        self._hooks["failed_task"].append(hook)
        return hook

    @property
    def queues(self) -> list[str]:
        return sorted({self.queue, *(task.queue for task in self.tasks.values())})

    @property
    def server(self) -> Server:
        """The Server of this process. It connects when it is first needed. A forked process makes its own."""
        process = self._process()
        with process.lock:
            if process.server is None or process.server.link.has_ended:
                queues = [InitQueue(each, [each], partial(self.arguments, each)) for each in self.queues]
                own = {"url": self.url, "init_queues": queues, "unique_s": self._unique_s}
                process.server = Server(ServerConfig(**{"remote": True, **self._server_options, **own}))
            return process.server

    def send(self, name: str, *args: Any, queue: str | None = None) -> str:
        """Send a task that only other programs define. The values decide the argument types. Returns the uuid
        after the broker's confirm. Raises BadTask if this app defines the task, NotDelivered.
        """
        if name in self.tasks:
            raise BadTask(f"task {name!r} is known here: use its delay(), which checks the arguments")
        return self.server.publish(Task(name, list(args), routing_key=queue or self.queue))

    def set_schedules(self, queues: list[str] | None = None) -> None:
        """Let the broker send the periodic tasks of these queues (None: all queues) at their times. Deletes
        earlier schedules of tasks that are not periodic any more. Raises NotDelivered, NotSupported.
        """
        for task in self.tasks.values():
            if task.queue not in (queues or self.queues):
                continue
            if task.is_periodic:
                self.server.publish(task.scheduled())
            elif self.server.delays.can_repeat:
                try:
                    self.server.publish(task.scheduled())
                except NotDelivered as error:  # its user may have no right to write to the delayed exchange
                    self.server.logger.warning("an earlier schedule may go on: %s", error)

    def drop_schedule(self, name: str, queue: str | None = None) -> None:
        """Delete the schedule of a removed task. ``queue``: by default the app's. Raises NotDelivered."""
        queue = queue or self.queue
        self.server.publish(Task(name, routing_key=queue, schedule={"name": schedule_name(queue, name)}))

    def workers(
        self, queues: list[str] | None = None, concurrency: int | None = None, run_in: str | None = None,
        name: str = "worker",
    ) -> list[Worker]:
        """Set the schedules of periodic tasks. Start and return one Worker per queue (None: all queues)."""
        self.set_schedules(queues)
        server, made = self.server, []
        limit = concurrency or self.concurrency
        for queue in queues or self.queues:
            config = WorkerConfig(
                queue, f"{name}.{queue}", [queue], limit, self._prefetch(queue, limit),
                arguments=self.arguments(queue, server.delays), interval_s=self._interval_s(queue),
            )
            worker = server.new_worker(
                config, {each.name: each.config(run_in) for each in self.tasks.values()})
            for kind, hooks in self._hooks.items():
                getattr(worker.hooks, kind).extend(hooks)
            made.append(worker)
        for worker in made:
            worker.start()
        return made

    def arguments(self, queue: str, delays: Any) -> dict[str, Any]:
        """Return the arguments for declaring a queue. ``delays``: a BrokerDelays or QueueDelays."""
        arguments: dict[str, Any] = {}
        if self._interval_s(queue):
            arguments["x-single-active-consumer"] = True  # one worker at a time keeps the pace for all
        if self._priorities:
            arguments["x-max-priority"] = self._priorities
        if self.is_keyed:
            if not delays.can_be_keyed:  # it would ignore the arguments
                raise NotSupported("keys need a broker with message groups, which this broker has not")
            arguments |= {"x-message-group": f"header:{KEY_HEADER}", "x-message-group-limit": 1}
        if self._delivery_limit is not None and delays.can_be_unique:
            arguments |= {
                "x-delivery-limit": self._delivery_limit,
                "x-dead-letter-exchange": "",
                "x-dead-letter-routing-key": f"{queue}.dead",
            }
        return arguments

    def revoke(self, *identifiers: str) -> None:
        """Let workers drop the tasks with these uuids, if they have not begun. Returns when the broker has
        the revocations on disk. Raises NotDelivered, DispatcherError, OSError, ClientError.
        """
        with self.connect() as connection:
            remote.revoke(connection, self.exchange, list(identifiers))

    def inspect(self, timeout_s: float = 2.0) -> dict[str, Any]:
        """Ask the workers which tasks they run. Returns the dict of ``remote.inspect`` after ``timeout_s``,
        or once all workers have answered. Raises DispatcherError, OSError, ClientError.
        """
        with self.connect() as connection:
            return remote.inspect(connection, self.exchange, self.queues, timeout_s)

    @property
    def exchange(self) -> str:
        return self._server_options.get("exchange", ServerConfig.exchange)

    @property
    def has_dead_letters(self) -> bool:
        """True with a ``delivery_limit``: gomq-py dead-letters tasks whose workers were lost too often."""
        return self._delivery_limit is not None

    def connect(self) -> Connection:
        """Open another connection to the app's broker. Raises OSError, ClientError."""
        return Connection(self.url, tls_context=self._server_options.get("tls_context"))

    def _interval_s(self, queue):
        return max((each.interval_s for each in self.tasks.values() if each.queue == queue), default=0.0)

    def _prefetch(self, queue, limit):
        """Return the prefetch limit of a worker that runs up to ``limit`` tasks of the queue at once.

        With a rate and a delivery limit: at most that limit or, if more, the number of tasks that begin in a
        minute. A worker that stops returns its waiting tasks, and each return counts towards the limit.
        """
        prefetch, interval_s = self.prefetch or limit, self._interval_s(queue)
        if not interval_s or self._delivery_limit is None:
            return prefetch
        return max(1, int(min(prefetch, max(self._delivery_limit, 60 / interval_s))))

    def close(self, timeout_s: float | None = None) -> bool:
        """Wait up to ``timeout_s`` for running tasks, then disconnect. Returns True if all have finished."""
        server = self._process().server
        return True if server is None else server.close(timeout_s)

    def _process(self):
        """Return the app's _Process for the running process, which may be a fork."""
        pid = os.getpid()
        process = self._processes.get(pid)
        if process is None:
            # setdefault() instead of a lock, because a lock may have been held when the process was forked.
            process = self._processes.setdefault(pid, _Process())
            for other in list(self._processes):
                if other != pid:
                    self._processes.pop(other, None)
        return process


def schedule_name(queue: str, task: str) -> str:
    return f"{queue}:{task}"


def _schedule(name, every_s, cron, zone):
    """Return the times of a periodic task as fields of x-schedule, {} if not periodic. Raises ValueError."""
    if every_s is not None and cron is not None:
        raise ValueError(f"task {name!r}: times are given by every_s or by cron, not by both")
    if zone is not None and cron is None:
        raise ValueError(f"task {name!r}: a timezone needs cron")
    if every_s is not None:
        is_number = isinstance(every_s, (int, float)) and not isinstance(every_s, bool)
        if not is_number or not 1 <= every_s <= LONGEST_EVERY_S:
            raise ValueError(
                f"task {name!r}: every_s is a number of seconds from 1 to {LONGEST_EVERY_S}, not {every_s!r}")
        return {"every": round(every_s * 1000)}
    fields = {"cron": cron, "timezone": zone}
    for field, value in fields.items():
        if value is not None and (not isinstance(value, str) or not value):
            raise ValueError(f"task {name!r}: {field} is a text, not {value!r}")
    return {field: value for field, value in fields.items() if value is not None}


class _Process:
    """An app's Server and its lock in one process. A forked process makes a new _Process."""

    # A fork copies neither the thread that serves the connection nor a thread that holds the lock.
    def __init__(self) -> None:
        self.server: Server | None = None
        self.lock = threading.Lock()
