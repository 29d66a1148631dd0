"""Leadership: changes of the in-sync set that etcd does not take."""
import time

import gevent
import pytest
from gevent.event import Event

from gomq_py.cluster.core.in_sync import STEP_S, InSync
from gomq_py.cluster.core.lease import Lease
from gomq_py.cluster.core.promises import Promises
from gomq_py.cluster.core.records import InSyncRecord
from gomq_py.cluster.core.transactions import CoordinatorError, Unanswered
from gomq_py.cluster.leadership import Leadership
from tests.support.waiting import in_time

NODE = "a" * 32


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
