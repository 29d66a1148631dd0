"""Loop: gevent's loop of one process, and its hub, in the world.

A turn of it is what an iteration of libev's is: callbacks in the order in which they came, a poll, then due
timers and ready sockets. What the real ones leave open is drawn: how many callbacks there are before a poll,
the order of sockets and of timers that are due at the same time, whether timers come before sockets, how
long a turn takes, and whether the processor is somewhere else before the next one. Watchers that the broker
does not use are not there.
"""
import heapq
import sys
from collections import deque
from itertools import count

from gevent import hub as gevent_hub
from gevent._ffi.callback import callback as Callback

from tests.simulation.clock import CLOCK

READABLE, WRITABLE = 1, 2
# How many callbacks there are between two polls; gevent has a thousand, or fewer where they take long.
CALLBACKS = (1, 2, 5, 50, 1000)
# Seconds that a turn takes, and how often and how long the system gives the processor to others.
TURN_S = (5e-6, 20e-6, 100e-6)
STALL_SHARE, STALL_S = 0.0005, 0.3


class ProcessHub(gevent_hub.Hub):
    """``process``: whose it is. What its loop prints elsewhere is a finding here."""

    def __init__(self, process):
        super().__init__(loop=Loop(process))
        self.process = process

    def print_exception(self, context, t, v, tb):
        t, v, tb = self._normalize_exception(t, v, tb)
        self.process.fault(f"{context} failed", v)


class Loop:
    """What gevent's Hub and the broker ask of a loop. ``iteration`` counts turns, ``polls`` looks at sockets.
    """

    MAXPRI, MINPRI = 2, -2
    default = False
    error_handler = None
    starting_timer_may_update_loop_time = False

    def __init__(self, process):
        self.iteration = self.polls = 0
        self._process = process
        self._world = process.world
        self._random = process.world.random(f"loop of {process}")
        self._now_s = CLOCK.now_s
        self._callbacks = deque()
        self._timers = []  # heap of (due, draw, number, Timer, its start)
        self._sockets = {}  # started IO watchers, as keys
        self._checks = {}  # started check watchers, as keys
        self._numbers = count()
        self._turn_at_s = None  # of the turn that the world has been asked for

    # what is asked of it

    def run(self):
        """Take a turn whenever the world says so, for ever."""
        while True:
            self._turn()
            self._world.greenlet.switch()

    def run_callback(self, function, *arguments):
        """Call it before the next poll, or one of the next."""
        self._check_hub()
        called = Callback(function, arguments)
        self._callbacks.append(called)
        self._wake(CLOCK.now_s)
        return called

    run_callback_threadsafe = run_callback

    def timer(self, after, repeat=0.0, ref=True, priority=None):
        """A watcher that calls after so many seconds."""
        return Timer(self, after, repeat)

    def io(self, fd, events, ref=True, priority=None):
        """A watcher that calls while the socket is ready."""
        return SocketWatcher(self, self._process.sockets[fd], events)

    def check(self, ref=True, priority=None):
        """A watcher that calls after each poll, before timers and sockets: it has the highest priority."""
        return Check(self)

    def now(self):
        """The time of this turn."""
        return self._now_s

    def update_now(self):
        """Look at the clock."""
        self._now_s = CLOCK.monotonic()

    update = update_now

    @staticmethod
    def closing_fd(fd):
        """Whether a watcher has to hear of it first."""
        return False

    def socket_is_ready(self):
        """Some socket of the process may be: for the network."""
        self._wake(CLOCK.now_s)

    def left(self):
        """What would still call somebody, for who looks for leaks."""
        timers = [timer for _, _, _, timer, start in self._timers
                  if timer.active and timer.start_number == start]
        return [watcher.callback for watcher in [*timers, *self._sockets, *self._checks]]

    def _check_hub(self):
        """Nothing that runs for one process asks the loop of another."""
        if gevent_hub.get_hub() is not self._process.hub:
            self._world.find(f"{self._process} is asked by {gevent_hub.get_hub().process}")

    # turns

    def _wake(self, at_s):
        if self._turn_at_s is None or at_s < self._turn_at_s:
            self._turn_at_s = at_s
            self._world.at(at_s, self._process.turn, at_s)

    def is_due(self, at_s):
        """Whether the turn of this time is still wanted: an earlier one may have come in its place."""
        if at_s != self._turn_at_s:
            return False
        self._turn_at_s = None
        return True

    def _turn(self):
        began_s = CLOCK.now_s
        self.iteration += 1
        self._run_callbacks()
        self.polls += 1
        self._now_s = CLOCK.now_s
        for watcher in list(self._checks):
            if watcher.active:
                watcher.fire()
        timers, sockets = self._due_timers(), self._ready_sockets()
        if len(sockets) > 1:
            self._random.shuffle(sockets)
        for watcher in timers + sockets if self._random.random() < 0.5 else sockets + timers:
            if watcher.active:
                watcher.fire()
        again_s = max(CLOCK.now_s, began_s + self._turn_s())
        if self._callbacks or any(watcher.is_ready() for watcher in self._sockets):
            self._wake(again_s)
        elif self._timers:
            self._wake(max(again_s, self._timers[0][0]))

    def _turn_s(self):
        if self._random.random() < STALL_SHARE:
            stall_s = self._random.random() * STALL_S
            self._process.stalls_s += stall_s
            return stall_s
        return self._random.choice(TURN_S)

    def _run_callbacks(self):
        for _ in range(self._random.choice(CALLBACKS)):
            if not self._callbacks:
                return
            called = self._callbacks.popleft()
            function, arguments = called.callback, called.args
            if function is not None and arguments is not None:
                called.callback = None
                self.call(called, function, arguments)
                called.args = None

    def _due_timers(self):
        due = []
        while self._timers and self._timers[0][0] <= self._now_s:
            _, _, _, timer, start = heapq.heappop(self._timers)
            if timer.active and timer.start_number == start:
                due.append(timer)
        return due

    def _ready_sockets(self):
        return [watcher for watcher in self._sockets if watcher.is_ready()]

    def call(self, context, function, arguments):
        """Call what a watcher is for. What it raises goes to the hub, as with libev."""
        self._world.events += 1
        try:
            function(*arguments)
        except BaseException:
            self._process.hub.handle_error(context, *sys.exc_info())

    # watchers

    def add_timer(self, timer, after_s):
        """It is due after so long, by the time of this turn. Returns when that is."""
        self._check_hub()
        due_s = self._now_s + after_s
        timer.start_number = next(self._numbers)
        heapq.heappush(
            self._timers, (due_s, self._random.random(), timer.start_number, timer, timer.start_number))
        self._wake(max(due_s, CLOCK.now_s))
        return due_s

    def add_socket(self, watcher):
        """It is asked at each poll."""
        self._check_hub()
        self._sockets[watcher] = None
        if watcher.is_ready():
            self._wake(CLOCK.now_s)

    def discard_socket(self, watcher):
        """It is not asked any more."""
        self._sockets.pop(watcher, None)

    def add_check(self, watcher):
        """It is called after each poll."""
        self._check_hub()
        self._checks[watcher] = None

    def discard_check(self, watcher):
        """It is not called any more."""
        self._checks.pop(watcher, None)


