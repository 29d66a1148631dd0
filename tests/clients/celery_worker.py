"""Worker: a Celery worker's process, and the application that talks to it."""
import json
import os
import subprocess
import sys
import uuid

from kombu import pools

from tests.clients.celery_app import make_app
from tests.support.waiting import in_time, wait_until

PATIENCE_S = in_time(60)


class Worker:
    """A worker process and the application that talks to it, under a name of their own.

    `options` are make_app's.
    """

    def __init__(self, folder, broker_url, **options):
        self.name = f"celery-{uuid.uuid4().hex[:8]}"
        self.host = f"{self.name}@localhost"
        self.folder = folder
        self.options = {"name": self.name, "broker_url": broker_url, **options}
        self.process = None
        self.connect()

    def connect(self):
        """Begin again with an application whose connections are new; kombu keeps pools of them per URL."""
        pools.reset()
        self.app = make_app(**self.options)
        self.jobs = self.app.jobs

    def start(self):
        """Start the process and wait until it answers a ping. Returns itself."""
        command = [
            sys.executable, "-m", "celery", "-A", "tests.clients.celery_app", "worker", "--pool", "threads",
            "--concurrency", "2", "-E", "--loglevel", "INFO", "--without-gossip", "--without-mingle",
            "--hostname", self.host]
        environment = {**os.environ, "GOMQ_TEST_CELERY": json.dumps(self.options)}
        with open(self.log_path, "ab") as log:
            self.process = subprocess.Popen(command, env=environment, stdout=log, stderr=log)
        wait_until(self.answers, PATIENCE_S, what=f"the worker's answer to a ping; its log:\n{self.log}")
        return self

    def answers(self):
        """Whether it answers a ping, so that it consumes; a worker that left is a failure."""
        assert self.process.poll() is None, self.log
        return self.app.control.ping(timeout=in_time(1), limit=1)

    @property
    def log_path(self):
        """Where the worker logs."""
        return self.folder / "worker.log"

    @property
    def log(self):
        """What the worker has logged."""
        return self.log_path.read_text(encoding="utf-8", errors="replace")

    def ready_count(self, queue=None):
        """Messages in its queue that no worker holds."""
        with self.app.connection_for_read() as connection:
            return connection.default_channel.queue_declare(queue or self.name, passive=True).message_count

    def scheduled(self):
        """The tasks with an ETA that it holds; None when it does not say in time."""
        return (self.app.control.inspect(timeout=PATIENCE_S, limit=1).scheduled() or {}).get(self.host)

    def cancel_consumer(self, queue):
        """Let it consume from a queue no longer, and wait until it has stopped:
        its answer is a promise only.
        """
        self.app.control.cancel_consumer(
            queue, destination=[self.host], reply=True, timeout=PATIENCE_S, limit=1
        )
        with self.app.connection_for_read() as connection:
            channel = connection.default_channel
            wait_until(
                lambda: channel.queue_declare(queue, passive=True).consumer_count == 0,
                what=f"nobody consuming from {queue}",
            )

    def kill(self):
        """End it without warning."""
        self.process.kill()
        self.process.wait()

    def close(self):
        """End it and forget its queues."""
        if self.process.poll() is None:
            self.kill()
        self.app.close()


def result_of(result):
    """A task's result, within the limit of time."""
    return result.get(timeout=PATIENCE_S)
