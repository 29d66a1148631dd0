"""Drives a whole Broker below its doors on a modelled disk: topology and messages, with an account of both.

What is durable counts as promised once a sync answers that was asked for after it, as a door does before an
-ok or a confirm. A definition's account is the set of values it may have: the last promised one and every
later one.
"""
import gevent

from gomq_py.broker.broker import Broker
from gomq_py.config.settings import Settings
from gomq_py.hub.context import Hub
from gomq_py.storage.disk.data_dir import DataDir
from gomq_py.storage.flush.durability import Durability
from gomq_py.storage.flush.group_commit import GroupCommit
from gomq_py.storage.message import Message
from tests.durability.account import Account, body_of, number_in
from tests.durability.flush_pool import give_way
from tests.durability.store_driver import is_persistent, size_of
from tests.support.power_cut import PowerCutFiles
from tests.support.reading import get
from tests.support.unflushed import Unflushed

SETTINGS = Settings(segment_size=65536, default_user="")
QUEUES = ("q0", "q1", "q2", "q3")
EXCHANGES = {"x0": "direct", "x1": "fanout", "x2": "topic"}
KEYS = ("a", "a.b", "c")
PROPERTIES = {True: b"\x10\x00\x02", False: b"\x10\x00\x01"}


class Definitions:
    """For each thing that can be declared, the values it may have after a crash.

    Keys are tuples, values anything; None: not there.
    """

    def __init__(self):
        self.sequence = 0
        self._values = {}  # key -> [(sequence, value), ...], the first one promised

    def copy(self):
        other = Definitions()
        other.sequence = self.sequence
        other._values = {key: list(values) for key, values in self._values.items()}
        return other

    def set(self, key, value):
        self.sequence += 1
        self._values.setdefault(key, [(0, None)]).append((self.sequence, value))

    def withdraw(self, key):
        """The last change of this was refused, so it is not made."""
        self._values[key].pop()

    def promise(self, sequence):
        """Everything up to ``sequence`` was answered."""
        for values in self._values.values():
            while len(values) > 1 and values[1][0] <= sequence:
                del values[0]

    def check(self, actual):
        """``actual``: key -> value of what was recovered."""
        for key in self._values.keys() | actual.keys():
            possible = [value for _, value in self._values.get(key, [(0, None)])]
            assert actual.get(key) in possible, f"{key} is {actual.get(key)}, may be {possible}"

    def start_anew(self, actual):
        self._values = {key: [(self.sequence, value)] for key, value in actual.items()}


class World:
    """The account of a broker: its definitions, and an Account of messages per queue incarnation.

    Copied at every cut.
    """

    def __init__(self):
        self.definitions = Definitions()
        self.accounts = {}  # incarnation -> Account

    def copy(self):
        other = World()
        other.definitions = self.definitions.copy()
        other.accounts = {incarnation: account.copy() for incarnation, account in self.accounts.items()}
        return other

    def check(self, life, power_cut):
        """Compare a fresh boot with what may be. Takes every message out of every queue and puts it back."""
        self.definitions.check(life.definitions())
        assert life.broker.damage()[0] == 0, "reported as damage"
        for queue in life.vhost.queues.values():
            # one whose declare was not answered may be there, with nothing in it
            account = self.accounts.get(life.vhost.incarnation_of(queue)) or Account()
            account.check(life.look(queue), power_cut=power_cut)

    def start_anew(self, life):
        self.definitions.start_anew(life.definitions())
        for queue in life.vhost.queues.values():
            self.accounts[life.vhost.incarnation_of(queue)].start_anew(life.look(queue))


