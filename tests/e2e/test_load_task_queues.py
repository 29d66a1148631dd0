"""The comparison of task queues: it measures ours, and leaves out what is not installed."""

from load.task_queues import LOADS, is_installed, measure, row


def test_a_load_is_measured_and_told_in_a_row():
    load = LOADS[-1]

    figures = measure("gomq_py.dispatcher", load, 20)

    assert all(
        figures[name] > 0 for name in ("worker_us", "worker_s", "sender_us", "sender_s", "p50_ms", "p99_ms")
    )
    assert row(load, "gomq_py.dispatcher", [figures, figures]).startswith(
        f"| {load.title} | gomq_py.dispatcher | "
    )


def test_what_is_not_installed_is_left_out():
    assert is_installed("gomq_py.dispatcher") and not is_installed("no_such_task_queue")
