"""Waiting in tests: on a condition with a deadline, never for a while."""
import asyncio
import os
import time

# Between the first look at the condition and the second, and the most between any two: twice as long each
# time. Short, because most conditions are true at the second look, and some runs wait thousands of times.
FIRST_INTERVAL_S, INTERVAL_S = 0.0005, 0.01


# A piece of work, and what it may take where nothing else is to do (measured: 0.03 to 0.07 s of a core).
STEPS, USUAL_S = 1_000_000, 0.1
# A run beside eight busy loops on two cores; what hangs is to end some day all the same.
MOST = 8.0


def patience(environment=os.environ, clock=time.perf_counter, load=os.getloadavg):
    """How many times longer than on a quiet machine each deadline of this run is: what GOMQ_TEST_PATIENCE
    says, else what a piece of work takes now, or the load of the last minute for each core, if that is more.

    The first process of a run measures, and tells those that it starts.
    """
    if not environment.get("GOMQ_TEST_PATIENCE"):
        began = clock()
        sum(step & 1 for step in range(STEPS))
        measured = max(1.0, (clock() - began) / USUAL_S, load()[0] / (os.cpu_count() or 1))
        environment["GOMQ_TEST_PATIENCE"] = f"{min(MOST, measured):.1f}"
    return float(environment["GOMQ_TEST_PATIENCE"])


PATIENCE = patience()


def in_time(seconds):
    """How long may take here what takes no more than ``seconds`` on a quiet machine: the bound of a wait that
    is over long before. A wait for what is not to happen stays short, and needs none.
    """
    return seconds * PATIENCE


# Bounds what will never be true, and nothing else: on a machine with more to do a process
# may stand still for seconds.
TIMEOUT_S = in_time(30.0)


def wait_until(predicate, timeout_s=TIMEOUT_S, what=None, sleep=time.sleep):
    """Return what ``predicate`` returned once that is true;
    AssertionError when it is not within ``timeout_s``, with ``what``, or what that returns.

    ``sleep`` is gevent's where greenlets of this process must run meanwhile.
    """
    deadline, interval_s = time.monotonic() + timeout_s, FIRST_INTERVAL_S
    while True:
        result = predicate()
        if result:
            return result
        if time.monotonic() >= deadline:
            told = what() if callable(what) else what
            raise AssertionError(f"not within {timeout_s} s: {told or predicate}")
        sleep(interval_s)
        interval_s = min(2 * interval_s, INTERVAL_S)


async def wait_until_async(predicate, timeout_s=TIMEOUT_S):
    """The same for a coroutine function, in the loop that runs."""
    deadline, interval_s = time.monotonic() + timeout_s, FIRST_INTERVAL_S
    while not await predicate():
        assert time.monotonic() < deadline, f"not within {timeout_s} s: {predicate}"
        await asyncio.sleep(interval_s)
        interval_s = min(2 * interval_s, INTERVAL_S)
