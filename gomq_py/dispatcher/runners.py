"""Runners run the functions of tasks: in threads, processes, an asyncio event loop or greenlets.

An invocation is one run of a task. The link's thread calls a runner's ``begin`` and ``abandon``, which never
wait. The runner calls ``invocation.finished(error)`` in the thread or greenlet of the function. A worker
abandons an invocation that takes too long: it settles the task, and ignores the function's later result.
"""

import asyncio
import contextlib
import inspect
import logging
import os
import queue
import threading
import time
from collections import deque
from collections.abc import Callable
from functools import partial

from gomq_py.dispatcher.arguments import name_of, text_of
from gomq_py.dispatcher.errors import DispatcherError, Dropped, Retry
from gomq_py.dispatcher.processes import Child, leave_fork
from gomq_py.dispatcher.tasks import TaskContext, check_has_run, set_current

_LOG = logging.getLogger("gomq_py.dispatcher")
# Pause before retrying a task for which no process could be started.
PROCESS_AGAIN_S = 1.0


class Hooks:
    """Lists of functions to call before and after each task. Callers append to the lists. An error in
    ``before_task`` fails the task. Errors in ``after_task`` and ``failed_task`` are only logged.
    """

    def __init__(self, logger: logging.Logger) -> None:
        self.before_task: list[Callable[[TaskContext], object]] = []
        self.after_task: list[Callable[[TaskContext], object]] = []
        self.failed_task: list[Callable[[TaskContext, BaseException], object]] = []
        self._log = logger
        # Raises Dropped if the task must not begin any more.
        self.check: Callable[[TaskContext], object] = lambda context: None

    def before(self, context: TaskContext) -> None:
        """Raise Dropped if the task must not begin any more. Otherwise call the ``before_task`` hooks."""
        self.check(context)
        for hook in self.before_task:
            hook(context)

    def ended(self, context: TaskContext, error: BaseException | None) -> None:
        """Call the ``after_task`` or, after an error, ``failed_task`` hooks; none after Retry or Dropped."""
        if isinstance(error, (Retry, Dropped)):
            return
        hooks, arguments = (self.after_task, (context,)) if error is None else (
            self.failed_task, (context, error))
        for hook in hooks:
            try:
                hook(*arguments)
            except BaseException:  # SystemExit too: the task must still be settled
                self._log.exception("a hook of task %r failed", context.name)


class Invocation:
    """One run of one task. ``values``: the arguments of its function."""

    __slots__ = (
        "config", "context", "values", "delivery", "began", "_unclaimed", "_finish", "_process", "hooks",
        "holder",
    )

    def __init__(self, config, context, values, delivery, finish, hooks):
        self.config = config
        self.context = context
        self.values = values
        self.delivery = delivery
        self.began = None  # monotonic time of the call, or None
        self._unclaimed = [True]
        self.holder = None  # the runner's handle to end it
        self._finish = finish
        self._process = os.getpid()
        self.hooks = hooks

    def claim(self):
        """Return True to the first caller only. It (the runner or the timeout check) settles the task."""
        try:
            return self._unclaimed.pop()
        except IndexError:
            return False

    def run(self, call):
        """Call the ``before_task`` hooks and ``call()``, then return ``finished(error)`` (None: no error)."""
        self.began = time.monotonic()
        set_current(self.context)
        error = None
        try:
            self.hooks.before(self.context)
            check_has_run(call())
        except Exception as fault:
            error = fault
        # SystemExit and the like are faults of the task and end nothing else
        except BaseException as fault:
            error = DispatcherError(f"{name_of(fault)}: {text_of(fault)}")
            error.__cause__ = fault
        finally:
            set_current(None)
        return self.finished(error)

    def finished(self, error):
        """Report to the worker that the function has returned (``error`` None) or raised ``error``. Returns
        True. If the worker has abandoned this run, reports nothing and returns False.
        """
        # In a process that the task has forked, this ends the process: only the parent settles the task.
        if os.getpid() != self._process:
            leave_fork(error)
        if not self.claim():
            return False
        self._finish(self, error)
        return True


class Threads:
    """Runs tasks in at most ``limit`` threads. A thread cannot be killed: when its task is abandoned, a new
    thread replaces it, and the old thread ends once the task ends.
    """

    kind = "threads"

    def __init__(self, limit, name):
        self._limit = limit
        self._name = name
        self._queue: queue.SimpleQueue = queue.SimpleQueue()
        self._started = 0
        self._lock = threading.Lock()

    def begin(self, invocation):
        """Run the invocation in the next free thread. Raises RuntimeError if there is no thread at all."""
        if self._started < self._limit:
            self._start_one(is_needed=not self._started)
        self._queue.put(invocation)

    def take_back(self):
        """Remove and return the invocations that no thread has begun."""
        waiting = []
        while True:
            try:
                waiting.append(self._queue.get_nowait())
            except queue.Empty:
                return waiting

    def abandon(self, invocation):
        """Start a thread to replace the thread whose invocation takes too long."""
        self._start_one()

    def close(self):
        """Let each thread end when its present task ends. Returns at once."""
        for _ in range(self._started):
            self._queue.put(None)

    def _count(self, change):
        with self._lock:
            self._started += change

    def _start_one(self, is_needed=False):
        """Start a thread. A failure raises RuntimeError if ``is_needed``, and is ignored otherwise."""
        self._count(1)
        try:
            threading.Thread(target=self._work, name=f"task of {self._name}", daemon=True).start()
        except RuntimeError:
            self._count(-1)
            if is_needed:
                raise

    def _work(self):
        while (invocation := self._queue.get()) is not None:
            if not invocation.run(partial(invocation.config.function, *invocation.values)):
                break  # this thread was replaced
        self._count(-1)


