"""Link: an AMQP connection with its own thread, which reconnects and runs functions posted by other threads.

A Connection serves one thread at a time and does nothing in the background. A program that publishes from
many threads, or consumes while it works, needs a thread for the connection and its heartbeats. In a program
patched by gevent the thread is a greenlet. Posted functions must not wait, except for answers of the broker.

Only the link's thread changes the state of a link and of its users (publisher, workers), so this state needs
no locks. There is one exception: while the link's thread only waits for input, another thread that waits for
one answer may serve the connection in its place (``Link.serve``, gomq_py.client.turn).
"""

import contextlib
import heapq
import itertools
import logging
import os
import select
import socket
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, Self

from gomq_py.client.backoff import Attempts, Backoff
from gomq_py.client.connection import Connection
from gomq_py.client.errors import (
    ChannelClosed, ClientError, ConnectionClosed, Disconnected, is_distrust,
)
from gomq_py.client.turn import make_turn

_LOG = logging.getLogger("gomq_py.client")
# Final at the first attempt: waiting mends no wrong password or missing virtual host.
_FINAL_CODES = {403, 530}
_LONGEST_WAIT_S = 3600.0
_OF_THE_PARENT = "the connection is that of the process which forked this one"
# Links of this process: a forked process has neither their threads nor a share in their connections.
_LINKS: weakref.WeakSet = weakref.WeakSet()