class Life:
    """One process: a booted broker."""

    def __init__(self, root, files):
        self.files = files
        self.data_dir = DataDir(root, files, lock=False).open()
        self.committer = GroupCommit(files)
        self.hub = Hub(SETTINGS)
        self.broker = Broker(self.data_dir, files, Durability(self.committer), SETTINGS, self.hub)
        self.broker.recover()
        self.vhost = self.broker.vhosts["/"]
        self.message = Message()

    def definitions(self):
        """What is declared, as the Definitions know it."""
        found = {
            ("queue", name): self.vhost.incarnation_of(queue) for name, queue in self.vhost.queues.items()
        }
        for name, exchange in self.vhost.exchanges.items():
            if name in EXCHANGES:
                found["exchange", name] = exchange.type
                for binding in exchange.bindings():
                    found["binding", name, binding.destination.name, binding.routing_key] = True
        return found

    def take(self, queue):
        """(number, location, redelivered) of the queue's next message, or None."""
        if not get(queue, self.message):
            return None
        fields = self.message.describe()
        return number_in(self.message.get_body()), fields["location"], fields["redelivered"]

    def look(self, queue):
        """(number, redelivered) of everything ready; it goes back."""
        taken = []
        while (one := self.take(queue)) is not None:
            taken.append(one)
        for _, location, _ in taken:
            queue.requeue(location)
        return [(number, redelivered) for number, _, redelivered in taken]

    def kill(self):
        """The process dies: its files, its flushes and its timers do nothing any more."""
        self.files.switch_off()
        self.hub.close()
        self.committer.kill()

    def stop(self):
        """An orderly end."""
        self.broker.close()
        self.committer.stop()
        self.hub.close()
        self.data_dir.close(in_order=not self.committer.has_failed)


def check_folder(root, world, files=None):
    """Boot in ``root`` and compare; ``files`` that are given are switched off at the end,
    as a process that dies.
    """
    life = Life(root, files or Unflushed())
    world.check(life, power_cut=True)
    if files is None:
        life.stop()
    else:
        life.kill()


