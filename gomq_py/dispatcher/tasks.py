"""Defines a task as it is sent, as a worker runs it, and as a message:

    body        {"uuid": "...", "name": "...", "args": [{"type": "string", "value": "..."}, ...]}
    properties  content_type application/json, delivery_mode 2, headers as the sender gave them

The format is that of gofort/dispatcher. We add headers whose names begin with ``x-task-``; a Go worker
ignores these headers.
"""

import contextvars
import inspect
import json
import math
import time
import types
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from gomq_py.client.backoff import Backoff
from gomq_py.content.properties import Properties
from gomq_py.dispatcher.arguments import brief, convert, shown, type_of
from gomq_py.dispatcher.errors import BadArgument, BadTask, DispatcherError, checked_seconds

CONTENT_TYPE = "application/json"
PERSISTENT = 2
#: Which attempt this is, from 1; absent on the first.
ATTEMPT_HEADER = "x-task-attempt"
#: How often a worker that does not know the task has put it off.
UNKNOWN_HEADER = "x-task-unknown"
#: Milliseconds since 1970 before which the task must not run, if its delay is made of several waits.
DUE_HEADER = "x-task-due"
#: Milliseconds since 1970 after which the task is dropped if it has not begun.
EXPIRES_HEADER = "x-task-expires"
#: The time that a message of a schedule is for, in milliseconds since 1970; the broker writes it.
_SCHEDULE_TIME_HEADER = "x-schedule-time"
#: The key of a task, of which one at a time runs.
KEY_HEADER = "x-task-key"
#: Why the task is among the dead letters, and the error's name.
REASON_HEADER, ERROR_HEADER = "x-task-reason", "x-task-error"
#: The queue and worker that gave the task up.
QUEUE_HEADER, WORKER_HEADER = "x-task-queue", "x-task-worker"
# Ten years, the longest expiration that brokers take; the header takes any.
LONGEST_EXPIRATION_S = 10 * 365 * 24 * 3600
# Greatest attempt count accepted: anybody may write the header, which holds 64 bits.
_MOST_COUNTED = 2**31
_encode = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode
_current: "contextvars.ContextVar[TaskContext | None]" = contextvars.ContextVar(
    "gomq_py.dispatcher.task", default=None)


@dataclass(slots=True)
class Argument:
    """An argument of a task: a value and its type's name. If the name is "", the value decides the type."""

    value: Any
    type: str = ""

    def __post_init__(self):
        self.type = self.type or type_of(self.value)


@dataclass(slots=True)
class Task:
    """A task to send. ``args``: Arguments or plain values. ``routing_key``: if empty, the Server's default.

    An empty ``uuid`` is replaced by a new one. ``delay_s``: seconds before the task runs. ``priority`` needs
    a queue with priorities. ``unique``: the broker drops the task if a recent one had the same text
    ``unique``. ``expires_s``: the worker drops the task if it has not begun after so many seconds.
    ``broker_drops``: the broker, too, drops the expired task or, if its queue has a dead-letter exchange,
    dead-letters it.

    ``schedule``: the table of the header x-schedule, by which the broker sends the task repeatedly. A table
    with only a name deletes the schedule of this name.
    """

    name: str
    args: list[Any] = field(default_factory=list)
    uuid: str = ""
    routing_key: str = ""
    headers: dict[str, Any] = field(default_factory=dict)
    priority: int | None = None
    delay_s: float = 0.0
    unique: str = ""
    schedule: dict | None = None
    expires_s: float | None = None
    broker_drops: bool = True

    def encode(self) -> bytes:
        """Return the message's body. Sets ``uuid`` if it is empty. Raises BadTask, BadArgument."""
        if not self.name:
            raise BadTask("Task name was not passed")
        if self.schedule is not None and len(self.schedule) == 1:
            return b""
        self._check_kinds()
        args = []
        for number, each in enumerate(self.args, start=1):
            argument = each if isinstance(each, Argument) else Argument(each)
            try:
                args.append({"type": argument.type, "value": convert(argument.type, argument.value)})
            except BadArgument as error:
                raise BadArgument(f"task {brief(self.name)!r}: argument {number}: {error}") from None
        self.uuid = self.uuid or str(uuid.uuid4())
        try:
            return _encode({"uuid": self.uuid, "name": self.name, "args": args}).encode()
        except (TypeError, ValueError, RecursionError) as error:
            raise BadTask(f"task {self.name!r}: an argument has no form in JSON: {error}") from None

    def _check_kinds(self):
        for what, value, kind in (
            ("name", self.name, str), ("uuid", self.uuid, str), ("routing_key", self.routing_key, str),
            ("unique", self.unique, str), ("headers", self.headers, dict), ("args", self.args, (list, tuple)),
        ):
            if not isinstance(value, kind):
                raise BadTask(
                    f"task {shown(self.name)}: {what} is {shown(value)}, of type {type(value).__name__}")
        for name in ("CC", "BCC"):
            # The broker would close the channel over other values and fail the publishes of other threads.
            value = self.headers.get(name, [])
            if not isinstance(value, list) or not all(isinstance(each, str) for each in value):
                text = f"header {name} is {shown(value)}, and no list of texts"
                raise BadTask(f"task {shown(self.name)}: {text}")
        self.delay_s = checked_seconds("delay_s", self.delay_s)
        if self.expires_s is not None:
            self.expires_s = checked_seconds("expires_s", self.expires_s)
        if self.priority is not None and self.priority not in range(256):
            raise BadTask(f"task {shown(self.name)}: a priority is from 0 to 255, not {shown(self.priority)}")

    def properties(self, more_headers: dict[str, Any] | None = None) -> Properties:
        headers, expiration = {**self.headers, **(more_headers or {})}, None
        if self.expires_s is not None:
            headers[EXPIRES_HEADER] = round((time.time() + self.expires_s) * 1000)
            # A delay may be a wait in a queue, which this would cut short.
            if self.broker_drops and self.expires_s <= LONGEST_EXPIRATION_S and not self.delay_s:
                expiration = str(round(self.expires_s * 1000))
        return Properties(
            content_type=CONTENT_TYPE, delivery_mode=PERSISTENT, priority=self.priority, headers=headers,
            expiration=expiration,
        )


