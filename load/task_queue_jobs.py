"""The same task in each of the systems that load.task_queues compares: their workers load ``app`` from here.

    python -m load.task_queue_jobs COUNT WORK_S PACE_S     sends them, and prints what that cost
"""

import json
import os
import sys
import threading
import time

SYSTEM, URL = os.environ["TASKS_SYSTEM"], os.environ["TASKS_URL"]
CONCURRENCY, COUNT = int(os.environ["TASKS_CONCURRENCY"]), int(os.environ["TASKS_COUNT"])
# What load.task_queues says; the two import nothing of each other, for workers load as little as they can.
QUEUE, PREFETCH = "tasks", 2


class Clock:
    """Time and CPU time from the first task to the last, and each task's latency."""

    def __init__(self):
        self._lock = threading.Lock()
        self._latencies: list = []
        self._began = self._cpu = 0.0

    def work(self, sent, seconds):
        """One task."""
        now = time.time()
        with self._lock:
            if not self._latencies:
                self._began, self._cpu = time.perf_counter(), time.process_time()
            self._latencies.append(now - sent)
        if seconds:
            time.sleep(seconds)
        with self._lock:
            if len(self._latencies) == COUNT:
                self._write()

    def _write(self):
        found = sorted(self._latencies)
        path = os.environ["TASKS_RESULT"]
        with open(f"{path}.new", "w", encoding="ascii") as file:
            json.dump({
                "worker_us": (time.process_time() - self._cpu) / COUNT * 1e6,
                "worker_s": (time.perf_counter() - self._began) / COUNT,
                "p50_ms": found[COUNT // 2] * 1000,
                "p99_ms": found[int(COUNT * 0.99)] * 1000,
            }, file)
        os.replace(f"{path}.new", path)


CLOCK = Clock()

if SYSTEM == "celery":
    from celery import Celery

    app = Celery("tasks", broker=URL.replace("%2f", "/"))
    app.conf.update(
        task_ignore_result=True, task_acks_late=True, task_default_queue=QUEUE,
        worker_prefetch_multiplier=PREFETCH, broker_transport_options={"confirm_publish": True},
        worker_hijack_root_logger=False,
    )

    @app.task(name="job")
    def job(sent, seconds):
        CLOCK.work(sent, seconds)

    send = job.delay
elif SYSTEM == "dramatiq":
    import dramatiq
    from dramatiq.brokers.rabbitmq import RabbitmqBroker

    app = RabbitmqBroker(url=URL, confirm_delivery=True, middleware=[])
    dramatiq.set_broker(app)

    @dramatiq.actor(queue_name=QUEUE)
    def job(sent, seconds):
        CLOCK.work(sent, seconds)

    send = job.send
else:
    from gomq_py.dispatcher import Dispatcher

    app = Dispatcher(URL, queue=QUEUE, concurrency=CONCURRENCY, prefetch=PREFETCH * CONCURRENCY)

    @app.task
    def job(sent: float, seconds: float):
        CLOCK.work(sent, seconds)

    send = job.delay


def main():
    """Send them; the first, which connects, does not count."""
    count, seconds, pace_s = int(sys.argv[1]), float(sys.argv[2]), float(sys.argv[3])
    send(time.time(), seconds)
    began, cpu = time.perf_counter(), time.process_time()
    for _ in range(count - 1):
        send(time.time(), seconds)
        if pace_s:
            time.sleep(pace_s)
    cost = {
        "sender_us": (time.process_time() - cpu) / count * 1e6,
        "sender_s": (time.perf_counter() - began) / count,
    }
    print(json.dumps(cost))


if __name__ == "__main__":
    main()
