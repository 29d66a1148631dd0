"""Waits made of queues with a time to live."""

import pytest

from gomq_py.dispatcher.delays import STEP_MS, STEPS, BrokerDelays, QueueDelays, delays_of, left_s
from gomq_py.dispatcher.errors import NotSupported


@pytest.mark.parametrize(
    "delay_s, wait_ms",
    [(0, 100), (0.1, 100), (0.35, 200), (1, 800), (60, 51200), (10**9, STEP_MS * 2 ** (STEPS - 1))],
)
def test_a_wait_begins_in_the_longest_queue_that_fits(delay_s, wait_ms):
    exchange, headers = QueueDelays("x", clock=lambda: 1000.0).place(delay_s)

    assert (exchange, headers) == (f"x.delay.{wait_ms}", {"x-task-due": round((1000 + delay_s) * 1000)})


@pytest.mark.parametrize("delay_s", [0.1, 1, 7.3, 3600, 86400 * 365])
def test_any_wait_ends_on_time_after_few_queues(delay_s):
    now = [0.0]
    delays = QueueDelays("x", clock=lambda: now[0])
    exchange, headers = delays.place(delay_s)
    hops = 0
    while True:
        now[0] += int(exchange.rpartition(".")[2]) / 1000
        hops += 1
        left = left_s(headers, clock=lambda: now[0])
        if not left:
            break
        exchange, headers = delays.place(left)

    assert delay_s - 0.05 <= now[0] <= delay_s + 0.1
    assert hops < 40


@pytest.mark.parametrize("header", [None, "soon", True, 1.5])
def test_a_time_that_is_none_is_now(header):
    assert left_s({"x-task-due": header}) == 0


def test_broker_is_told_by_its_platform():
    assert isinstance(delays_of({"product": "RabbitMQ", "platform": "gomq-py 0.1.0"}, "x"), BrokerDelays)
    assert isinstance(delays_of({"product": "RabbitMQ", "platform": "Erlang/OTP 25"}, "x"), QueueDelays)


def test_unique_tasks_are_refused_where_there_is_no_deduplication():
    with pytest.raises(NotSupported, match="unique tasks need a broker with deduplication"):
        QueueDelays("x").declare(None, unique_s=1)


def test_periodic_tasks_are_refused_where_there_are_no_schedules():
    with pytest.raises(NotSupported, match="periodic tasks need a broker with schedules"):
        QueueDelays("x").place_schedule({"name": "a", "every": 1000})
