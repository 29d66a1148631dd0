"""A scenario on one store, with the N-th call of the file seam failing, for every N and every way to fail;
then two recoveries with a sound disk.

An error may refuse a message, close the queue or refuse to boot. It may not lose what was confirmed, bring
back what was acked, or confirm anything that a flush did not cover.
"""
import errno

import gevent
import pytest

from gomq_py.storage.errors import StoreError, StoreFull
from gomq_py.storage.flush import group_commit
from tests.durability import flush_pool
from tests.durability.account import Account
from tests.durability.store_driver import Life, found_in, is_persistent
from tests.support.faulty_files import FaultyFiles
from tests.support.waiting import wait_until


@pytest.fixture(autouse=True)
def the_same_calls_in_every_run(monkeypatch):
    """Flushes in greenlets, and none that time alone brings about:
    the N-th call is the same one however long a run takes.
    """
    flush_pool.use(monkeypatch)
    monkeypatch.setattr(group_commit, "UNHURRIED_S", 3600)


class Scenario:
    """Two lives over rolls, acks of whole segments, requeues, a purge and a restart; the account is what was
    answered before the fault hit.
    """

    def __init__(self, root, fail_at, how, error):
        self.account = Account()
        self.root = root
        self.refused = 0
        self.ended = False
        self.files = FaultyFiles(fail_at, how, error)
        root.mkdir()

    def run(self):
        """Until the end, or until the store or the boot gives up."""
        try:
            self.first_life()
            self.second_life()
            self.ended = True
        except (StoreError, OSError):
            assert self.files.failed is not None
        return self.files

    def first_life(self):
        life = Life(self.root, self.files)
        self.publish(life, 40)
        self.sync(life)
        taken = [life.take() for _ in range(min(30, life.store.ready_count))]
        self.settle(life)
        for number, location, _, _ in taken[:25]:
            self.account.acked.add(number)
            life.store.delete(location)
        for _, location, _, _ in taken[25:]:
            life.store.requeue(location)
        self.settle(life)
        self.publish(life, 60)
        self.sync(life)
        life.stop()

    def second_life(self):
        life = Life(self.root, self.files)
        self.publish(life, 30)
        self.sync(life)
        numbers = set(range(self.account.published)) - self.account.acked
        self.account.acked |= numbers
        life.store.purge()
        # as queue.purge-ok: files lose their names in a thread,
        # and may have held nothing that says it is gone
        if self.sync(life):
            self.settle(life)
        self.publish(life, 30)
        self.sync(life)
        life.stop()

    def publish(self, life, count):
        for _ in range(count):
            number, self.account.published = self.account.published, self.account.published + 1
            try:
                life.publish(number, is_persistent(number))
            except StoreFull:
                self.refused += 1
                self.account.acked.add(number)
        life.store.write_out()

    def settle(self, life):
        """The end of a batch: what was acked stays acked, unless the store is closed,
        which consumers would be told.
        """
        life.store.write_out()
        if life.store.failure is not None:
            raise life.store.failure
        self.account.settled |= self.account.acked

    def sync(self, life):
        """As a confirm: wait for the answer, whichever it is. Returns whether it is a good one."""
        covered = {number for number in range(self.account.published) if is_persistent(number)}
        answers = []
        life.committer.after_sync(answers.append)
        wait_until(lambda: answers, sleep=gevent.sleep)
        if answers[0] is None:
            self.account.confirmed |= covered
        return answers[0] is None


@pytest.mark.parametrize("how, error", [
    ("fail", errno.EIO), ("fail", errno.ENOSPC), ("after", errno.EIO), ("dead", errno.EIO), ("slow", None),
], ids=["EIO", "ENOSPC", "EIO-after", "dead", "slow"])
def test_a_fault_at_every_seam_call_breaks_no_promise(tmp_path, how, error):
    whole = Scenario(tmp_path / "whole", None, how, error).run().calls
    calls = len(whole)
    assert calls > 40 and ("make", "msgs.0000000001") in whole, "segments are made ahead in it"

    for fail_at in range(1, calls + 1):
        scenario = Scenario(tmp_path / f"{fail_at}", fail_at, how, error)
        scenario.run()
        assert scenario.files.failed is not None
        assert how != "slow" or scenario.ended and not scenario.refused, "a slow disk is no failing one"
        for _ in range(2):
            found = found_in(scenario.root)
            scenario.account.check([(number, redelivered) for number, redelivered, _ in found])


def test_nothing_is_confirmed_while_a_flush_hangs(tmp_path, monkeypatch):
    """A disk that hangs delays confirms; it does not stop the hub, and it is not taken for success."""
    monkeypatch.undo()
    files = FaultyFiles()
    life = Life(tmp_path, files)
    files.how, files.fail_at = "hold", len(files.calls) + 1
    while_hanging, answers = [], []
    life.publish(0, True)
    files.fail_at = len(files.calls) + 1

    life.committer.after_sync(answers.append)
    for _ in range(20):
        gevent.sleep(0)
        while_hanging.append(len(answers))
    files.resume.set()
    wait_until(lambda: answers, sleep=gevent.sleep)

    assert set(while_hanging) == {0} and answers == [None]
    life.stop()
