"""The watch: when it raises and lifts alarms, how often it looks,
and what it does when the file system does not answer.
"""
import logging
from threading import Event

import gevent
import pytest

from gomq_py.broker.signals import resource_watch
from gomq_py.broker.signals.alarms import Alarms
from gomq_py.broker.signals.resource_watch import ResourceWatch
from gomq_py.config.settings import Settings
from tests.support.waiting import in_time, wait_until

MIB, GIB = 1 << 20, 1 << 30


class Machine:
    """What the watch sees."""

    def __init__(self):
        self.used, self.total = 100 * MIB, 1000 * MIB
        self.free = 100 * GIB
        self.given_back = self.looks = 0
        self.stuck = None
        self.folder = (1, 2)

    def used_memory(self):
        return self.used

    def total_memory(self):
        return self.total

    def free_disk(self, path):
        self.looks += 1
        if self.stuck is not None:
            self.stuck.wait(in_time(60))
        if isinstance(self.free, OSError):
            raise self.free
        return self.free, 200 * GIB

    def identity(self, path):
        return self.folder

    def give_memory_back(self):
        self.given_back += 1


@pytest.fixture
def machine():
    return Machine()


@pytest.fixture
def alarms():
    return Alarms()


@pytest.fixture
def settings():
    return Settings(segment_size=8 * MIB)


@pytest.fixture
def watch(alarms, settings, machine, monkeypatch):
    monkeypatch.setattr(resource_watch, "INTERVAL_MIN_S", 0.01)
    monkeypatch.setattr(resource_watch, "INTERVAL_MAX_S", 0.02)
    watch = ResourceWatch(alarms, settings, "/data", machine)
    yield watch
    watch.stop()


def soon(predicate):
    wait_until(predicate, sleep=gevent.sleep)


def test_memory_alarm_comes_and_goes_with_the_memory(watch, alarms, machine):
    watch.start()
    assert not alarms.is_on() and watch.memory_limit == 600 * MIB

    machine.used = 601 * MIB
    soon(lambda: alarms.reason == "low on memory")
    machine.used = 600 * MIB
    soon(lambda: not alarms.is_on())


def test_disk_alarm_comes_and_goes_with_the_disk(watch, alarms, machine, settings):
    settings.free_disk_min = GIB
    watch.start()
    assert not alarms.is_on()

    machine.free = GIB - 1
    soon(lambda: alarms.reason == "low on disk")
    machine.free = GIB
    soon(lambda: not alarms.is_on())


@pytest.mark.parametrize("minimum", [0, 1000])
def test_three_segments_are_always_needed(watch, alarms, machine, settings, minimum):
    settings.free_disk_min = minimum
    machine.free = 24 * MIB - 1
    watch.start()

    assert watch.disk_limit == 24 * MIB
    assert alarms.reason == "low on disk"


@pytest.mark.parametrize(("watermark", "limit"), [
    (0.25, 250 * MIB), (300 * MIB, 300 * MIB), (0, 0), (0.0, 0)
])
def test_watermark_is_a_share_or_octets(watch, alarms, machine, settings, watermark, limit):
    settings.memory_high_watermark = watermark
    machine.used = 999 * MIB
    watch.start()

    assert watch.memory_limit == limit
    assert alarms.is_on() == bool(limit)


def test_changed_limit_holds_at_the_next_look(watch, alarms, settings):
    watch.start()

    settings.free_disk_min = 101 * GIB
    soon(lambda: alarms.reason == "low on disk")
    settings.free_disk_min = 0
    soon(lambda: not alarms.is_on())


def test_limit_can_be_looked_at_at_once(watch, alarms, settings, monkeypatch):
    monkeypatch.setattr(resource_watch, "INTERVAL_MAX_S", 3600)
    monkeypatch.setattr(resource_watch, "INTERVAL_MIN_S", 3600)
    watch.start()
    gevent.sleep(0)
    settings.free_disk_min = 101 * GIB

    watch.look_now()

    soon(lambda: alarms.is_on())


def test_memory_is_given_back_while_its_alarm_is_on(watch, machine):
    watch.start()
    soon(lambda: machine.looks > 3)
    assert machine.given_back == 0

    machine.used = 900 * MIB
    soon(lambda: machine.given_back > 1)


def test_file_system_that_does_not_answer_is_told_of_and_memory_watched_on(
    watch, alarms, machine, monkeypatch, caplog
):
    monkeypatch.setattr(resource_watch, "DISK_PATIENCE_S", 0.01)
    watch.start()
    machine.stuck = Event()

    with caplog.at_level(logging.ERROR):
        soon(lambda: "has not answered" in caplog.text)
        machine.used = 900 * MIB
        soon(lambda: alarms.reason == "low on memory")
    assert caplog.text.count("has not answered") == 1
    machine.stuck.set()
    machine.free = 0
    soon(lambda: alarms.is_on("disk"))


def test_watch_outlives_an_error_of_the_file_system(watch, alarms, machine, caplog):
    watch.start()

    machine.free = OSError(5, "Input/output error")
    soon(lambda: "Input/output error" in caplog.text)
    machine.free = 0

    soon(lambda: alarms.is_on("disk"))


@pytest.mark.parametrize(
    "found, text", [(None, "/data is gone"), ((1, 3), "/data is not the folder any more")],
    ids=["removed", "replaced"],
)
def test_publishers_are_held_while_the_data_folder_is_gone(watch, alarms, machine, caplog, found, text):
    watch.start()
    opened, machine.folder = machine.folder, found

    soon(lambda: alarms.reason == "low on disk")
    assert text in caplog.text
    machine.folder = opened

    soon(lambda: alarms.reason is None)


def test_low_disk_is_warned_of_once(watch, machine, settings, caplog):
    settings.free_disk_warn = GIB
    machine.free = GIB - 1
    watch.start()
    soon(lambda: machine.looks > 3)

    assert caplog.text.count("publishers are held below 24.0 MiB") == 1


@pytest.mark.parametrize(("free", "used", "interval_s"), [
    (100 * GIB, 100 * MIB, 500 / 512), (100 * GIB, 600 * MIB, 0.25), (24 * MIB + GIB, 0, 600 / 512),
    (24 * MIB + 256 * MIB, 0, 0.5), (0, 0, 0.25),
])
def test_interval_is_the_shorter_the_nearer_a_limit(alarms, settings, machine, free, used, interval_s):
    machine.free, machine.used = free, used
    watch = ResourceWatch(alarms, settings, "/data", machine)
    watch.look_at_memory()
    watch.judge_disk(free, 200 * GIB)

    assert watch.interval_s() == interval_s


def test_idle_machine_is_looked_at_every_five_seconds(alarms, settings, machine):
    machine.total = 100 * GIB
    watch = ResourceWatch(alarms, settings, "/data", machine)
    watch.look_at_memory()
    watch.judge_disk(100 * GIB, 200 * GIB)

    assert watch.interval_s() == 5.0
