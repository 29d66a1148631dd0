"""An AMQP client of a queue with x-expires, which it uses in time or not, and deletes on condition that it is
empty or unused. A queue that is not durable ends with its broker, too.

The client is alone with its queue, so that it knows how many messages are there, and what it will be told.
"""
from typing import NamedTuple

from gomq_py.amqp.wire import methods
from gomq_py.content.properties import Properties
from tests.simulation.amqp_channel import GOT
from tests.simulation.amqp_owners import OwnedLedger, OwnerClient, PatientChannel
from tests.simulation.clock import CLOCK
from tests.simulation.queue_ledger import CLOCK_S, QueueLedger

SHARE = 0.15
EXPIRES_S = 0.3
RESTS_S = (0.05, 0.1, 0.2, 0.8)
SLACK_S = 0.2  # of timers, and of a deletion that waits for its turn
MOST_READY = 3
CALM_STEPS = 12


class Use(NamedTuple):
    """Of a queue: some time from ``asked_s`` to ``answered_s``. ``stalled_s``: of the process by then."""

    asked_s: float
    answered_s: float
    ends: int
    stalled_s: float


class EndingLedger(OwnedLedger):
    """Of a queue that expires."""

    def __init__(self, world, name, book, is_durable):
        super().__init__(world, name, book, "durable" if is_durable else "transient")
        self.traits |= {"expires"}
        self.is_durable = is_durable
        self._is_full = False
        self._full = set()  # ``ends`` of processes whose disk was full

    def missing(self):
        return ()  # its lives are judged by what it is said to have

    def deliver(self, message, copy, redelivered, hand):
        if hand.ends == self.ends:
            super().deliver(message, copy, redelivered, hand)
        else:  # it is read behind the end of its broker
            QueueLedger.deliver(self, message, copy, redelivered, hand)

    def is_well(self):
        """Whether the broker can delete, and keeps its time."""
        return not self._is_full and not CLOCK.jumps and self.ends not in self._full | self._ill

    def disk_is_full(self, is_full):
        super().disk_is_full(is_full)
        self._is_full = is_full
        self._full.add(self.ends)

    def process_ended(self):
        super().process_ended()
        if not self.is_durable:
            self.end(True)

    def state(self, use, asked_s, stalled_s):
        """"there" or "gone", of a queue with such a last use that is asked about since then; or None."""
        if use is None or use.ends != self.ends or not self.is_well():
            return None
        if self.world.now_s - use.asked_s < EXPIRES_S - 2 * CLOCK_S:
            self.exercised["queues in use"] += 1
            return "there"
        if asked_s - use.answered_s - (stalled_s - use.stalled_s) > EXPIRES_S + SLACK_S:
            self.exercised["queues that expire"] += 1
            return "gone"
        return None

    def check_count(self, state, ready, known):
        """So many are said to be ready, of those that are known to be there if it is."""
        if state == "gone":
            if ready:
                self.find(f"{ready} messages are ready, and it has expired")
            self.end(True)
        elif state == "there" and ready != known:
            self.find(f"{ready} messages are ready in place of {known}, and it was in use")