class Link:
    """An AMQP connection that a thread keeps open, and opens again after a loss. ``start`` connects.
    Arguments:

        on_up(connection)            called after each connect, to declare and consume
        on_down(error)               called after each loss of the connection
        on_end(error)                called once at the end, with the last error or, after ``close``, None
        on_channel_closed(error)     called when the broker has closed a channel; returns True if it has
                                     opened a new channel, False to reconnect
        backoff                      the Backoff between attempts; it begins again with the first wait after
                                     ``worked()``, and after a connection that lasted
        final                        classes of errors of ``on_up`` after which no further attempt is made
        options                      passed to Connection
    """

    def __init__(
        self, url: str, *, on_up: Callable[[Connection], object],
        on_down: Callable[[Exception], object] | None = None,
        on_end: Callable[[BaseException | None], object] | None = None,
        on_channel_closed: Callable[[ChannelClosed], bool] | None = None, backoff: Backoff | None = None,
        final: tuple[type[BaseException], ...] = (), logger: logging.Logger = _LOG, **options: Any,
    ) -> None:
        self.url = url
        self._attempts = Attempts(backoff or Backoff())
        self.connection: Connection | None = None  # for the link's thread
        self.error: BaseException | None = None  # error of the last attempt
        self.losses = 0  # connections lost
        self._on_up = on_up
        self._on_down = on_down or (lambda _: None)
        self._on_end = on_end or (lambda _: None)
        self._on_channel_closed = on_channel_closed or (lambda _: False)
        self._final = final
        self._log = logger
        self._options = options
        self._inbox: deque[tuple[Callable[..., object], tuple[Any, ...]]] = deque()
        self._timers: list[Any] = []
        self._order = itertools.count()
        self._signalled = False
        self._closing = False
        self.has_ended = False  # it was closed or has given up
        self._is_parents = False  # this process was forked, the link is its parent's
        self._settled = threading.Event()  # set when the link is up for the first time, or ends
        self._waker, self._woken = socket.socketpair()
        self._waker.setblocking(False)
        self._woken.setblocking(False)
        self._thread = threading.Thread(target=self._run, name="gomq-py link", daemon=True)
        self._turn: Any = None  # None without a connection
        self._caller = 0  # the thread of the caller that has the turn
        # error of that thread, for the link's thread to handle
        self._callers_fault: BaseException | None = None
        _LINKS.add(self)

    @property
    def is_up(self) -> bool:
        """True while the link is connected. It notices a loss of the connection a little later."""
        return self.connection is not None

    def start(self) -> Self:
        """Start the thread; return self when it has connected. Raises the last error if all attempts fail."""
        self._thread.start()
        self._settled.wait()
        if self.has_ended:
            raise self.error or Disconnected("the link was closed")
        return self

    def close(self, timeout_s: float = 10.0) -> None:
        """Run the functions posted so far, close the connection and end the thread. Cuts the connection after
        ``timeout_s``. In the link's thread, returns at once.
        """
        self._closing = True
        if not self._thread.is_alive() or self.is_own_thread():
            return
        self._wake()
        self._thread.join(timeout_s)
        if self._thread.is_alive():
            self.abort()
            self._thread.join(timeout_s)

    def abort(self) -> None:
        """Cut the connection without a close handshake; end the thread. Unsettled deliveries are requeued."""
        self._closing = True
        connection = self.connection
        if connection is not None:
            with contextlib.suppress(OSError):  # already cut
                connection.socket.shutdown(socket.SHUT_RDWR)  # wakes a thread that waits for room to write
        self._wake()

    def is_own_thread(self) -> bool:
        """Return True if this thread is the link's or is in ``serve``: then it must not wait for the link."""
        return threading.current_thread() is self._thread or self._caller == threading.get_ident()

    def post(self, function: Callable[..., object], *args: Any) -> None:
        """Let the link's thread call ``function(*args)`` soon, and return at once. Any thread may call this.
        Raises Disconnected if the link has ended.
        """
        self._inbox.append((function, args))
        if self.has_ended:
            raise Disconnected(_OF_THE_PARENT if self._is_parents else "the link has ended")
        self._wake()

    def serve(
        self, future: "Future[Any]", timeout_s: float, function: Callable[..., object], *args: Any,
    ) -> bool:
        """Call ``function(*args)`` in the calling thread, and read and write the connection there until
        ``future`` is done, or for ``timeout_s``. Returns False, and does not call the function, if the link's
        thread is busy.
        """
        # May return True before the future is done; the link's thread then goes on. The function must write
        # little (32 KiB) and must not wait. Greenlets must not call this: it would block the other greenlets
        # of their thread.
        turn = self._turn
        if turn is None or self._inbox or not turn.take():
            return False
        self._caller = threading.get_ident()
        connection, rests = self.connection, True
        try:
            if self._inbox or self._closing or self._callers_fault or not connection.has_sent_all():
                return False
            rests = False
            connection.cork()
            function(*args)
            deadline = time.monotonic() + timeout_s
            rests = connection.uncork_ready() and (
                # a message that cannot be sent has its answer already, and the broker sends none
                future.done() or self._serve_as_caller(turn, connection, future, deadline)
            )
        except (ClientError, OSError) as fault:
            self._callers_fault = fault
        except BaseException:
            if not turn.caller_waits:  # Ctrl-C between two steps: a write may be half done
                self._callers_fault = ConnectionClosed(0, "who served the connection was interrupted")
            raise
        finally:
            self._caller = 0
            turn.give_back()
            if not rests:
                self._wake()
        return True

    def call(self, function: Callable[..., Any], *args: Any, timeout_s: float | None = None) -> Any:
        """Let the link's thread call ``function(*args)``, and wait for it. Returns its result or raises its
        error. Raises TimeoutError after ``timeout_s`` (None: no limit), and Disconnected if the link has
        ended.
        """
        if self.is_own_thread() and not self.has_ended:
            return function(*args)
        future: Future[Any] = Future()
        self.post(_answer, future, function, args)
        return future.result(timeout_s)

    def call_later(self, seconds: float, function: Callable[..., object], *args: Any) -> None:
        """Let the link's thread call ``function(*args)`` after ``seconds``. Only that thread calls this."""
        heapq.heappush(self._timers, (time.monotonic() + seconds, next(self._order), function, args))
        if self._caller:
            self._wake()  # the link's thread may wait longer

    def worked(self) -> None:
        """Reset the count of failed attempts: the connection was useful. Only for the link's thread."""
        self._attempts.worked()

    # The rest is private, and runs in the link's thread.

    def _wake(self):
        if not self._signalled:
            self._signalled = True
            with contextlib.suppress(OSError):  # the pipe is full of wakes, or the thread has ended
                self._waker.send(b"w")

    def _run(self):
        error = None
        try:
            while not self._closing:
                try:
                    self._connect_and_serve()
                except (ClientError, OSError) as fault:
                    self._note_failure(fault)
                    if (error := self._wait_for_next()) is not None:
                        break
        except self._final as fault:
            self._log.error("gave up on %s: %s", self._place(), fault)
            error = fault
        except BaseException as fault:  # a fault of posted code: logged, then all waiting callers are told
            self._log.exception("the link to %s ends", self._place())
            error = fault
        finally:
            self._finish(error)

    def _connect_and_serve(self):
        connection = Connection(self.url, **self._options)
        try:
            self._on_up(connection)
            self.connection = connection
            self._attempts.succeeded()
            self._settled.set()
            self._serve(connection)
            connection.close()
        finally:
            connection.abort()

    def _serve(self, connection):
        turn = self._turn = make_turn(connection.fileno(), self._woken.fileno())
        self._callers_fault = None
        busy = True  # deliveries may have arrived with the answers for on_up()
        try:
            while not self._closing or self._inbox:
                woken = turn.wait(0 if busy or self._inbox else self._rest_s(connection.due_in()))
                connection.cork()
                try:
                    fault, self._callers_fault = self._callers_fault, None
                    if fault is not None:
                        raise fault
                    self._do_posted(woken)
                    busy = connection.take_ready()
                except ChannelClosed as error:
                    busy = True
                    if not self._on_channel_closed(error):
                        raise
                connection.uncork()
        finally:
            self._turn = None
            turn.close()

    def _serve_as_caller(self, turn, connection, future, deadline):
        """Serve the connection in the calling thread. Returns True if the future is done and all input is
        read, False if the link's thread must continue.
        """
        while not self._inbox and not self._closing:
            left_s, due_s = deadline - time.monotonic(), connection.due_in()
            came, wanted = turn.wait_as_caller(self._rest_s(left_s if due_s is None else min(left_s, due_s)))
            if wanted or not came:
                break  # a timer, a heartbeat or the caller's deadline is due
            connection.cork()
            connection.take_ready()
            if not connection.uncork_ready() or connection.has_more():
                break
            if future.done():
                return True
        return False

    def _note_failure(self, error):
        was_up, self.connection, self.error = self.connection is not None, None, error
        if was_up:
            self.losses += 1
            if not self._closing:
                self._log.warning("lost the connection to %s: %s", self._place(), error)
            self._on_down(error)

    def _wait_for_next(self):
        """Wait before the next attempt to connect. Return the last error if no attempt follows, else None."""
        error = self.error
        if self._closing:
            return error
        never_up = not self._settled.is_set()
        final = (
            isinstance(error, ChannelClosed)
            or is_distrust(error)
            or isinstance(error, ConnectionClosed) and error.reply_code in _FINAL_CODES
        )
        wait_s = self._attempts.failed()
        if wait_s is None or never_up and final:
            self._log.error("gave up on %s after %d attempts: %s", self._place(), self._attempts.count, error)
            return error
        self._log.info("no connection to %s (%s): once more in %.1f s", self._place(), error, wait_s)
        deadline = time.monotonic() + wait_s
        poll = select.poll()
        poll.register(self._woken.fileno(), select.POLLIN)
        while not self._closing and (rest_s := deadline - time.monotonic()) > 0:
            self._do_posted(bool(poll.poll(int(self._rest_s(rest_s) * 1000) + 1)))
        return None

    def _rest_s(self, seconds):
        # poll() takes at most 2**31 ms, less than a timer of a month: an early wakeup waits again.
        rest_s = _LONGEST_WAIT_S if seconds is None else min(seconds, _LONGEST_WAIT_S)
        return max(0.0, min(rest_s, self._timers[0][0] - time.monotonic())) if self._timers else rest_s

    def _do_posted(self, woken):
        """Run posted functions and due timers. ``woken``: first read the wakeup socket, which has input."""
        if woken:
            with contextlib.suppress(BlockingIOError, InterruptedError):  # an earlier call emptied it
                self._woken.recv(64)
        # before the inbox is emptied: later posts wake the thread again
        self._signalled = False
        for _ in range(len(self._inbox)):
            function, args = self._inbox.popleft()
            self._do(function, args)
        while self._timers and self._timers[0][0] <= time.monotonic():
            _, _, function, args = heapq.heappop(self._timers)
            self._do(function, args)

    def _do(self, function, args):
        try:
            function(*args)
        except (ClientError, OSError):
            raise  # the connection's end, handled above
        except Exception:
            self._log.exception(
                "%s failed in the link to %s", getattr(function, "__qualname__", function), self._place())

    def _finish(self, error):
        self.connection, self.error = None, error
        self.has_ended = True
        try:
            try:
                self._on_end(error)
            finally:
                self._tell_the_late()
        finally:
            self._settled.set()
            self._waker.close()
            self._woken.close()

    def _tell_the_late(self):
        """Empty the inbox after the end: waiting calls fail with Disconnected, other posted functions run."""
        while self._inbox:
            function, args = self._inbox.popleft()
            if function is _answer:
                args[0].set_exception(Disconnected("the link has ended"))
                continue
            try:
                self._do(function, args)
            except (ClientError, OSError) as error:
                self._log.debug("%s after the end: %s", getattr(function, "__qualname__", function), error)

    def _place(self):
        return self.url.rpartition("@")[2].partition("?")[0]  # without the password


def _leave_links_to_parent():
    for link in list(_LINKS):
        link._is_parents = link.has_ended = True
        link.connection = link._turn = None


os.register_at_fork(after_in_child=_leave_links_to_parent)


def _answer(future, function, args):
    try:
        future.set_result(function(*args))
    except BaseException as error:
        future.set_exception(error)
        if isinstance(error, (ConnectionClosed, OSError)):
            raise
