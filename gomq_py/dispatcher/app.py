"""Makes functions into tasks: a decorator defines a task, ``delay()`` sends it, ``gomq-py-worker module:app``
runs it. Uses Server and Worker.

    app = Dispatcher("amqp://localhost")

    @app.task(retries=3, timeout_s=30)
    def resize(path: str, width: int): ...

    resize.delay("cat.png", 640)

Nothing connects before the first task is sent or the worker starts.
"""

import inspect
import os
import threading
import time
from datetime import datetime, timezone
from functools import partial, update_wrapper

from gomq_py.client.backoff import Backoff
from gomq_py.client.url import DEFAULT_URL
from gomq_py.dispatcher.errors import BadTask
from gomq_py.dispatcher.server import InitQueue, Server, ServerConfig
from gomq_py.dispatcher.signatures import Signature
from gomq_py.dispatcher.tasks import Task, TaskConfig, check_kind
from gomq_py.dispatcher.worker import DEFAULT_LIMIT, WorkerConfig


class AppTask:
    """A decorated function. A call runs the function here; ``delay`` and ``send`` let a worker run it."""

    def __init__(self, app, function, name, queue, priority, unique, run_in, **options):
        """``options``: further fields of the task's TaskConfig."""
        self.app = app
        self.function = function
        self.name = name
        self.queue = queue
        self.signature = Signature(name, function, int(options["task_uuid_as_first_arg"]))
        self._priority = priority
        self._unique = unique
        self._run_in = run_in
        self._options = options
        update_wrapper(self, function, ("__module__", "__name__", "__doc__"), ())

    def __call__(self, *args, **kwargs):
        return self.function(*args, **kwargs)

    def __repr__(self):
        return f"<task {self.name!r} on queue {self.queue!r}>"

    def delay(self, *args, **kwargs):
        """Send the task with these arguments and wait for the broker's confirm; returns the task's uuid.

        Raises BadArgument, NotDelivered.
        """
        return self.send(args, kwargs)

    def send(self, args=(), kwargs=None, *, delay_s=0.0, eta=None, priority=None, unique=None, headers=None):
        """Like ``delay``, with options: the task runs after ``delay_s`` seconds or at ``eta`` (datetime or
        Unix seconds). A higher ``priority`` runs first. The broker drops a task with the same text ``unique``
        as a recent task.
        """
        return self.app.server.publish(self.task(args, kwargs, delay_s, eta, priority, unique, headers))

    def submit(self, *args, **kwargs):
        """Send the task without waiting; returns a concurrent.futures.Future of the task's uuid."""
        return self.app.server.submit(self.task(args, kwargs))

    def task(self, args=(), kwargs=None, delay_s=0.0, eta=None, priority=None, unique=None, headers=None):
        """Make the Task that ``send`` with these options sends. Raises BadArgument."""
        if eta is not None:
            try:
                at = eta.astimezone(timezone.utc).timestamp() if isinstance(eta, datetime) else float(eta)
            except (ValueError, OverflowError, TypeError) as error:
                raise BadTask(f"task {self.name!r}: eta {eta!r} is no time: {error}") from None
            delay_s = at - time.time()
        arguments = self.signature.arguments(args, kwargs or {})
        if unique is None and self._unique:
            unique = f"{self.name}:{[each.value for each in arguments]!r}"
        return Task(
            self.name, arguments, routing_key=self.queue, headers=headers or {}, delay_s=delay_s,
            unique=unique or "", priority=self._priority if priority is None else priority,
        )

    def call(self, *values):
        return self.signature.call(self.function, values)

    def config(self, run_in=None):
        """Make the TaskConfig; ``run_in``: where the function runs if its decorator does not say."""
        kind = self._run_in or (
            "asyncio" if inspect.iscoroutinefunction(self.function) else run_in or "threads"
        )
        return TaskConfig(
            self.call, run_in=kind, dead_letter=True, check=self.signature.check, **self._options)