class Sleeper(PatientChannel):
    """``_ready``: how many messages are there unless it has expired, or None. ``_use``: the last one."""

    def __init__(self, client, number, ledger):
        self._steps = CALM_STEPS
        super().__init__(client, number, ledger, ledger, False, False, [])

    def shut(self):
        super().shut()
        self._ready = self._use = None
        self._rests_until_s = 0.0

    def is_idle(self):
        return super().is_idle() and not (self._client.is_calm and self._steps)

    def _now_s(self):
        return self._client.world.now_s

    def _ask_of_it(self, method, answers, then):
        """``then(state of the queue, answer)``. It is no use of the queue where nothing is noted."""
        asked_s = self._now_s()

        def answered(*answer):
            state = self._publishes.state(
                None if self._has_consumer else self._use, asked_s, self._client.stalled_s())
            then(state, *answer)

        self._ask(method, answers, answered)
        return asked_s

    def _is_used(self, asked_s):
        self._use = Use(asked_s, self._now_s(), self._publishes.ends, self._client.stalled_s())

    # what it asks

    def _declare_queue(self, ledger):
        if not self._is_open:
            self._has_consumer = self._random.random() < 0.3
            if self._has_consumer:  # it has expired where the broker had no processor in between
                self._client.expects.add("no queue")

        def declared(state, answer):
            if not self._has_consumer and self._ready is not None:
                ledger.check_count(state, answer.message_count, self._ready)
            self._ready = answer.message_count
            self._is_used(asked_s)

        asked_s = self._ask_of_it(methods.QueueDeclare(
            queue=ledger.name, durable=ledger.is_durable, arguments=ledger.arguments),
            methods.QueueDeclareOk, declared)

    def _get(self):
        ledger = self._publishes
        # Where it is gone the channel ends.
        self._client.expects.add("no queue")

        def got(state, method, *content):
            ready = method.message_count + 1 if content else 0
            if self._ready is not None:
                ledger.check_count(state, ready, self._ready)
            self._ready = max(0, ready - 1)
            self._is_used(asked_s)
            if content and self._is_open:
                self._take_message(method, *content)
                self._ack_multiple(whole=True)

        asked_s = self._ask_of_it(methods.BasicGet(queue=ledger.name), GOT, got)

    def _delete(self, if_empty):
        """The broker refuses it where there is a message, or a consumer."""
        ledger, ready, has_consumer = self._publishes, self._ready, self._has_consumer
        self._say(f"deletes its queue if {'empty' if if_empty else 'unused'}")
        if ready is None or ready or has_consumer or not ledger.is_well():
            self._client.expects |= {" not empty"} if if_empty else {" in use"} if has_consumer else set()

        def deleted(state, _answer):
            is_kept = state == "there" and ready if if_empty else has_consumer and ledger.is_well()
            if is_kept:
                ledger.find(f"was deleted, and {ready} messages were ready, or a consumer there")
            ledger.end(True)
            self._ready = self._use = None

        ledger.exercised["deleted if"] += bool(has_consumer or ready)
        self._ask_of_it(methods.QueueDelete(
            queue=ledger.name, if_empty=if_empty, if_unused=not if_empty), methods.QueueDeleteOk, deleted)
        self._declare_queue(ledger)

    # what it is told

    def _accepted(self, message):
        super()._accepted(message)
        if self._ready is not None and message.source is self._source:
            self._ready += 1

    def _cancelled_by_broker(self, method, _properties, _body):
        """A fault of the disk may have closed the queue."""
        self._say("has no consumer any more")
        if self._publishes.is_well() and self._hand.end.is_sound():
            self._publishes.find(f"{method.consumer_tag} was cancelled, and its queue is in use")
        self._consuming.pop(method.consumer_tag, None)
        self._close_connection()

    HANDLERS = PatientChannel.HANDLERS | {methods.BasicCancel: _cancelled_by_broker}

    # what it does

    def act(self, is_calm):
        if not self._is_open or self._asked or self._unconfirmed or self._now_s() < self._rests_until_s:
            return
        if self._in_hand():
            self._ack_multiple(whole=True)
        elif not is_calm or self._steps:
            self._steps -= is_calm
            self._step(self._random.choice(STEPS))

    def _step(self, step):
        if step == "publish" and (self._ready or 0) < MOST_READY:
            publish = methods.BasicPublish(routing_key=self._publishes.name)
            self._send_message([self._publishes], publish, Properties(delivery_mode=2), {})
        elif step == "rest" or step == "publish" or self._has_consumer and step in ("get", "empty"):
            rest_s = self._random.choice(RESTS_S)
            self._rests_until_s = self._now_s() + rest_s
            self._say(f"rests for {rest_s} s")
            self._client.world.after(rest_s, self._client.heard)
        elif step == "declare":
            self._declare_queue(self._publishes)
        elif step == "get":
            self._get()
        else:
            self._delete(step == "empty")


STEPS = (*["publish"] * 3, *["rest"] * 3, "declare", "declare", "get", "empty", "unused")


class EndingClient(OwnerClient):
    """Knows for how long the broker had no processor."""

    def stalled_s(self):
        """Of the process that it is connected to."""
        door = self._network.listening.get(self._port)
        return door.process.stalled_s() if door is not None else 0.0

    def heard(self):
        if self._end is not None:
            super().heard()


def clients_of_ends(world, network, book, left):
    """Those of a seed that has them, or none."""
    random = world.random("ends")
    if not left(["e0"], random.random() < SHARE):
        return []
    ledger = EndingLedger(world, "e0", book, random.random() < 0.7)
    world.say(ledger.name, ledger.kind)
    return [EndingClient(world, network, "ending", book, [(Sleeper, ledger)])]
