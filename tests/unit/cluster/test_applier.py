"""Applier: a sync begins while a thread is at work."""
import threading

import gevent
import pytest

from gomq_py.cluster.applier import Applier
from gomq_py.cluster.identity import Identity
from gomq_py.cluster.wire.frames import EVENTS, Frame
from gomq_py.storage.disk.plain_files import PlainFiles
from tests.support.waiting import in_time, wait_until


def wait(condition):
    wait_until(condition, sleep=gevent.sleep)


@pytest.fixture
def applier(tmp_path):
    made = Applier(PlainFiles(), str(tmp_path), lambda: None, lambda: None)
    made.start()
    yield made
    made.stop()


def test_sync_begins_when_no_thread_is_at_work(applier, monkeypatch):
    """The thread stops at a flush and leaves frames, which would be taken up again at once because more have
    come meanwhile.
    """
    goes_on, at_work, begun_beside = threading.Event(), [], []

    def work(batch, is_due):
        at_work.append(len(batch))
        goes_on.wait(in_time(20))
        applier._applied = applier.flushed = batch[0].position
        at_work.pop()
        return 1, True

    def stage():
        begun_beside.extend(at_work)
        goes_on.set()

    def put(position):
        applier.put(Frame(EVENTS, 1, position, b"x"))

    monkeypatch.setattr(applier, "_work", work)
    monkeypatch.setattr(applier, "_stage", stage)
    put(1000)
    put(2000)
    wait(lambda: at_work == [2])
    put(3000)
    beginning = gevent.spawn(applier.begin_sync, Identity(b"c" * 16, b"n" * 16, 2))
    gevent.sleep(0)
    turned = applier._turned
    turned.clear()

    goes_on.set()
    wait(lambda: turned.is_set())
    goes_on.clear()
    gevent.sleep(0)
    goes_on.set()
    beginning.join()
    wait(lambda: applier._idle.is_set())

    assert begun_beside == []
    assert (applier.received, applier.flushed) == (0, 0)
