"""Where tasks run: threads, processes, an event loop, greenlets. Each runner takes invocations and ends them.

``begin`` and ``abandon`` are called from the link's thread and never wait. A runner calls
``invocation.finished(error)`` from wherever the function ran; where the invocation was abandoned meanwhile,
it has been settled already, and what the function still does is nobody's.
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
from functools import partial

from gomq_py.dispatcher.arguments import name_of, text_of
from gomq_py.dispatcher.errors import DispatcherError, Retry
from gomq_py.dispatcher.processes import Child, leave_fork
from gomq_py.dispatcher.tasks import check_has_run, set_current

_LOG = logging.getLogger("gomq_py.dispatcher")
# Until a task for which no process could be started is tried again.
PROCESS_AGAIN_S = 1.0


class Invocation:
    """One run of one task. ``values`` are what the function is called with."""

    __slots__ = (
        "config",
        "context",
        "values",
        "delivery",
        "began",
        "_unclaimed",
        "_finish",
        "_process",
        "hooks",
        "holder",
    )

    def __init__(self, config, context, values, delivery, finish, hooks):
        self.config = config
        self.context = context
        self.values = values
        self.delivery = delivery
        self.began = None  # monotonic time, once the function is about to be called
        self._unclaimed = [True]
        self.holder = None  # what the runner needs to end it
        self._finish = finish
        self._process = os.getpid()
        self.hooks = hooks

    def claim(self):
        """True for the first who asks: whoever ran it, or whoever found that it takes too long, settles
        it.
        """
        try:
            return self._unclaimed.pop()
        except IndexError:
            return False

    def run(self, call):
        """Call ``call()`` and whoever is to hear of it, and finish; False if it was abandoned meanwhile.

        Raises nothing.
        """
        self.began = time.monotonic()
        set_current(self.context)
        error = None
        try:
            self.hooks.before(self.context)
            check_has_run(call())
        except Exception as fault:
            error = fault
        # SystemExit and its like in a task are the task's fault, and end nothing else
        except BaseException as fault:
            error = DispatcherError(f"{name_of(fault)}: {text_of(fault)}")
            error.__cause__ = fault
        finally:
            set_current(None)
        return self.finished(error)

    def finished(self, error):
        """The function has returned (None) or raised; False if the invocation was abandoned.

        In a process that the task has forked it does not return: the parent settles the task.
        """
        if os.getpid() != self._process:
            leave_fork(error)
        if not self.claim():
            return False
        self._finish(self, error)
        return True


class Threads:
    """``limit`` threads.

    A thread cannot be ended: one whose task was abandoned is let go, and another takes its place.
    """

    kind = "threads"

    def __init__(self, limit, name):
        self._limit = limit
        self._name = name
        self._queue: queue.SimpleQueue = queue.SimpleQueue()
        self._started = 0
        self._lock = threading.Lock()

    def begin(self, invocation):
        """Run it as soon as a thread is free. Raises RuntimeError where there is none, nor one to be had."""
        if self._started < self._limit:
            self._start_one(is_needed=not self._started)
        self._queue.put(invocation)

    def take_back(self):
        """The invocations that no thread has begun."""
        waiting = []
        while True:
            try:
                waiting.append(self._queue.get_nowait())
            except queue.Empty:
                return waiting

    def abandon(self, invocation):
        """It took too long."""
        self._start_one()

    def close(self):
        """Let the threads end once they are free."""
        for _ in range(self._started):
            self._queue.put(None)

    def _count(self, change):
        with self._lock:
            self._started += change

    def _start_one(self, is_needed=False):
        """Another thread.

        Where none is to be had those that are there do the work, unless it ``is_needed``.
        """
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
                break  # another has taken this one's place
        self._count(-1)


class Processes(Threads):
    """``limit`` processes, each with a thread that waits for it.

    One whose task was abandoned is killed and replaced.
    """

    kind = "processes"

    def __init__(self, limit, name):
        super().__init__(limit, name)
        self._busy: set = set()  # the invocations that run

    def abandon(self, invocation):
        """It took too long: its process is killed, and its thread goes on with a new one."""
        if invocation.holder is not None:
            invocation.holder.kill()

    def close(self):
        """End the processes; what still runs there has been given back, and is ended with them."""
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
                    except OSError as error:  # no memory, too many processes: no fault of the task's
                        child = None
                        again = Retry(f"there is no process for it: {error}", delay_s=PROCESS_AGAIN_S)
                        invocation.run(partial(_raise, again))
                        continue
                invocation.holder = child
                self._busy.add(invocation)
                settled = invocation.run(partial(child.run, invocation.config.function, invocation.values))
                self._busy.discard(invocation)
                if not settled:
                    # Who abandoned it kills its process now or in a moment: that must meet no other task.
                    child.kill()
                    child.close()
                    child = None
        finally:
            self._count(-1)
            if child is not None:
                child.close()


class EventLoop:
    """Coroutine functions on an asyncio loop in a thread of its own.

    An abandoned one is cancelled, and its place is free at once: it may catch that and go on.
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
        """Run it as soon as there is room."""
        self._waiting.append(invocation)
        self._loop.call_soon_threadsafe(self._fill)

    def take_back(self):
        """The invocations that have not begun."""
        waiting = []
        while self._waiting:
            try:
                waiting.append(self._waiting.popleft())
            except IndexError:
                break  # the loop's thread was faster
        return waiting

    def abandon(self, invocation):
        """It took too long."""
        with contextlib.suppress(RuntimeError):  # the loop has ended, and the task with it
            self._loop.call_soon_threadsafe(self._let_go, invocation.holder)

    def close(self):
        """End the loop; what still runs is dropped. A second call does nothing."""
        self._closing = True
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._loop.stop)

    def _serve(self):
        try:
            while not self._closing:
                try:
                    self._loop.run_forever()
                except BaseException:  # SystemExit of what a task has started: others run here, too
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
    """A runner of one of KINDS."""
    if kind == "greenlets":  # gevent is loaded only where it is asked for
        from gomq_py.dispatcher.greenlets import Greenlets

        return Greenlets(limit, name)
    return _MADE_OF[kind](limit, name)


_MADE_OF: dict = {each.kind: each for each in (Threads, Processes, EventLoop)}
KINDS = (*_MADE_OF, "greenlets")
