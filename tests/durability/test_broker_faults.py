"""A broker below its doors, with the N-th call of the file seam failing, for every N.

Declares and deletes may be refused, queues may close, a boot may be given up; what was answered stays true
for two boots with a sound disk.
"""
import errno

import gevent
import pytest

from gomq_py.errors import Refused
from gomq_py.storage.errors import StoreError
from gomq_py.storage.logs.framed_log import LogError
from tests.durability import flush_pool
from tests.durability.account import Account, body_of
from tests.durability.broker_driver import PROPERTIES, Life, World, check_folder
from tests.support.faulty_files import FaultyFiles
from tests.support.waiting import wait_until

REFUSALS = (Refused, StoreError, LogError, OSError)


@pytest.fixture(autouse=True)
def flushes_in_greenlets(monkeypatch):
    flush_pool.use(monkeypatch)


class Scenario:
    """Two boots with declares, a binding, traffic on two queues, and the delete of one."""

    def __init__(self, root, fail_at, how):
        root.mkdir()
        self.root = root
        self.world = World()
        self.files = FaultyFiles(fail_at, how, errno.ENOSPC)
        self.life = None
        self.number = 0

    def run(self):
        self.refusals = 0
        for step in (
            self.boot, self.declare, self.traffic, self.delete, self.stop, self.boot, self.traffic, self.stop
        ):
            try:
                step()
            except REFUSALS:
                self.refusals += 1
                if self.life is None or not self.life.broker:
                    return self.files
        return self.files

    def boot(self):
        self.life = None
        self.life = Life(self.root, self.files)

    def stop(self):
        self.life.stop()

    def declare(self):
        vhost, definitions = self.life.vhost, self.world.definitions
        for name in ("q0", "q1"):
            queue, _ = vhost.declare_queue(name, durable=True)
            incarnation = vhost.incarnation_of(queue)
            self.world.accounts[incarnation] = Account()
            definitions.set(("queue", name), incarnation)
        self.change({("exchange", "x1"): "fanout"}, vhost.declare_exchange, "x1", "fanout", True)
        for name in ("q0", "q1"):
            self.change({("binding", "x1", name, ""): True}, vhost.bindings.bind_queue, name, "x1", "")
        self.answer()

    def change(self, values, verb, *arguments):
        for key, value in values.items():
            self.world.definitions.set(key, value)
        try:
            verb(*arguments)
        except Refused:
            for key in values:
                self.world.definitions.withdraw(key)
            raise

    def delete(self):
        self.change(
            {("queue", "q1"): None, ("binding", "x1", "q1", ""): None}, self.life.vhost.delete_queue, "q1"
        )
        self.answer()

    def traffic(self):
        vhost, scheduler = self.life.vhost, self.life.broker.scheduler
        if "x1" not in vhost.exchanges:
            return
        scheduler.begin(1)
        for _ in range(25):
            number, self.number = self.number, self.number + 1
            self.life.message.assign(b"x1", b"", PROPERTIES[True], body_of(number, 3000), 1, 0, 0, True)
            for queue in vhost.route(vhost.exchanges["x1"], ""):
                account = self.account(queue)
                account.given.add(number)
                account.published = number + 1
                if not queue.publish(self.life.message):
                    account.acked.add(number)
        for queue in vhost.queues.values():
            for _ in range(10):
                one = self.life.take(queue)
                if one is not None:
                    self.account(queue).acked.add(one[0])
                    queue.ack(one[1])
        scheduler.finish()
        self.answer()

    def account(self, queue):
        return self.world.accounts[self.life.vhost.incarnation_of(queue)]

    def answer(self):
        """Wait for the sync a door waits for, and believe it if it was one."""
        sequence, answers = self.world.definitions.sequence, []
        given = {incarnation: set(account.given) for incarnation, account in self.world.accounts.items()}
        self.life.committer.after_sync(answers.append)
        wait_until(lambda: answers, sleep=gevent.sleep)
        if answers[0] is None:
            self.world.definitions.promise(sequence)
            for incarnation, numbers in given.items():
                self.world.accounts[incarnation].confirmed |= numbers


@pytest.mark.parametrize("how", ["fail", "short", "after", "dead"])
def test_a_fault_at_every_seam_call_of_a_broker_breaks_no_promise(tmp_path, how):
    calls = len(Scenario(tmp_path / "whole", None, how).run().calls)
    assert calls > 60

    for fail_at in range(1, calls + 1):
        scenario = Scenario(tmp_path / f"{fail_at}", fail_at, how)
        scenario.run()
        # What is removed in slices may be left to the next boot:
        # then there are fewer calls than in the whole run.
        assert scenario.files.failed is not None or len(scenario.files.calls) < fail_at
        for _ in range(2):
            check_folder(scenario.root, scenario.world)


@pytest.mark.parametrize("how", ["little", "slow"])
def test_a_system_that_takes_little_or_its_time_at_any_seam_call_refuses_nothing(tmp_path, how):
    calls = len(Scenario(tmp_path / "whole", None, how).run().calls)

    for at in range(1, calls + 1):
        scenario = Scenario(tmp_path / f"{at}", at, how)
        scenario.run()
        assert (
            scenario.refusals == 0 and (scenario.files.failed is not None or len(scenario.files.calls) < at)
        )
        for _ in range(2):
            check_folder(scenario.root, scenario.world)