class Driver:
    """Random declares, binds, deletes, publishes, acks, requeues and purges."""

    def __init__(self, disk, random, world, on_call=None, listeners=(), operations=None):
        self.operations = operations or EVERYTHING
        self.disk = disk
        self.random = random
        self.world = world
        self.on_call = on_call
        self.listeners = listeners
        self.in_hand = {}  # queue -> {number: location}
        self.number = 0
        self.begin()

    def begin(self):
        self.files = PowerCutFiles(
            self.disk, self.on_call, lambda path: give_way(self.random), self.listeners
        )
        self.life = Life(self.disk.root, self.files)
        self.world.check(self.life, power_cut=False)
        self.world.start_anew(self.life)
        self.in_hand = {}
        self.purged = {}  # incarnation of a queue -> numbers, until the purge is answered
        # what the last life wrote and this boot does not show is gone or acked, perhaps in the cache only:
        # nothing is promised about it
        self.first = self.number

    def kill(self):
        self.life.kill()
        for listener in self.listeners:
            listener.follow_again()
        self.begin()

    def stop_and_start(self, between=lambda: None):
        self.life.stop()
        between()
        self.world.definitions.promise(self.world.definitions.sequence)
        for account in self.world.accounts.values():
            account.settled |= account.acked
        self.begin()

    def work(self, steps):
        scheduler = self.life.broker.scheduler
        for step in range(steps):
            scheduler.begin(step + 1)
            for _ in range(self.random.randrange(1, 8)):
                self.random.choice(self.operations)(self)
            scheduler.finish()
            for incarnation, account in self.world.accounts.items():
                account.settled |= account.acked - self.purged.get(incarnation, set())
            if self.random.random() < 0.4:
                self.ask_for_sync()
            for _ in range(self.random.randrange(4)):
                gevent.sleep(0)

    def ask_for_sync(self):
        """As a door does before it answers anything durable."""
        world, files = self.world, self.files
        sequence = world.definitions.sequence
        published = {
            incarnation: {
                number for number in account.given if number >= self.first and is_persistent(number)
            }
            for incarnation, account in world.accounts.items()}
        purged = {incarnation: set(numbers) for incarnation, numbers in self.purged.items()}

        def answered(error):
            assert error is None or files.off, error
            if error is None:
                world.definitions.promise(sequence)
                for incarnation, numbers in published.items():
                    world.accounts[incarnation].confirmed |= numbers
                for incarnation, numbers in purged.items():
                    self.purged.get(incarnation, set()).difference_update(numbers)

        self.life.committer.after_sync(answered)

    def account(self, queue):
        return self.world.accounts[self.life.vhost.incarnation_of(queue)]

    def some_queue(self):
        queues = list(self.life.vhost.queues.values())
        return self.random.choice(queues) if queues else None

    # operations

    def declare_queue(self):
        queue, created = self.life.vhost.declare_queue(self.random.choice(QUEUES), durable=True)
        if created:
            incarnation = self.life.vhost.incarnation_of(queue)
            self.world.definitions.set(("queue", queue.name), incarnation)
            self.world.accounts[incarnation] = Account()

    def delete_queue(self):
        queue = self.some_queue()
        if queue is not None and self.random.random() < 0.3:
            bound = [key for key in self.life.definitions() if key[0] == "binding" and key[2] == queue.name]
            self.in_hand.pop(queue, None)
            # Accounted before it is done: between the record and the end of the call the store writes,
            # and the power may go then.
            for key in [("queue", queue.name), *bound]:
                self.world.definitions.set(key, None)
            self.life.vhost.delete_queue(queue.name)

    def declare_exchange(self):
        name = self.random.choice(list(EXCHANGES))
        if name not in self.life.vhost.exchanges:
            self.life.vhost.declare_exchange(name, EXCHANGES[name], durable=True)
            self.world.definitions.set(("exchange", name), EXCHANGES[name])

    def delete_exchange(self):
        name = self.random.choice(list(EXCHANGES))
        if name in self.life.vhost.exchanges and self.random.random() < 0.2:
            bound = [key for key in self.life.definitions() if key[0] == "binding" and key[1] == name]
            for key in [("exchange", name), *bound]:
                self.world.definitions.set(key, None)
            self.life.vhost.delete_exchange(name)

    def bind(self):
        queue, name, key = self.some_queue(), self.random.choice(list(EXCHANGES)), self.random.choice(KEYS)
        if queue is not None and name in self.life.vhost.exchanges:
            if self.random.random() < 0.7:
                if self.life.vhost.bindings.bind_queue(queue.name, name, key):
                    self.world.definitions.set(("binding", name, queue.name, key), True)
            elif self.life.vhost.bindings.unbind_queue(queue.name, name, key):
                self.world.definitions.set(("binding", name, queue.name, key), None)

    def publish(self):
        vhost = self.life.vhost
        for _ in range(self.random.choice((1, 1, 5, 20))):
            exchange = vhost.exchanges[
                self.random.choice([name for name in EXCHANGES if name in vhost.exchanges] + [""])
            ]
            key = self.random.choice(QUEUES if not exchange.name else KEYS)
            number, self.number = self.number, self.number + 1
            persistent = is_persistent(number)
            routing_key = key.encode()
            self.life.message.assign(
                exchange.name.encode(), routing_key, PROPERTIES[persistent], body_of(number, size_of(number)),
                number + 1, 0, 0, persistent)
            for queue in vhost.route(exchange, key):
                account = self.account(queue)
                account.given.add(number)
                account.published = number + 1
                assert queue.publish(self.life.message) == 1

    def take(self):
        queue = self.some_queue()
        if queue is None:
            return
        for _ in range(self.random.choice((1, 3, 20))):
            one = self.life.take(queue)
            if one is None:
                return
            number, location, redelivered = one
            account = self.account(queue)
            assert redelivered or number not in account.received
            account.received.add(number)
            self.in_hand.setdefault(queue, {})[number] = location

    def settle(self):
        queue = self.some_queue()
        mine = self.in_hand.get(queue) or {}
        for number in self.random.sample(sorted(mine), min(len(mine), self.random.choice((1, 5, 40)))):
            self.account(queue).acked.add(number)
            queue.ack(mine.pop(number))

    def requeue(self):
        queue = self.some_queue()
        mine = self.in_hand.get(queue) or {}
        for number in self.random.sample(sorted(mine), min(len(mine), 3)):
            queue.requeue(mine.pop(number))

    def purge(self):
        queue = self.some_queue()
        if queue is not None and self.random.random() < 0.1:
            account = self.account(queue)
            ready = account.given - account.acked - set(self.in_hand.get(queue, ()))
            account.acked |= ready
            self.purged.setdefault(self.life.vhost.incarnation_of(queue), set()).update(ready)
            assert queue.purge() == len(ready)


TOPOLOGY = (
    Driver.declare_queue, Driver.declare_queue, Driver.delete_queue, Driver.declare_exchange,
    Driver.delete_exchange, Driver.bind, Driver.bind,
)
TRAFFIC = (
    Driver.publish, Driver.publish, Driver.publish, Driver.take, Driver.take, Driver.settle, Driver.settle,
    Driver.requeue, Driver.purge,
)
EVERYTHING = TOPOLOGY + TRAFFIC
