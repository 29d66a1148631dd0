"""The time that a login may take."""
import gevent
import pytest

from gomq_py.auth import login_deadline as deadline_module
from gomq_py.auth.errors import LoginRefused
from gomq_py.auth.login_deadline import PAUSE_S, LoginDeadline


class NotedTimeout(gevent.Timeout):
    """Remembers all that were started."""

    started = []

    def start(self):
        self.started.append(self)
        super().start()


@pytest.fixture
def timeouts(monkeypatch):
    monkeypatch.setattr(deadline_module, "Timeout", NotedTimeout)
    monkeypatch.setattr(NotedTimeout, "started", [])
    return NotedTimeout.started


def test_time_of_a_client_goes_on_where_it_stood(timeouts):
    now_s = [1000]

    with LoginDeadline(60, TimeoutError(), lambda: now_s[0]) as deadline:
        now_s[0] += 20
        with deadline.paused():
            now_s[0] += PAUSE_S - 20
        now_s[0] += 20
        with pytest.raises(LoginRefused), deadline.paused():
            raise LoginRefused("wrong")

    assert [timeout.seconds for timeout in timeouts] == [60, 40 + PAUSE_S, 40, 20 + 20, 20]
    assert not any(timeout.pending for timeout in timeouts)


def test_wait_that_has_no_end_takes_the_time_of_the_client(timeouts):
    """Hashes of a cost of 15 take 3 s each, and hundreds may come before this one."""
    now_s = [1000]

    with LoginDeadline(60, TimeoutError(), lambda: now_s[0]) as deadline:
        with deadline.paused():
            now_s[0] += PAUSE_S - 10
        with deadline.paused():
            now_s[0] += 10 + 15
        with deadline.paused():
            now_s[0] += 5

    assert [timeout.seconds for timeout in timeouts] == [60, 60 + PAUSE_S, 60, 60 + 10, 45, 45, 40]


def test_a_check_outside_of_the_clients_time_takes_none_of_it(timeouts):
    with LoginDeadline(60, TimeoutError()).paused():
        pass

    assert timeouts == []
