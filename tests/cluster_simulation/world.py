"""World of a simulation: time, processes that die and are stopped, a network that loses and delays, and
etcd's model behind it. Everything that happens is drawn from one seed.
"""
import heapq
from functools import partial
from random import Random

from gomq_py.cluster.core.transactions import CoordinatorError, Unanswered
from tests.support.etcd_model import EtcdModel

# How long a node waits for an answer of etcd.
CALL_S = 1.5


class World:
    """``now_s``: true time. ``random``: draws everything. ``note(text)`` adds a line to the trace."""

    def __init__(self, seed, trace=None):
        self.random = Random(seed)
        self.now_s = 0.0
        self.etcd = EtcdModel(lambda: self.now_s)
        self.etcd.revision = 1000  # so that an emptied etcd never has a revision twice
        self.cuts = set()  # (from, to): names of nodes, or "etcd"
        self.loss = 0.0  # part of the messages to and from etcd that are lost
        self.slow_s = 0.0  # most that is added to a delay
        self.holds = False  # some transactions arrive when there is no leader the next time
        self._held = []
        self.etcd.watch(self._release)
        self._trace = trace
        self._events = []
        self._count = 0

    def note(self, text, *arguments):
        """A line of the trace."""
        if self._trace is not None:
            self._trace(f"{self.now_s:8.3f} {text % arguments}")

    def after(self, delay_s, function, *arguments):
        """Call a function later."""
        self._count += 1
        heapq.heappush(self._events, (self.now_s + delay_s, self._count, function, arguments))

    def run(self, until_s, is_done=None):
        """Let things happen until a time, or until ``is_done()``, asked twice a second. Returns whether it
        is.
        """
        asked_s = self.now_s
        while self._events and self._events[0][0] <= until_s:
            self.now_s, _, function, arguments = heapq.heappop(self._events)
            function(*arguments)
            if is_done is not None and self.now_s - asked_s >= 0.5:
                asked_s = self.now_s
                if is_done():
                    return True
        self.now_s = until_s
        return is_done is not None and is_done()

    def delay_s(self):
        """How long a message takes."""
        delay_s = self.random.uniform(0.0005, 0.01)
        if self.slow_s and self.random.random() < 0.3:
            delay_s += self.random.uniform(0, self.slow_s)
        return delay_s

    def is_cut(self, source, target):
        """Whether nothing comes from one to the other."""
        return (source, target) in self.cuts

    def _loses(self):
        return self.loss and self.random.random() < self.loss

    def ask_etcd(self, process, function, *arguments):
        """A call of etcd by a process, to be yielded by a task: its result, CoordinatorError or Unanswered.
        A request may arrive after its process has given up waiting.
        """
        name = process.node.name

        def begin(done):
            answered = []

            def answer(value, error):
                if not answered:
                    answered.append(True)
                    done(value, error)

            if self.etcd.is_refused and self.random.random() < 0.7:
                process.after(self.delay_s(), answer, None, CoordinatorError("refused"))
                return
            process.after(CALL_S, answer, None, Unanswered("no answer in time"))
            if self.is_cut(name, "etcd") or self._loses():
                return
            if self.holds and function == self.etcd.transact and self.random.random() < 0.5:
                self._held.append(partial(arrived, answer))
            else:
                self.after(self.delay_s(), arrived, answer)

        def arrived(answer):
            try:
                value, error = function(*arguments), None
            except CoordinatorError as refused:
                value, error = None, refused
            if not self.is_cut("etcd", name) and not self._loses():
                process.after(self.delay_s(), answer, value, error)

        return begin

    def _release(self):
        if self._held and "leader" not in self.etcd.kept:
            held, self._held = self._held, []
            for arrive in held:
                self.after(self.random.uniform(0.0001, 0.01), arrive)


class Process:
    """A run of a node's program: it ends when it is killed, and does nothing while it is stopped."""

    def __init__(self, world, node):
        self.world = world
        self.node = node
        self.is_alive = True
        self._stops = 0  # under way
        self._backlog = []

    def after(self, delay_s, function, *arguments):
        """Call a function later, in the process."""
        self.world.after(delay_s, self._in_process, function, arguments)

    def _in_process(self, function, arguments):
        if not self.is_alive:
            return
        if self._stops:
            self._backlog.append((function, arguments))
        else:
            function(*arguments)

    def stop(self, seconds):
        """SIGSTOP, and SIGCONT after some seconds."""
        self._stops += 1
        self.world.after(seconds, self._go_on)

    def _go_on(self):
        self._stops -= 1
        if not self._stops:
            backlog, self._backlog = self._backlog, []
            for event in backlog:
                self._in_process(*event)

    def spawn(self, task):
        """Run a generator. It yields seconds to sleep, or a function that is called with ``done(value,
        error)``.
        """
        self.after(0.0, self._resume, task, None, None)

    def _resume(self, task, value, error):
        try:
            wanted = task.send(value) if error is None else task.throw(error)
        except StopIteration:
            return
        if isinstance(wanted, float):
            self.after(wanted, self._resume, task, None, None)
        else:
            wanted(lambda value=None, error=None: self._resume(task, value, error))


class Event:
    """What a task can wait for: ``yield event.wait(seconds)``."""

    def __init__(self, process):
        self._process = process
        self._waiting = []
        self._is_set = False

    def set(self):
        """Wake the tasks that wait, or the next one."""
        waiting, self._waiting = self._waiting, []
        self._is_set = not waiting
        for done in waiting:
            self._process.after(0.0, done)

    def wait(self, timeout_s):
        """To be yielded: ends when the event is set, or after some seconds."""
        def begin(done):
            once = []

            def finished():
                if not once:
                    once.append(True)
                    if finished in self._waiting:
                        self._waiting.remove(finished)
                    done()

            if self._is_set:
                self._is_set = False
                self._process.after(0.0, finished)
            else:
                self._waiting.append(finished)
                self._process.after(timeout_s, finished)

        return begin