class Dispatcher:
    """An app: knows tasks, their queues and their broker. ``queue``: for tasks without a queue of their own.

    ``delivery_limit``: how often a lost worker's task is delivered again before the broker dead-letters it;
    gomq-py only. ``priorities``: the highest priority of the queues (0: queues without priorities).
    ``unique_s``: for how many seconds after a unique task the broker drops equal tasks. For a queue that
    workers in Go declare, too, pass ``delivery_limit=None, priorities=0``. Further keywords are those of
    ServerConfig.
    """

    def __init__(
        self, url=DEFAULT_URL, *, queue="tasks", concurrency=DEFAULT_LIMIT, prefetch=0, delivery_limit=20,
        priorities=0, unique_s=None, **server_options,
    ):
        if not 0 <= priorities <= 255:
            raise ValueError(f"a queue has up to 255 priorities, not {priorities}")
        self.url = url
        self.queue = queue
        self.concurrency = concurrency
        self.prefetch = prefetch
        self.tasks: dict = {}
        self._delivery_limit = delivery_limit
        self._priorities = priorities
        self._unique_s = unique_s
        self._server_options = server_options
        self._hooks: dict = {"before_task": [], "after_task": [], "failed_task": []}
        self._processes = {os.getpid(): _Process()}

    def task(
        self, function=None, *, name=None, queue=None, timeout_s=0.0, retries=0, backoff=None, run_in=None,
        priority=None, unique=False, with_uuid=False,
    ):
        """Decorator: make a function a task. ``name``: the function's name by default.

        ``retries``: how often the task is repeated after an error; ``backoff`` sets the waits (a Backoff, or
        seconds that double). ``unique``: drop a task sent with equal arguments within ``unique_s``.
        ``with_uuid``: pass the task's uuid as the first argument.
        """
        if function is None:
            return partial(
                self.task, name=name, queue=queue, timeout_s=timeout_s, retries=retries, backoff=backoff,
                run_in=run_in, priority=priority, unique=unique, with_uuid=with_uuid)
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
        task = AppTask(
            self, function, name, queue or self.queue, priority, unique, run_in, timeout_s=timeout_s,
            retries=retries, backoff=backoff, task_uuid_as_first_arg=with_uuid)
        config = task.config()
        config.check_limits(name)
        check_kind(name, function, config.run_in)
        self.tasks[name] = task
        return task

    def before(self, hook):
        """Decorator: workers call ``hook(context)`` before each task. If the hook raises, the task fails."""
        self._hooks["before_task"].append(hook)
        return hook

    def after(self, hook):
        """Decorator: workers call ``hook(context)`` after each task that returned."""
        self._hooks["after_task"].append(hook)
        return hook

    def failed(self, hook):
        """Decorator: workers call ``hook(context, error)`` each time that a task fails or times out."""
        self._hooks["failed_task"].append(hook)
        return hook

    @property
    def queues(self):
        """The names of all queues from which tasks are taken, sorted."""
        return sorted({self.queue, *(task.queue for task in self.tasks.values())})

    @property
    def server(self):
        """The Server of this process, which connects at first use. A forked process makes its own."""
        process = self._process()
        with process.lock:
            if process.server is None or process.server.link.has_ended:
                queues = [InitQueue(each, [each], partial(self.arguments, each)) for each in self.queues]
                own = {"url": self.url, "init_queues": queues, "unique_s": self._unique_s}
                process.server = Server(ServerConfig(**{**self._server_options, **own}))
            return process.server

    def send(self, name, *args, queue=None):
        """Send a task whose function this app does not know. Argument types follow from the values."""
        if name in self.tasks:
            raise BadTask(f"task {name!r} is known here: use its delay(), which checks the arguments")
        return self.server.publish(Task(name, list(args), routing_key=queue or self.queue))

    def workers(self, queues=None, concurrency=None, run_in=None, name="worker"):
        """Start a Worker for each of the queues (by default all queues); returns the Workers."""
        server, made = self.server, []
        for queue in queues or self.queues:
            config = WorkerConfig(
                queue, f"{name}.{queue}", [queue], concurrency or self.concurrency, self.prefetch,
                arguments=self.arguments(queue, server.delays),
            )
            worker = server.new_worker(
                config, {each.name: each.config(run_in) for each in self.tasks.values()})
            for kind, hooks in self._hooks.items():
                getattr(worker.hooks, kind).extend(hooks)
            made.append(worker)
        for worker in made:
            worker.start()
        return made

    def arguments(self, queue, delays):
        """Arguments for declaring a queue; ``delays``: BrokerDelays or QueueDelays, by the kind of broker."""
        arguments = {}
        if self._priorities:
            arguments["x-max-priority"] = self._priorities
        if self._delivery_limit is not None and delays.can_be_unique:
            arguments |= {
                "x-delivery-limit": self._delivery_limit,
                "x-dead-letter-exchange": "",
                "x-dead-letter-routing-key": f"{queue}.dead",
            }
        return arguments

    def close(self, timeout_s=None):
        """Wait for running tasks (at most ``timeout_s``) and disconnect; True if all tasks finished."""
        server = self._process().server
        return True if server is None else server.close(timeout_s)

    def _process(self):
        """The _Process of this process. A forked process makes one, which all its threads share."""
        pid = os.getpid()
        process = self._processes.get(pid)
        if process is None:
            # setdefault() instead of a lock, because a lock may have been held when the process was forked.
            process = self._processes.setdefault(pid, _Process())
            for other in list(self._processes):
                if other != pid:
                    self._processes.pop(other, None)
        return process


class _Process:
    """An app's state in one process. A forked process needs a new state: fork does not copy the thread that
    serves the connection, nor a thread that holds the lock.
    """

    def __init__(self):
        self.server = None
        self.lock = threading.Lock()
