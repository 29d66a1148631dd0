"""Waiting in tests: on a condition with a deadline, never for a while."""
import asyncio
import os
import time

# Between two looks at the condition. Short, because most conditions are true at the second look.
INTERVAL_S = 0.01


def _patience():
    """How many times longer than on a quiet machine a deadline is here: what the environment says, else what waits for each core, up to five."""
    said = os.environ.get("GOMQ_TEST_PATIENCE")
    if said:
        return float(said)
    measured = min(5.0, max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1)))
    os.environ["GOMQ_TEST_PATIENCE"] = f"{measured:.1f}"  # the same in every process of a run
    return float(os.environ["GOMQ_TEST_PATIENCE"])


PATIENCE = _patience()
# Bounds what will never be true, and nothing else: on a machine with more to do a process may stand still for seconds.
TIMEOUT_S = 30.0 * PATIENCE


def wait_until(predicate, timeout_s=TIMEOUT_S, what=None, sleep=time.sleep):
    """Return what ``predicate`` returned once that is true; AssertionError when it is not within ``timeout_s``.

    ``sleep`` is gevent's where greenlets of this process must run meanwhile.
    """
    deadline = time.monotonic() + timeout_s
    while True:
        result = predicate()
        if result:
            return result
        if time.monotonic() >= deadline:
            raise AssertionError(f"not within {timeout_s} s: {what or predicate}")
        sleep(INTERVAL_S)


async def wait_until_async(predicate, timeout_s=TIMEOUT_S):
    """The same for a coroutine function, in the loop that runs."""
    deadline = time.monotonic() + timeout_s
    while not await predicate():
        assert time.monotonic() < deadline, f"not within {timeout_s} s: {predicate}"
        await asyncio.sleep(INTERVAL_S)
