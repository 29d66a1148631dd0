"""Greenlets: runs tasks in greenlets, and lets a greenlet wait for a confirm while others run.

Only this module of the task queue imports gevent. The greenlets of tasks run in a thread with its own gevent
event loop, so the rest of the program needs no patching. The tasks' functions must yield to this loop while
they wait: ``gomq-py-worker --greenlets`` patches the standard library for that.
"""

import sys
import threading
from collections import deque
from functools import partial

import gevent
import gevent.event
from gevent.pool import Pool


class Greenlets:
    """Runs tasks in at most ``limit`` greenlets at once. A task that takes too long is killed. The next task
    may start at once, even if the killed task catches GreenletExit and continues.
    """

    kind = "greenlets"

    def __init__(self, limit, name):
        self._pool = Pool(limit)
        self._inbox: deque = deque()
        self._waiting: deque = deque()
        self._closing = False
        self._watcher = None
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._serve, name=f"greenlets of {name}", daemon=True)
        self._thread.start()
        self._ready.wait()

    def begin(self, invocation):
        self._waiting.append(invocation)
        self._watcher.send()

    def take_back(self):
        waiting = []
        while self._waiting:
            try:
                waiting.append(self._waiting.popleft())
            except IndexError:
                break  # already begun by the hub's thread
        return waiting

    def abandon(self, invocation):
        """Kill the greenlet of an invocation (one run of a task) that takes too long."""
        self._inbox.append(invocation)
        self._watcher.send()

    def close(self):
        """Let the thread end after the last greenlet has ended. Returns at once."""
        self._closing = True
        self._watcher.send()

    # In the hub's thread.

    def _serve(self):
        hub = gevent.get_hub()
        woken = gevent.event.Event()
        self._watcher = hub.loop.async_()
        self._watcher.start(woken.set)
        self._ready.set()
        while not self._closing or self._pool:
            woken.wait()
            woken.clear()
            while self._inbox:
                invocation = self._inbox.popleft()
                if invocation.holder is not None and not invocation.holder.ready():
                    invocation.holder.kill(block=False)
                    self._pool.discard(invocation.holder)
            while self._waiting and self._pool.free_count():
                try:
                    invocation = self._waiting.popleft()
                except IndexError:
                    break  # taken back
                invocation.holder = self._pool.spawn(self._run, invocation)
                invocation.holder.link(lambda _: woken.set())
        self._watcher.stop()

    @staticmethod
    def _run(invocation):
        invocation.run(partial(invocation.config.function, *invocation.values))


def wait_for(future, timeout_s):
    """Wait up to ``timeout_s`` seconds until the future is done, while other greenlets of this thread run."""
    if future.done():
        return
    hub = gevent.get_hub()
    watcher = hub.loop.async_()
    done = gevent.event.Event()
    watcher.start(done.set)
    try:
        future.add_done_callback(lambda _: watcher.send())
        done.wait(timeout_s)
    finally:
        watcher.stop()


def is_in_greenlet():
    """Return whether the caller runs in a greenlet, so that other greenlets can run while it waits."""
    hub = gevent._hub_local.get_hub_if_exists() if "gevent._hub_local" in sys.modules else None
    return hub is not None and gevent.getcurrent() is not hub
