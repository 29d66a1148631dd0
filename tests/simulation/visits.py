"""Visits: at a quiet end all clients leave, and nothing in the broker may be theirs any more; then they come
again and leave, several times, and nothing may grow from each visit to the next. What has grown at each of
them may be several things, of which each grows once, such as the first segment of a session that gets a will
meanwhile, or a spare file of the pool: then they come a few times more.

Half of them leave in order, and half by a reset. With them comes a visitor that makes the broker take and
drop segments, and leaves a message in hand and half of another one behind.
"""
from gomq_py.amqp.wire import methods
from gomq_py.amqp.wire.frames import content_frames, method_frame
from gomq_py.content.properties import Properties
from tests.simulation import leaks
from tests.simulation.amqp_channel import Channel
from tests.simulation.amqp_clients import AMQPClient
from tests.simulation.queue_ledger import QueueLedger

# Until nothing goes on any more: what rests, and buffers that are kept, for 20 s at the longest.
RESTS_S = 30.0
VISIT_S = 60.0
VISITS = 5
MORE_VISITS = 3  # while something has grown each time
MANY = 8
LARGE = 60_000  # octets, nearly a segment
UNFINISHED = 300_000


class Visitor(AMQPClient):
    """Publishes and gets, has a message die, which comes back after a while, until it has one in hand, and
    has sent half of another one, unless it is to leave in order: ``is_done``.
    """

    is_orderly = True

    def __init__(self, world, network, book):
        self._ledger = QueueLedger(world, "visits", book)
        self._ledger.dies_to = QueueLedger(world, "visits-waiting", book, ["expiring"], dies_to=self._ledger)
        role = Channel, self._ledger, self._ledger, False, False, ()
        super().__init__(world, network, "visitor", book, [role])
        self.is_done = False
        self._steps = iter(())

    def begin(self):
        self.is_done = False
        self._steps = self._visit(*self._channels)
        super().begin()

    def act(self):
        if self.waits_since_s is None:
            next(self._steps, None)

    def _visit(self, channel):
        for _ in range(MANY):
            self._publish(channel)
        yield
        channel._get()
        yield
        channel._reject()
        while self._ledger.missing():
            channel._get()
            yield
            channel._ack_multiple(whole=True)
        self._publish(channel)
        yield
        channel._get()
        yield
        if not self.is_orderly:
            publish = methods.BasicPublish(exchange="", routing_key=self._ledger.name)
            frames = content_frames(1, Properties().encode(), bytes(UNFINISHED), self.frame_max)
            self.send((method_frame(1, publish) + frames)[:UNFINISHED // 2])
            yield
        self.is_done = True

    def depart(self, in_order):
        super().depart(self.is_orderly)
        self.is_orderly = not self.is_orderly

    def _publish(self, channel):
        publish = methods.BasicPublish(exchange="", routing_key=self._ledger.name)
        channel._send_message([self._ledger], publish, Properties(delivery_mode=2), {"size": LARGE})


class Visits:
    """``run`` lets them happen with a process, and ``compare`` looks at the next one, where nobody is."""

    def __init__(self, world, network, book, clients, exercised):
        self._world = world
        self._random = world.random("visits")
        self._visitor = Visitor(world, network, book)
        self._clients = [*clients, self._visitor]
        self._exercised = exercised
        self._process = self._waiting = None

    def run(self, process):
        """With all clients connected, and nothing left to do for them."""
        self._process = process
        counts = []
        for number in range(VISITS + MORE_VISITS):
            if number >= VISITS and not leaks.growing(counts[1:]):
                break
            if number:
                for client in self._clients:
                    client.come_again()
            if not self._wait(self._is_quiet):
                self._world.find(f"visit {number} does not become quiet for {self._restless()}")
                return
            self._part()
            if not self._wait(self._all_are_gone):
                here = [client.name for client in self._clients if not client.is_gone]
                self._world.find(f"visit {number} does not end for {here}")
                return
            self._world.run(self._world.now_s + RESTS_S)
            counts.append(self._look())
        for line in leaks.growing(counts[1:]):
            self._world.find(f"from visit to visit more is kept: {line}")
        self._waiting = leaks.waiting(process)

    def compare(self, process):
        """At the beginning of a broker as many greenlets and watchers wait for anything as at its end."""
        self._world.run(self._world.now_s + RESTS_S)
        process.enter()
        waiting = leaks.waiting(process)
        for what in sorted({*waiting, *self._waiting}):
            if waiting[what] != self._waiting[what]:
                self._world.find(
                    f"{self._waiting[what]} of {what} at the end, {waiting[what]} at the beginning")

    def _wait(self, is_over):
        return self._world.run(self._world.now_s + VISIT_S, is_over)

    def _restless(self):
        return [
            client.name for client in self._clients if not client.is_open or client.waits_since_s is not None]

    def _is_quiet(self):
        return self._visitor.is_done and all(
            client.is_open and client.waits_since_s is None for client in self._clients)

    def _all_are_gone(self):
        return all(client.is_gone for client in self._clients)

    def _part(self):
        self._random.shuffle(self._clients)
        for number, client in enumerate(self._clients):
            client.depart(number % 2 == 0)

    def _look(self):
        self._exercised["visits"] += 1
        self._process.enter()
        for name, value in leaks.held(self._process).items():
            if value:
                self._world.find(f"nobody is connected, and {name}: {value}")
        return leaks.kept(self._process)
