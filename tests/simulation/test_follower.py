"""The follower of the simulation: what it has of what it is told, when it answers, and what is found."""
import os
from types import SimpleNamespace

import pytest

from gomq_py.storage.disk.files import Files
from tests.simulation.clock import CLOCK
from tests.simulation.follower import Follower
from tests.simulation.ledger import TopicLedger
from tests.simulation.process import Process
from tests.simulation.world import World
from tests.support.mirror import folder_content

ENOUGH_S = 60.0


class Leader:
    """A folder, and the files of a process over it that tells a follower."""

    has_failed_disk = False
    is_alive = True

    def __init__(self, world, path):
        self.world = world
        self.root = path / "data"
        self.root.mkdir()
        (self.root / "before").write_bytes(b"was there")
        (self.root / ".last-run").write_bytes(b"of this machine")
        self.machine = SimpleNamespace(disk=SimpleNamespace(root=str(self.root)), follower=None)
        self.follower = self.machine.follower = Follower(world, str(path))
        self.follower.begin(self)
        self.files = Files((self.follower,))
        self.after = world.after

    def __str__(self):
        return "leader"

    def write(self, name, octets=b"x" * 10):
        """A new file that holds them."""
        file = self.files.create(self.root / name, len(octets))
        file.map[:] = octets
        self.files.appended(file, 0, len(octets))
        file.close()

    def ask(self, callback):
        """Ask the follower for all that it was told until now."""
        self.follower.when_safe(self.files.register.told, callback)

    def work(self):
        """Some of each kind of event."""
        self.files.make_folder(self.root / "folder")
        for number in range(20):
            self.write(f"folder/{number}")
        self.files.rename(self.root / "folder" / "1", self.root / "renamed")
        self.files.unlink(self.root / "folder" / "2")
        log = self.files.open_log(self.root / "log")
        self.files.append(log, b"some")
        self.files.append(log, b" more")
        self.files.truncate(log, 4)
        log.close()


@pytest.fixture(params=range(5))
def leader(request, tmp_path, monkeypatch):
    monkeypatch.setattr(CLOCK, "now_s", 0.0)
    return Leader(World(request.param), tmp_path)


def findings(leader):
    return [finding.split(": ", 1)[1] for finding in leader.world.findings]


def copy_of(leader):
    return folder_content(leader.follower._mirror.copy)


def test_copy_is_like_the_folder_once_everything_has_come(leader):
    leader.work()
    assert copy_of(leader) == {"before": b"was there"}

    leader.world.run(ENOUGH_S)

    assert copy_of(leader) == folder_content(leader.root)
    assert Process.compare_copy(leader) and not findings(leader)


def test_copy_that_is_not_like_the_folder_is_found(leader):
    leader.work()
    (leader.root / "log").write_bytes(b"nobody was told")

    Process.compare_copy(leader)

    assert findings(leader) == ["leader and its follower have two versions of log"]


def test_answer_comes_when_everything_has_come_that_was_told_before(leader):
    seen = []
    for number in range(10):
        leader.write(str(number))
        leader.ask(lambda error, number=number: seen.append((number, error, copy_of(leader))))

    leader.world.run(ENOUGH_S)

    assert [(number, error) for number, error, _ in seen] == [(number, None) for number in range(10)]
    for number, _, content in seen:
        assert content.keys() >= {str(before) for before in range(number + 1)}


def test_who_takes_over_has_what_was_answered_and_nothing_behind_what_it_lacks(leader, tmp_path):
    answered = []
    for number in range(100):
        leader.write(f"{number:02}")
        leader.ask(lambda error, number=number: answered.append(number))
        leader.world.run(leader.world.now_s + 1e-3)

    leader.is_alive = False
    leader.follower.take_over(str(tmp_path / "taken"))

    content = folder_content(tmp_path / "taken")
    names = sorted(content.keys() - {"before"})
    assert names == [f"{number:02}" for number in range(len(names))]
    assert len(names) > max(answered, default=-1)
    assert set([content[name] for name in names][:-1]) <= {b"x" * 10}
    assert ".last-run" not in os.listdir(tmp_path / "taken")


@pytest.mark.parametrize("has_failed", [False, True])
def test_event_that_cannot_be_repeated_is_found_unless_the_disk_has_failed(leader, has_failed):
    """Then the follower begins anew, and has all that there is."""
    leader.has_failed_disk = has_failed
    answers = []
    os.mkdir(leader.root / "untold")
    leader.write("untold/file")
    leader.ask(answers.append)

    leader.world.run(ENOUGH_S)

    assert bool(findings(leader)) is not has_failed
    assert answers == [None]
    if has_failed:
        assert copy_of(leader) == folder_content(leader.root)


@pytest.mark.parametrize("how, is_found", [("power_was_cut", False), ("leader_was_lost", True)])
def test_message_that_comes_twice_at_qos_2_over_the_loss_of_a_leader_is_found(how, is_found):
    world = World(1)
    ledger = TopicLedger(world, "t")
    number, _ = ledger.publish_at(2)
    ledger.deliver(number, 2, None)

    ledger.process_ended()
    getattr(ledger, how)()
    ledger.deliver(number, 2, None)

    assert bool(world.findings) is is_found
    assert ledger.exercised["once over a loss"] == is_found
