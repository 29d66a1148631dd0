"""Leadership: changes of the in-sync set that etcd does not take, and a former leader that is gone."""
import time
from types import SimpleNamespace

import gevent
import pytest
from gevent import socket
from gevent.event import Event

from gomq_py.cluster.core.in_sync import STEP_S, InSync, Progress
from gomq_py.cluster.core.lease import Lease
from gomq_py.cluster.core.promises import Promises
from gomq_py.cluster.core.records import InSyncRecord
from gomq_py.cluster.core.transactions import CoordinatorError, Unanswered
from gomq_py.cluster.leadership import Leadership
from tests.support.waiting import in_time, wait_until

NODE, FORMER = "a" * 32, "f" * 32
LONG_S = 1e4


class Failing:
    """A coordinator whose transactions fail at once; ``times``: when they came."""

    def __init__(self, error):
        self.error = error
        self.times = []
        self.has_two = Event()

    def transact(self, transaction):
        self.times.append(time.monotonic())
        if len(self.times) == 2:
            self.has_two.set()
        raise self.error


@pytest.mark.parametrize("error", [CoordinatorError("refused"), Unanswered("no answer")])
def test_change_that_fails_at_once_is_tried_again_after_a_pause(error):
    coordinator = Failing(error)
    in_sync = InSync(NODE, 2, 1, InSyncRecord(2, {NODE: 1}), 1)
    leadership = Leadership(coordinator, Promises(), Lease(5.0), in_sync)
    leadership.start()
    try:
        with gevent.Timeout(in_time(20)):
            coordinator.has_two.wait()
    finally:
        leadership.stop()
    first_s, second_s = coordinator.times
    assert second_s - first_s > STEP_S / 4


class Noting:
    """A coordinator that answers nothing; ``members``: of the changes that were asked for."""

    def __init__(self):
        self.members = []

    def transact(self, transaction):
        put, = transaction.operations
        self.members.append(InSyncRecord.decode(put.value).members.keys())
        raise Unanswered("no answer")


@pytest.fixture
def begin():
    """Starts a Leadership whose former leader had this address; returns the changes that it asks for."""
    started = []

    def start(address, is_connected=False):
        coordinator = Noting()
        in_sync = InSync(
            NODE, 2, 1, InSyncRecord(2, {NODE: 1, FORMER: 1}), 1, 1, LONG_S, FORMER)
        one = Leadership(coordinator, Promises(), Lease(5.0), in_sync, former=(FORMER, address))
        one._leader = SimpleNamespace(
            progress={FORMER: Progress(0, False)} if is_connected else {}, take_leavers=set)
        one.start()
        started.append(one)
        return coordinator.members

    yield start
    for one in started:
        one.stop()


def test_former_leader_whose_port_refuses_is_removed_at_once(begin):
    with socket.socket() as bound:  # nobody listens
        bound.bind(("127.0.0.1", 0))

        members = begin(bound.getsockname())

        wait_until(lambda: members and members[-1] == {NODE}, sleep=gevent.sleep)


@pytest.mark.parametrize("is_connected", [False, True])
def test_former_leader_that_is_there_has_its_time(begin, is_connected):
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        if not is_connected:
            listening.listen()

        members = begin(listening.getsockname(), is_connected)
        wait_until(lambda: len(members) >= 3, sleep=gevent.sleep)

    assert all(one == {NODE, FORMER} for one in members)
