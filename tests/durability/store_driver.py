"""Drives one MessageStore on a modelled disk as a queue would, and keeps the account of it.

A Life is one process: files, committer, pool and store. It ends by ``kill``; the next Life opens what the
last one left. Between two batches the driver gives way, so that flushes run and call back.
"""
import os

import gevent

from gomq_py.storage.disk.data_dir import DataDir
from gomq_py.storage.errors import StoreError
from gomq_py.storage.flush.group_commit import GroupCommit
from gomq_py.storage.message import Message
from gomq_py.storage.segments.pool import SegmentPool
from gomq_py.storage.stores.recovery import open_store
from tests.durability.account import body_of, number_in
from tests.durability.flush_pool import give_way
from tests.support.power_cut import PowerCutFiles
from tests.support.unflushed import Unflushed

INCARNATION = b"0123456789abcdef"
SEGMENT_BYTES = 65536
LARGEST_BODY = 9000


class Life:
    """One process's store.

    ``found`` is what it held when it was opened, as numbers in order with their redelivered
    flags and delivery counts.
    """

    def __init__(self, root, files):
        self.files = files
        self.data_dir = DataDir(root, files, lock=False).open()
        self.committer = GroupCommit(files)
        self.timers = []
        self.pool = SegmentPool(
            self.data_dir.pool_folder, files, self.committer, segment_bytes=SEGMENT_BYTES,
            start_timer=lambda _, callback: self.timers.append(callback))
        folder = os.path.join(self.data_dir.queues_folder, "jobs")
        self.damaged = []  # (file name, start, end, records lost)
        self.store, self.report = open_store(
            folder, files, self.pool, self.committer, INCARNATION, SEGMENT_BYTES, listener=self
        )
        self.message = Message()

    def record_damaged(self, store, path, start, end, count):
        self.damaged.append((os.path.basename(path), start, end, count))

    def store_fenced(self, store, error):
        pass

    def publish(self, number, persistent, size=None):
        properties = b"\x10\x00\x02" if persistent else b"\x10\x00\x01"
        body = body_of(number, size_of(number) if size is None else size)
        self.message.assign(b"", b"jobs", properties, body, number + 1, 0, 0, persistent)
        self.store.append(self.message)

    def take(self):
        """(number, location, redelivered, delivery count) of the next message, or None."""
        if not self.store.peek(self.message):
            return None
        fields = self.message.describe()
        assert self.message.get_routing_key() == b"jobs" and fields["timestamp_ms"] > 0
        number = number_in(self.message.get_body())
        assert fields["timestamp_ms"] == number + 1
        self.store.shift()
        return number, fields["location"], fields["redelivered"], fields["delivery_count"]

    def take_all(self):
        taken = []
        while (one := self.take()) is not None:
            taken.append(one)
        assert self.store.ready_count == 0 and self.store.unacked_count == len(taken)
        return taken

    def rest(self):
        """The time comes that an empty store is looked at."""
        timers, self.timers[:] = list(self.timers), ()
        for callback in timers:
            callback()

    def stop(self):
        """An orderly end."""
        self.store.close()
        self.committer.stop()
        self.pool.close()


def size_of(number):
    return (1, 30, 200, 1000, 5000)[number * 7919 % 5] if number % 41 else LARGEST_BODY


def found_in(root, files=None):
    """What a store in ``root`` gives after a boot, as (number, redelivered, delivery count) in order.

    A crash is no disk fault: AssertionError when one is reported.
    """
    life = Life(root, files or Unflushed())
    taken = life.take_all()
    assert life.report.lost == 0 and not life.damaged, f"reported as damage: {life.report} {life.damaged}"
    if files is None:
        life.stop()
    else:
        files.switch_off()
        life.committer.kill()
    return [(number, redelivered, count) for number, _, redelivered, count in taken]


