"""etcd for the nodes: a Coordinator of a process over the model, which is somewhere else.

Requests and answers are on their way for a while, and are lost where the network is cut, or at random. A
request may arrive after its caller has given it up, and some are held until there is no ``leader``.
"""
from functools import partial

import gevent
from gevent.event import Event

from gomq_py.cluster.core.transactions import CoordinatorError, Unanswered
from tests.node_simulation.network import ETCD
from tests.simulation.clock import CLOCK
from tests.simulation.threads import this_thread
from tests.support.etcd_model import EtcdModel

LOOK_S = 0.05  # between two looks at leases
POLL_S = 2.0  # as etcd.watch.POLL_S
CALL_PART = 0.36  # as elected.CALL_PART
WAY_S = (0.0003, 0.001, 0.003, 0.01)
REFUSED_SHARE, HELD_SHARE, SLOW_SHARE = 0.7, 0.5, 0.3


class Etcd:
    """``model``: the EtcdModel. ``loss``: part of requests and answers that are lost; ``slow_s``: most that
    is added to a way; ``holds``: some transactions arrive when there is no leader the next time.
    """

    def __init__(self, world, network):
        self.world = world
        self.network = network
        self.random = world.random("etcd")
        self.model = EtcdModel(lambda: CLOCK.now_s)
        self.model.revision = 1000  # so that an emptied etcd never has a revision twice
        self.model.watch(self._release)
        self.loss = self.slow_s = 0.0
        self.holds = False
        self._held = []
        self._look()

    def calm(self):
        """Nothing is lost any more."""
        self.loss = self.slow_s = 0.0
        self.holds = self.model.is_refused = False
        self._release(is_forced=True)

    def way_s(self):
        """How long something is on its way."""
        slow = self.slow_s and self.random.random() < SLOW_SHARE
        return self.random.choice(WAY_S) + (self.random.random() * self.slow_s if slow else 0.0)

    def loses(self, source, target):
        """Whether something on its way now does not arrive."""
        return self.network.lacks(source, target) or self.random.random() < self.loss

    def hold(self, arrive):
        """Let a transaction arrive when there is no leader. Returns whether it does."""
        if not self.holds or self.random.random() >= HELD_SHARE:
            return False
        self._held.append(arrive)
        return True

    def _look(self):
        self.model.expire()
        self.world.after(LOOK_S, self._look)

    def _release(self, is_forced=False):
        if self._held and (is_forced or "leader" not in self.model.kept):
            held, self._held = self._held, []
            for arrive in held:
                self.world.after(self.way_s(), arrive)


class Coordinator:
    """A Coordinator (core.coordinator) of the process that makes it, in its hub or in a thread."""

    def __init__(self, settings):
        self._process = gevent.get_hub().process
        self._name = self._process.machine.name
        self._etcd = self._process.machine.etcd
        self._call_s = CALL_PART * settings.lease_ttl

    def read(self):
        """See EtcdModel, as for the others. Raises CoordinatorError, Unanswered. May switch."""
        return self._ask("read")

    def transact(self, transaction):
        return self._ask("transact", transaction)

    def grant(self, ttl_s):
        return self._ask("grant", ttl_s)

    def keep_alive(self, lease):
        return self._ask("keep_alive", lease)

    def revoke(self, lease):
        self._ask("revoke", lease)

    def watch(self, wake):
        """Call ``wake()`` some time after each change that is heard of, and every POLL_S."""
        return Watch(self._process, self._etcd, wake)

    def close(self):
        """Nothing is open."""

    def _ask(self, what, *arguments):
        thread, done, answers = this_thread(), Event(), []

        def answer(value, error):
            if not answers:
                answers.append((value, error))
                if thread is None:
                    done.set()
                else:
                    thread.switch()

        self._send(what, arguments, answer)
        if thread is None:
            done.wait()
        else:
            self._process.world.greenlet.switch()
        value, error = answers[0]
        if error is not None:
            raise error
        return value

    def _send(self, what, arguments, answer):
        etcd, process = self._etcd, self._process
        process.moment(f"asks etcd: {what}")
        if etcd.model.is_refused and etcd.random.random() < REFUSED_SHARE:
            process.after(etcd.way_s(), partial(answer, None, CoordinatorError("etcd refuses")))
            return
        process.after(self._call_s, partial(answer, None, Unanswered("no answer in time")))
        if etcd.loses(self._name, ETCD):
            return
        arrive = partial(self._arrive, what, arguments, answer)
        if not (what == "transact" and etcd.hold(arrive)):
            etcd.world.after(etcd.way_s(), arrive)

    def _arrive(self, what, arguments, answer):
        etcd = self._etcd
        try:
            value, error = getattr(etcd.model, what)(*arguments), None
        except CoordinatorError as refused:
            value, error = None, refused
        etcd.world.say(ETCD, f"does {what} of {self._name}, revision {etcd.model.revision}")
        if not etcd.loses(ETCD, self._name):
            self._process.after(etcd.way_s(), partial(answer, value, error))


class Watch:
    """What Coordinator.watch returns."""

    def __init__(self, process, etcd, wake):
        self._process, self._etcd, self._wake = process, etcd, wake
        self._inner = etcd.model.watch(self._changed)
        process.after(POLL_S, self._poll)

    def close(self):
        """No further wake()."""
        self._wake = None
        self._inner.close()

    def _changed(self):
        if not self._etcd.loses(ETCD, self._process.machine.name):
            self._process.after(self._etcd.way_s(), self._tell)

    def _tell(self):
        if self._wake is not None:
            self._wake()

    def _poll(self):
        if self._wake is not None:
            self._wake()
            self._process.after(POLL_S, self._poll)
