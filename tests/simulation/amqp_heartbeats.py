"""An AMQP client with heartbeats, and what it is promised: its connection stays while it sends heartbeats,
and ends in time when it sends nothing; and the broker's heartbeats come in time.
"""
from gomq_py.amqp.wire.frames import HEARTBEAT_FRAME
from tests.simulation.amqp_channel import Channel
from tests.simulation.amqp_clients import AMQPClient
from tests.simulation.ledger import Ledger
from tests.simulation.queue_ledger import QueueLedger

SHARE = 0.15
HEARTBEATS_S = (1, 2)
BEATS = (0.5, 1, 2)  # intervals between two of the client's heartbeats: all less than SILENT
REST_SHARE = 0.1  # of its acts
RESTS = 3  # intervals: more than SURELY_SILENT

# docs/promises.md, in intervals: a client that sends nothing is cut off after SILENT, and after SURELY_SILENT
# at the latest; the broker itself is silent for HEARD at most.
SILENT, SURELY_SILENT, HEARD = 2.5, 2.75, 0.5
TICK_S = 0.125  # of hub.heartbeats: a check that comes late by less counts as if it had come in time
LATE_S = 0.5  # what the network, and other work of the broker, may add


class HeartbeatLedger(Ledger):
    """Of the connections of one client. ``stalled_s``: for how long of a silence the broker had no processor;
    so much later it may notice.
    """

    def __init__(self, world, name, heartbeat_s):
        super().__init__(world, name)
        self.heartbeat_s = heartbeat_s

    def hears(self, silence_s, stalled_s):
        """The client, which has always read at once, has something to read after so long."""
        self.exercised["heartbeats heard"] += silence_s > LATE_S
        if silence_s - stalled_s > HEARD * self.heartbeat_s + LATE_S:
            self.find(f"heard nothing for {silence_s:.3f} s, with heartbeats every {self.heartbeat_s} s")

    def lives(self):
        """The client has sent nothing but heartbeats for longer than it may be silent, and is connected."""
        self.exercised["kept by heartbeats"] += 1

    def is_cut_off(self, silence_s):
        """The broker, which goes on, has ended the connection after such a silence."""
        self.exercised["cut off"] += 1
        if silence_s < SILENT * self.heartbeat_s - TICK_S:
            self.find(f"cut off after {silence_s:.3f} s, with heartbeats every {self.heartbeat_s} s")

    def left_s(self, silence_s, stalled_s):
        """How much longer the broker may take to end the connection."""
        left_s = SURELY_SILENT * self.heartbeat_s + LATE_S + stalled_s - silence_s
        if left_s <= 0:
            self.find(
                f"silent for {silence_s:.3f} s and connected, with heartbeats every {self.heartbeat_s} s")
        return left_s


class BeatingClient(AMQPClient):
    """Rests now and then: it either sends nothing but heartbeats for a while, or nothing at all until the
    broker has cut it off. Behind the storm it does both once.
    """

    def __init__(self, world, network, name, book, roles, ledger):
        super().__init__(world, network, name, book, roles)
        self._ledger = ledger
        self.heartbeat_s = ledger.heartbeat_s
        self._beat_s = self.heartbeat_s * self.random.choice(BEATS)
        self._rests_left = [True, False]  # of those behind the storm, whether it is silent

    def begin(self):
        self._door = self._network.listening.get(self._port)
        self._is_resting = self._is_silent = False
        super().begin()

    def opened(self):
        super().opened()
        self._hears()
        self._beat(self._end)

    def send(self, octets):
        super().send(octets)
        self._sent = self._moment()

    def take(self, octets):
        if self.is_open:
            if self.world.now_s > self._deaf_until_s + LATE_S:
                self._ledger.hears(*self._since(self._heard))
            self._hears()
        super().take(octets)

    def act(self):
        if self._is_resting:
            return
        wants_rest = self._rests_left if self.is_calm else self.random.random() < REST_SHARE
        if wants_rest and self.waits_since_s is None:
            self._rest(self._end)
        else:
            super().act()

    def ended(self):
        if self.is_open and self._network.listening.get(self._port) is self._door:  # or the broker ends, too
            self._ledger.is_cut_off(self._since(self._sent)[0])
            self._has_rested()

    def _rest(self, end):
        self.waits()
        self._is_resting = True
        self._is_silent = self._rests_left[-1] if self.is_calm else self.random.random() < 0.5
        if self._is_silent:
            self.say("falls silent")
            self._expect_end(end)
        else:
            self.say("rests")
            self.world.after(RESTS * self.heartbeat_s, self._is_kept, end)

    def _is_kept(self, end):
        if self.is_connected_by(end):
            self._ledger.lives()
            self._is_resting = False
            self._has_rested()
            self.heard()

    def _has_rested(self):
        if self.is_calm and self._rests_left:
            self._rests_left.pop()

    def _beat(self, end):
        if self.is_connected_by(end) and not self._is_silent:
            self.send(HEARTBEAT_FRAME)
            self.world.after(self._beat_s, self._beat, end)

    def _expect_end(self, end):
        if not end.peer.is_closed and self.is_connected_by(end):
            left_s = self._ledger.left_s(*self._since(self._sent))
            self.world.after(max(TICK_S, left_s), self._expect_end, end)

    def _hears(self):
        self._heard = self._moment()

    def _moment(self):
        """Now, and for how long the broker had no processor until now."""
        return self.world.now_s, self._door.process.stalled_s()

    def _since(self, moment):
        return [now - then for now, then in zip(self._moment(), moment)]


def beating_clients(world, network, book, left):
    """Clients of a seed that has them, and their ledgers, or none."""
    random = world.random("heartbeats")
    if not left(["b0"], random.random() < SHARE):
        return [], []
    ledger = HeartbeatLedger(world, "beating", random.choice(HEARTBEATS_S))
    queue = QueueLedger(world, "b0", book)
    role = Channel, queue, queue, False, True, ["publish", "ack_multiple"]
    return [BeatingClient(world, network, "beating", book, [role], ledger)], [ledger]