@dataclass(slots=True)
class Received:
    """A received task. ``args``: (type name, value) pairs, not checked yet."""

    uuid: str
    name: str
    args: list[Any]


def decode(body: bytes) -> Received:
    """Decode a message's body into a Received. Raises BadTask if the body is not a task."""
    if not body:
        raise BadTask("the message is empty: a task is a JSON object")
    try:
        task = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise BadTask(f"the message is no JSON: {error}") from None
    if not isinstance(task, dict):
        raise BadTask(f"the message holds {shown(task)}: a task is a JSON object")
    identifier, name, args = task.get("uuid", ""), task.get("name"), task.get("args")
    if not isinstance(name, str) or not name:
        raise BadTask(f"the task has no name: {shown(task)}")
    args = [] if args is None else args  # Go writes null for no arguments
    identifier = "" if identifier is None else identifier
    if not isinstance(args, list) or not all(isinstance(each, dict) for each in args):
        raise BadTask(f"task {shown(name)}: args is {shown(args)}, and not a list of types and values")
    return Received(
        identifier if isinstance(identifier, str) else shown(identifier), name,
        [(each.get("type"), each.get("value")) for each in args],
    )


def counted(headers: dict[str, Any], name: str, default: int) -> int:
    """Return the header's count, at most _MOST_COUNTED; ``default`` if the header is missing or invalid."""
    value = headers.get(name, default)
    counts = isinstance(value, int) and not isinstance(value, bool) and value >= 0
    return min(value, _MOST_COUNTED) if counts else default


def has_expired(headers: dict[str, Any], expires_s: float | None = None) -> bool:
    """Return whether a task with these headers has expired, so that it must not begin any more.
    ``expires_s``: for a periodic task, the seconds after its scheduled time.
    """
    expires_ms = headers.get(EXPIRES_HEADER)
    if expires_ms is None and expires_s is not None:
        at_ms = headers.get(_SCHEDULE_TIME_HEADER)
        expires_ms = at_ms + expires_s * 1000 if _is_number(at_ms) else None
    return _is_number(expires_ms) and time.time() * 1000 >= expires_ms


def _is_number(value):
    return isinstance(value, (int, float)) and not isinstance(value, bool)


@dataclass(slots=True)
class TaskConfig:
    """Says how a worker runs the tasks of one name. It calls ``function(*args)``.

        task_uuid_as_first_arg     pass the uuid as first argument
        timeout_s                  time limit, 0: none
        run_in                     threads, greenlets, processes or asyncio
        retries, backoff           how often a task is run again after an error or a timeout, and the waits
                                   before
        dead_letter                after the last attempt dead-letter the message with the reason, in place
                                   of acknowledging it
        expires_s                  for how many seconds after its time a periodic task may begin (None: no
                                   limit)
        check(values, types)       raises BadArgument to refuse arguments
    """

    function: Callable[..., Any]
    timeout_s: float = 0.0
    task_uuid_as_first_arg: bool = False
    run_in: str = "threads"
    retries: int = 0
    backoff: Backoff | None = None
    dead_letter: bool = False
    expires_s: float | None = None
    check: Callable[[list[Any], list[str]], object] | None = None

    def check_limits(self, name: str) -> None:
        """Raise ValueError if ``timeout_s``, ``retries`` or ``expires_s`` of the task ``name`` is invalid."""
        timeout_s, retries = self.timeout_s, self.retries
        if (
            isinstance(timeout_s, bool) or not isinstance(timeout_s, (int, float))
            or not 0 <= timeout_s < math.inf
        ):
            raise ValueError(
                f"task {name!r}: timeout_s is {timeout_s!r}, and not a number of seconds (0: none)")
        if isinstance(retries, bool) or not isinstance(retries, int) or retries < 0:
            raise ValueError(f"task {name!r}: retries is {retries!r}, and not a whole number from 0 on")
        if self.expires_s is not None:
            checked_seconds(f"task {name!r}: expires_s", self.expires_s)


@dataclass(slots=True)
class TaskContext:
    """Describes a running task, for hooks and for the task's own function (``current_task()``)."""

    uuid: str
    name: str
    args: list[Any]
    headers: dict[str, Any]
    attempt: int
    queue: str
    worker: str
    redelivered: bool


def check_kind(name: str, function: Callable[..., Any], run_in: str) -> None:
    """Raise ValueError for a generator function or, unless ``run_in`` is "asyncio", a coroutine function."""
    # A generator, or a coroutine function if ``run_in`` is not asyncio.
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise ValueError(f"task {name!r} is a generator: a call of it runs nothing")
    if inspect.iscoroutinefunction(function) and run_in != "asyncio":
        raise ValueError(f"task {name!r} is a coroutine function: it runs in asyncio, and not in {run_in}")


def check_has_run(result: object) -> None:
    """Raise DispatcherError if a task's result is a coroutine: the function's body has not run then."""
    if type(result) is types.CoroutineType:
        result.close()
        raise DispatcherError("the function returned a coroutine, which runs in asyncio only (run_in)")


def current_task() -> TaskContext | None:
    """Return the TaskContext of the running task; None outside of tasks and with ``run_in="processes"``."""
    return _current.get()


def set_current(context: TaskContext | None) -> None:
    """Set the TaskContext that ``current_task()`` returns. Only runners call this."""
    _current.set(context)