class Driver:
    """Random work on a Life, with the account of it.

    The model is exact: the store must give the lowest ready number each time.
    """

    def __init__(self, disk, random, account, on_call=None, fail_flush=None):
        """``fail_flush(path)`` is asked in the middle of every flush, and may raise OSError."""
        self.disk = disk
        self.random = random
        self.account = account
        self.on_call = on_call
        self.fail_flush = fail_flush
        self.failures = 0  # syncs that answered with an error
        self.life = None
        self.ready = set()
        self.in_hand = {}  # number -> location
        self.begin()

    def begin(self):
        """Boot, and adopt what is there."""
        self.life = self.boot()
        taken = self.life.take_all()
        found = [(number, redelivered) for number, _, redelivered, _ in taken]
        self.account.check(found)
        self.account.start_anew(found)
        for number, location, _, _ in taken:
            self.life.store.requeue(location)
        self.ready, self.in_hand, self.purged = {number for number, _ in found}, {}, set()
        # What the last life wrote and this boot does not show is gone or acked, perhaps in the cache only:
        # nothing is promised about it.
        self.first = self.account.published
        self.gone_before = set(self.account.acked)

    def boot(self):
        """A Life. Where flushes fail a boot may fail too; it is tried again, as an operator would."""
        for _ in range(100):
            files = PowerCutFiles(self.disk, self.on_call, self.flush_pause)
            try:
                return Life(self.disk.root, files)
            except (OSError, StoreError):
                if self.fail_flush is None:
                    raise
                files.switch_off()
        raise AssertionError("no boot in 100")

    def flush_pause(self, path):
        give_way(self.random)
        if self.fail_flush is not None:
            self.fail_flush(path)

    def kill(self):
        """The process dies between two batches; its pages stay in the cache."""
        self.life.files.switch_off()
        self.life.committer.kill()
        self.begin()

    def work(self, steps):
        """``steps`` batches, each of a few operations and the flush into the mappings that ends it."""
        for _ in range(steps):
            if self.life.store.failure is not None:
                assert self.fail_flush is not None, self.life.store.failure
                self.kill()
            for _ in range(self.random.randrange(1, 8)):
                self.random.choice(OPERATIONS)(self)
            self.life.store.write_out()
            self.account.settled |= self.account.acked - self.purged
            if self.random.random() < 0.5:
                self.ask_for_sync()
            for _ in range(self.random.randrange(4)):
                gevent.sleep(0)

    def ask_for_sync(self):
        """As a confirm does; the store is marked, as a transaction of acks would,
        so that its acks are covered too.
        """
        account, life = self.account, self.life
        acked, purged = account.acked - self.gone_before, set(self.purged)
        persistent = {number for number in range(self.first, account.published) if is_persistent(number)}

        def answered(error):
            assert error is None or life.files.off or self.fail_flush is not None, error
            self.failures += error is not None
            if error is None:
                account.confirmed |= persistent
                account.synced |= acked
                account.settled |= purged
                self.purged -= purged

        if self.random.random() < 0.5:
            life.committer.mark(life.store)
        else:
            acked = set()
        life.committer.after_sync(answered)

    # operations

    def publish(self):
        for _ in range(self.random.choice((1, 1, 1, 5, 30))):
            number = self.account.published
            self.account.published += 1
            self.life.publish(number, is_persistent(number))
            self.ready.add(number)

    def take(self):
        for _ in range(self.random.choice((1, 3, 20))):
            one = self.life.take()
            assert (one is None) == (not self.ready)
            if one is None:
                return
            number, location, redelivered, _ = one
            assert number == min(self.ready), f"{number} came before {min(self.ready)}"
            assert redelivered or number not in self.account.received
            self.ready.discard(number)
            self.in_hand[number] = location
            self.account.received.add(number)

    def acknowledge(self):
        count = self.random.choice((1, 1, 4, 40))
        numbers = sorted(self.in_hand)
        if numbers and self.random.random() < 0.5:
            start = self.random.randrange(len(numbers))
            numbers = numbers[start:start + count]
        else:
            numbers = self.random.sample(numbers, min(count, len(numbers)))
        self.delete(numbers)

    def delete(self, numbers):
        for number in numbers:
            self.account.acked.add(number)  # before: a cut in the middle of it may see it done
            self.life.store.delete(self.in_hand.pop(number))

    def requeue(self):
        for number in self.random.sample(
            sorted(self.in_hand), min(self.random.choice((1, 5)), len(self.in_hand))
        ):
            self.life.store.requeue(self.in_hand.pop(number))
            self.ready.add(number)

    def purge(self):
        if self.random.random() < 0.05:
            self.account.acked |= self.ready
            self.purged |= self.ready  # until it is answered, which waits for a sync
            assert self.life.store.purge() == len(self.ready)
            self.ready = set()

    def drain(self):
        """Take and ack everything, so that segments go and come back recycled."""
        if self.random.random() < 0.1:
            while self.ready:
                self.take()
            self.delete(sorted(self.in_hand))

    def rest(self):
        """Look twice at a store that may be empty: then it gives its segment back."""
        if self.random.random() < 0.3:
            if not self.ready and not self.in_hand:
                self.life.rest()
            self.life.rest()


OPERATIONS = (
    Driver.publish, Driver.publish, Driver.take, Driver.take, Driver.acknowledge, Driver.acknowledge,
    Driver.requeue, Driver.purge, Driver.drain, Driver.rest,
)


def is_persistent(number):
    return number % 10 != 3
