"""A whole broker below its doors under power cuts and kills: topology and messages, at any moment of
declaring, binding, deleting and traffic.

Each seed is one run of several processes on one modelled disk, with cuts at random seam calls; every cut is
booted with the power cut again during that boot. A mirror listens all the while and must end up with the same
folder.
"""
import os
from itertools import count
from random import Random

import gevent
import pytest
from gevent.event import AsyncResult, Event

from gomq_py.broker.routing.route import LATER
from tests.durability import flush_pool
from tests.durability.account import body_of
from tests.durability.broker_driver import EVERYTHING, PROPERTIES, TOPOLOGY, Driver, Life, World, check_folder
from tests.durability.seeds import seeds
from tests.support.jobs import Doing
from tests.support.mirror import Mirror
from tests.support.power_cut import Disk, PowerCutFiles
from tests.support.waiting import in_time

SECOND_CUT_SHARE = 0.07
# A run goes on until there are so many cuts: how many calls it makes is a matter of time, too.
ROUNDS, FEWEST_CUTS = 3, 10
# So many are booted, drawn from all: on a slow day a run makes five times as many calls.
MOST_CUTS, MOST_CUTS_AGAIN = 30, 15


@pytest.fixture(autouse=True)
def flushes_in_greenlets(monkeypatch):
    flush_pool.use(monkeypatch)


def cutter(disk, world, target, random, share, taken):
    def on_call(call, path):
        if random.random() < share:
            taken.append((disk.cut(f"{target}-{len(taken)}"), world.copy()))
    return on_call


def some(random, cuts, most):
    return random.sample(cuts, min(most, len(cuts)))


def check_cut_twice(folder, world, random):
    disk, taken = Disk(folder, random), []
    check_folder(
        folder, world,
        PowerCutFiles(disk, cutter(disk, world, f"{folder}-again", random, SECOND_CUT_SHARE, taken)),
    )
    taken = some(random, taken, MOST_CUTS_AGAIN)
    taken.append((disk.cut(f"{folder}-end"), world))
    for again, then in taken:
        check_folder(again, then)
    disk.discard()


@pytest.mark.timeout(400)
@pytest.mark.parametrize("seed", seeds(4))
@pytest.mark.parametrize(
    "operations, share", [(TOPOLOGY, 0.1), (EVERYTHING, 0.01)], ids=["topology", "everything"]
)
def test_power_cuts_at_any_moment_and_in_the_boot_after(tmp_path, seed, operations, share):
    random = Random(seed)
    (tmp_path / "data").mkdir()
    disk, world, taken = Disk(tmp_path / "data", random), World(), []
    mirror = Mirror(tmp_path / "data", tmp_path / "mirror")

    driver = Driver(
        disk, random, world, cutter(disk, world, tmp_path / "cut", random, share, taken), (mirror,),
        operations,
    )
    for round_ in count(1):
        driver.work(80)
        driver.kill()
        driver.work(20)
        driver.stop_and_start()
        if round_ >= ROUNDS and len(taken) > FEWEST_CUTS:
            break
    driver.life.stop()
    disk.discard()

    assert mirror.differences() == []
    for folder, then in some(random, taken, MOST_CUTS):
        check_cut_twice(folder, then, random)


@pytest.mark.parametrize(
    "arguments", [{}, {"x-max-priority": 3}, {"x-queue-type": "stream"}],
    ids=["classic", "priority", "stream"],
)
def test_folder_that_a_thread_made_is_on_the_disk_with_the_first_confirm(tmp_path, arguments):
    (tmp_path / "data").mkdir()
    disk = Disk(tmp_path / "data", Random(1), write_back=0)
    life = Life(disk.root, PowerCutFiles(disk))
    queue, _ = life.vhost.declare_queue("q0", durable=True, arguments=arguments)
    life.message.assign(b"", b"q0", PROPERTIES[True], b"one", 1, 0, 0, True)
    life.message.may_wait = True
    life.broker.scheduler.begin(1)
    while (answer := queue.publish(life.message)) == LATER:
        made = AsyncResult()
        life.message.lacking(made.set)
        assert made.get(timeout=in_time(60)) is None
    assert answer == 1
    life.broker.scheduler.finish()
    life.committer.wait()

    on_disk = disk.lay_out_flushed(tmp_path / "cut")
    life.kill()
    disk.discard()

    assert [
        name
        for _, _, names in os.walk(os.path.join(on_disk, "queues")) for name in names
        if name.startswith("msgs")
    ]


def test_message_that_cannot_wait_may_come_while_a_thread_makes_the_folder(tmp_path):
    """And who follows the files hears of the folder before what is in it."""
    (tmp_path / "data").mkdir()
    disk, is_made, may_go_on = Disk(tmp_path / "data", Random(1)), Event(), Event()
    mirror = Mirror(tmp_path / "data", tmp_path / "mirror")

    def pause(path):
        if os.path.basename(os.path.dirname(path)) == "queues":
            is_made.set()
            assert may_go_on.wait(in_time(60))

    life = Life(disk.root, PowerCutFiles(disk, flush_pause=pause, listeners=(mirror,)))
    queue, _ = life.vhost.declare_queue("q0", durable=True)
    life.committer.wait()
    life.message.assign(b"", b"q0", PROPERTIES[True], b"one", 1, 0, 0, True)
    life.message.may_wait = True
    life.broker.scheduler.begin(1)
    assert queue.publish(life.message) == LATER
    life.message.lacking(lambda error: None)
    assert is_made.wait(in_time(60))

    life.message.may_wait = False
    assert queue.publish(life.message) == 1

    may_go_on.set()
    life.broker.scheduler.finish()
    life.committer.wait()
    life.stop()
    disk.discard()
    assert mirror.differences() == []


def test_killed_broker_does_nothing_more(tmp_path):
    """Or a timer of the dead would write into the mapped files of those who come after."""
    (tmp_path / "data").mkdir()
    disk, done = Disk(tmp_path / "data", Random(1)), []
    life = Life(disk.root, PowerCutFiles(disk))
    life.broker.scheduler.start(Doing(lambda: done.append("a slice")))
    life.hub.timers.start(0, lambda: done.append("a timer"))

    life.kill()
    life.broker.scheduler.start(Doing(lambda: done.append("a later slice")))
    life.hub.timers.start(0, lambda: done.append("a later timer"))
    for _ in range(3):
        gevent.sleep(0)

    disk.discard()
    assert done == []


def test_kill_that_undoes_a_deletion_does_not_undo_the_acks_before_it(tmp_path):
    (tmp_path / "data").mkdir()
    disk = Disk(tmp_path / "data", Random(1))
    life = Life(disk.root, PowerCutFiles(disk))
    scheduler, queue = life.broker.scheduler, life.vhost.declare_queue("q", durable=True)[0]
    scheduler.begin(1)
    for number in range(2):
        life.message.assign(b"", b"q", PROPERTIES[True], body_of(number, 100), 1, 0, 0, True)
        assert queue.publish(life.message) == 1
    scheduler.finish()
    life.committer.wait()

    scheduler.begin(2)
    queue.ack(life.take(queue)[1])
    life.vhost.delete_queue("q")
    scheduler.finish()
    life.kill()

    again = Life(disk.root, PowerCutFiles(disk))
    assert [number for number, _ in again.look(again.vhost.queues["q"])] == [1]
    again.stop()
    disk.discard()