class Watcher:
    """As libev's: ``active`` from start() to stop()."""

    def __init__(self, loop):
        self.loop = loop
        self.callback = self.args = None
        self.active = False
        self.pending = False
        self.ref = True
        self.priority = 0

    def start(self, callback, *args, update=False):
        """Call ``callback(*args)`` from now on."""
        assert callable(callback)
        self.callback, self.args = callback, args
        self.active = True

    def stop(self):
        """Do not call."""
        self.active = False
        self.callback = self.args = None

    def close(self):
        """Stop for good."""
        self.stop()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


class Timer(Watcher):
    """Calls once, and again each ``repeat`` seconds where that is not 0.

    As libev's it keeps what is left of its time when it is stopped, and has none left when it has called.
    """

    def __init__(self, loop, after_s, repeat_s):
        super().__init__(loop)
        self._left_s = max(after_s, 0.0)
        self._repeat_s = repeat_s
        self._due_s = 0.0
        self.start_number = None

    def start(self, callback, *args, update=False):
        if update:
            self.loop.update_now()
        if not self.active:
            self._due_s = self.loop.add_timer(self, self._left_s)
        super().start(callback, *args)

    def stop(self):
        if self.active:
            self._left_s = max(self._due_s - self.loop.now(), 0.0)
        super().stop()

    def fire(self):
        """Its time has come."""
        callback, args = self.callback, self.args
        if self._repeat_s:
            self._due_s = self.loop.add_timer(self, self._repeat_s)
        else:
            self.active = False
            self._left_s = 0.0
        self.loop.call(self, callback, args)
        if not self.active:
            self.callback = self.args = None


class Check(Watcher):
    """Calls after each poll."""

    def start(self, callback, *args, update=False):
        super().start(callback, *args)
        self.loop.add_check(self)

    def stop(self):
        super().stop()
        self.loop.discard_check(self)

    def fire(self):
        """There was a poll."""
        self.loop.call(self, self.callback, self.args)


class SocketWatcher(Watcher):
    """Calls at each poll that finds the socket ready."""

    def __init__(self, loop, socket, events):
        super().__init__(loop)
        self._socket = socket
        self._events = events
        # Whether a poll would find it.
        self.is_ready = {READABLE: socket.is_readable, WRITABLE: socket.is_writable}[events]

    def start(self, callback, *args, update=False, pass_events=False):
        super().start(callback, *args)
        self._passes_events = pass_events
        self.loop.add_socket(self)

    def stop(self):
        super().stop()
        self.loop.discard_socket(self)

    def fire(self):
        """A poll has found it ready."""
        arguments = self.args
        if self._passes_events:
            events = READABLE * bool(self._socket.is_readable()) | WRITABLE * self._socket.is_writable()
            arguments = (events & self._events, *arguments)
        self.loop.call(self, self.callback, arguments)
