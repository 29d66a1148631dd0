"""The definitions log under power cuts, faults and second cuts: nothing promised is lost, order is kept, what
was dropped stays dropped.
"""
import errno
import os
from random import Random

import pytest

from gomq_py.storage.disk import atomic_file
from gomq_py.storage.logs.framed_log import FramedLog
from tests.durability.seeds import seeds
from tests.support.faulty_files import FaultyFiles
from tests.support.power_cut import Disk, PowerCutFiles
from tests.support.unflushed import Unflushed


class Account:
    """What a log must hold and may hold: records are numbers, appended in order,
    dropped from the front by a compaction.
    """

    def __init__(self):
        self.appended = 0  # records 0 to here were given to the log
        self.promised = set()  # were on disk when somebody was told so, or acted upon it
        self.gone = 0  # records below this are gone for good: a compaction without them is on disk

    def copy(self):
        other = Account()
        other.appended, other.promised, other.gone = self.appended, set(self.promised), self.gone
        return other

    def drop(self, number):
        """A compaction without the records below this has begun: they may be there or not."""
        self.promised = {kept for kept in self.promised if kept >= number}

    def check(self, found):
        assert found == sorted(set(found)), f"out of order or twice: {found}"
        assert not found or found[-1] < self.appended, "records nobody wrote"
        assert not [number for number in found if number < self.gone], "dropped records came back"
        missing = self.promised - set(found)
        assert not missing, f"promised records are lost: {sorted(missing)}"


def payload(number):
    return b"%d:" % number + b"x" * (number * 37 % 200)


def number_of(octets):
    number = int(octets.partition(b":")[0])
    assert octets == payload(number)
    return number


class Committer:
    """Flushes what was marked when the test says so, then answers those that had asked before,
    as storage.flush.group_commit does.
    """

    enabled = True

    def __init__(self, files):
        self.files = files
        self.marked, self.waiting = {}, []
        self.failure = None

    def mark_file(self, file):
        if file not in self.marked:
            file.retain()
            self.marked[file] = None

    def after_sync(self, callback):
        self.waiting.append(callback)

    def flush(self, meanwhile=None):
        """``meanwhile`` is called when the flushes have their content and before anybody is answered."""
        marked, waiting = self.marked, self.waiting
        self.marked, self.waiting = {}, []
        try:
            for file in marked:
                self.files.sync_log(file)
        except OSError as failure:
            self.failure = failure
        for file in marked:
            file.release()
        if meanwhile is not None:
            meanwhile()
        for callback in waiting:
            callback(self.failure)


def open_log(files, folder, committer=None):
    """(log, numbers it held) as a boot does it."""
    log = FramedLog(files, os.path.join(folder, "definitions"), committer=committer)
    numbers = [number_of(octets) for octets in log.replay()]
    assert not any(damage.promised for damage in log.damage), log.damage
    atomic_file.sweep(files, folder)
    files.sync_folder(folder)
    return log, numbers


def work(files, folder, random, account, steps):
    """Append, flush, compact and be killed for a while.

    What a restart after a kill finds is acted upon, so it is promised.
    """
    committer = Committer(files)
    log, numbers = open_log(files, folder, committer)
    held = set(numbers)  # what this process has in its log, flushed or not

    def append():
        start = account.appended
        account.appended += random.choice((1, 1, 2, 5))
        log.append_all([payload(number) for number in range(start, account.appended)])
        held.update(range(start, account.appended))

    for _ in range(steps):
        draw = random.random()
        if draw < 0.1:
            assert committer.failure is None or isinstance(files, FaultyFiles), committer.failure
            committer = Committer(files)
            log, numbers = open_log(files, folder, committer)
            account.promised.update(numbers)
            account.gone = numbers[0] if numbers else account.appended
            held = set(numbers)
            if draw < 0.04:
                dropped = random.randrange(account.gone, account.appended + 1)
                account.drop(dropped)
                held = {number for number in held if number >= dropped}
                log.rewrite([payload(number) for number in sorted(held)])
                Promise(account, held, dropped)(None)
        elif draw < 0.6:
            append()
        else:
            committer.after_sync(Promise(account, held))
            committer.flush(append if random.random() < 0.5 else None)
    log.close()


class Promise:
    """What an answer promises: every record in the log when it was asked for;
    with ``gone``, that the records below are gone for good.
    """

    def __init__(self, account, records, gone=0):
        self.account = account
        self.records = frozenset(records)
        self.gone = gone

    def __call__(self, error):
        if error is None:
            self.account.promised.update(self.records)
            self.account.gone = max(self.account.gone, self.gone)


def cut_often(root, random, share, run, account, target):
    """Run with cuts before seam calls; returns [(folder, account of that moment)]."""
    taken = []

    def on_call(call, path):
        if random.random() < share:
            taken.append((disk.cut(f"{target}-{len(taken)}"), account.copy()))

    disk = Disk(root, random)
    run(PowerCutFiles(disk, on_call=on_call))
    disk.discard()
    return taken


@pytest.mark.parametrize("seed", seeds(12))
def test_cuts_lose_nothing_promised_and_neither_do_cuts_of_the_recovery(tmp_path, seed):
    random = Random(seed)
    (tmp_path / "data").mkdir()
    account = Account()

    first = cut_often(
        tmp_path / "data", random, 0.1, lambda files: work(files, tmp_path / "data", random, account, 120),
        account, tmp_path / "cut",
    )
    assert first

    for folder, then in first:
        second = cut_often(
            folder, random, 0.5, lambda files: recover_and_go_on(files, folder, then), then, f"{folder}-again"
        )
        for again, later in second:
            log, numbers = open_log(Unflushed(), again)
            later.check(numbers)
            log.close()


def recover_and_go_on(files, folder, account):
    """A boot after a cut, one more record, and a flush for it.

    What the boot found is what exists from here on.
    """
    log, numbers = open_log(files, folder)
    account.check(numbers)
    account.promised.update(numbers)  # the broker acts upon what it found
    account.appended += 1
    log.append(payload(account.appended - 1))
    files.sync(log.file)
    account.promised.add(account.appended - 1)
    log.close()


@pytest.mark.parametrize("how", ["fail", "short", "after", "dead"])
def test_a_fault_at_every_seam_call_loses_nothing_promised(tmp_path, how):
    calls = len(run_until_fault(tmp_path, None, how, Account()).calls)

    for fail_at in range(1, calls + 1):
        account = Account()
        folder = tmp_path / f"{how}-{fail_at}"
        files = run_until_fault(folder, fail_at, how, account)
        assert files.failed is not None
        for _ in range(2):
            log, numbers = open_log(Unflushed(), folder)
            account.check(numbers)
            log.close()


def run_until_fault(folder, fail_at, how, account):
    folder.mkdir(exist_ok=True)
    files = FaultyFiles(fail_at, how, errno.ENOSPC)
    try:
        work(files, folder, Random(5), account, 40)
    except OSError as error:
        assert error.errno == errno.ENOSPC and error.filename
    return files