class Processes(Threads):
    """Runs tasks in at most ``limit`` processes, each controlled by a thread. The process of an abandoned
    task is killed, and a new process replaces it.
    """

    kind = "processes"

    def __init__(self, limit, name):
        super().__init__(limit, name)
        self._busy: set = set()  # running invocations

    def abandon(self, invocation):
        """Kill the process of an invocation that takes too long. The next task gets a new process."""
        if invocation.holder is not None:
            invocation.holder.kill()

    def close(self):
        """Kill the processes that run tasks, and let the others end. The worker has requeued these tasks."""
        super().close()
        for invocation in list(self._busy):
            if invocation.claim():
                self.abandon(invocation)

    def _work(self):
        child = None
        try:
            while (invocation := self._queue.get()) is not None:
                if child is None or child.has_ended:
                    try:
                        child = Child()
                    except OSError as error:  # not the task's fault: no memory, too many processes
                        child = None
                        again = Retry(f"there is no process for it: {error}", delay_s=PROCESS_AGAIN_S)
                        invocation.run(partial(_raise, again))
                        continue
                invocation.holder = child
                self._busy.add(invocation)
                settled = invocation.run(partial(child.run, invocation.config.function, invocation.values))
                self._busy.discard(invocation)
                if not settled:
                    # abandon() kills this process now or in a moment: it must run no other task.
                    child.kill()
                    child.close()
                    child = None
        finally:
            self._count(-1)
            if child is not None:
                child.close()


class EventLoop:
    """Runs coroutine functions, at most ``limit`` at once, in an asyncio event loop in its own thread.

    The coroutine of an abandoned task is cancelled. The next coroutine may start at once, even if the
    cancelled coroutine catches CancelledError and continues.
    """

    kind = "asyncio"

    def __init__(self, limit, name):
        self._limit = limit
        self._loop = asyncio.new_event_loop()
        self._closing = False
        self._waiting: deque = deque()
        self._room = limit
        self._thread = threading.Thread(target=self._serve, name=f"event loop of {name}", daemon=True)
        self._thread.start()

    def begin(self, invocation):
        self._waiting.append(invocation)
        self._loop.call_soon_threadsafe(self._fill)

    def take_back(self):
        waiting = []
        while self._waiting:
            try:
                waiting.append(self._waiting.popleft())
            except IndexError:
                break  # already begun by the loop's thread
        return waiting

    def abandon(self, invocation):
        """Cancel the coroutine of an invocation that takes too long."""
        with contextlib.suppress(RuntimeError):  # the loop has ended, and the task with it
            self._loop.call_soon_threadsafe(self._let_go, invocation.holder)

    def close(self):
        """Stop the event loop without waiting for running coroutines. A second call does nothing."""
        self._closing = True
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._loop.stop)

    def _serve(self):
        try:
            while not self._closing:
                try:
                    self._loop.run_forever()
                except BaseException:  # SystemExit too: other tasks run here
                    _LOG.exception("a coroutine that a task had started wanted to end the program")
        finally:
            self._loop.close()

    def _fill(self):
        while self._waiting and self._room:
            try:
                invocation = self._waiting.popleft()
            except IndexError:
                break  # taken back
            self._room -= 1
            invocation.holder = self._loop.create_task(self._run(invocation))
            invocation.holder.add_done_callback(self._ended)

    def _ended(self, _):
        self._room += 1
        self._fill()

    def _let_go(self, running):
        if not running.done():
            running.remove_done_callback(self._ended)
            running.cancel()
            self._ended(running)

    async def _run(self, invocation):
        invocation.began = time.monotonic()
        set_current(invocation.context)
        error: Exception | None = None
        try:
            invocation.hooks.before(invocation.context)
            result = invocation.config.function(*invocation.values)
            if inspect.isawaitable(result):
                await result
        except asyncio.CancelledError:
            error = DispatcherError("the task was cancelled")
        except Exception as fault:
            error = fault
        except BaseException as fault:
            if self._closing and isinstance(fault, GeneratorExit):
                raise  # the loop has ended, and drops it
            error = DispatcherError(f"{name_of(fault)}: {text_of(fault)}")
        invocation.finished(error)


def _raise(error):
    raise error


def make_runner(kind, limit, name):
    """Return a runner (``kind``: see KINDS) for up to ``limit`` tasks at once. ``name``: for its threads."""
    if kind == "greenlets":  # loads gevent only if needed
        from gomq_py.dispatcher.greenlets import Greenlets

        return Greenlets(limit, name)
    return _MADE_OF[kind](limit, name)


_MADE_OF: dict = {each.kind: each for each in (Threads, Processes, EventLoop)}
KINDS = (*_MADE_OF, "greenlets")
