"""A broker without doors over a data folder, in this process: what a test of the model as a whole drives."""
import gevent

from gomq_py.broker.broker import Broker
from gomq_py.config.settings import Settings
from gomq_py.hub.context import Hub
from gomq_py.hub.scheduler import unix_ms
from gomq_py.storage.disk.data_dir import DataDir
from gomq_py.storage.flush.durability import Durability
from gomq_py.storage.flush.group_commit import GroupCommit
from gomq_py.storage.message import Message
from tests.support.reading import get
from tests.support.unflushed import Unflushed
from tests.support.waiting import TIMEOUT_S, wait_until


class Node:
    """``stop`` ends it in order, ``kill`` leaves everything as it is once definitions have been answered."""

    def __init__(self, path, files=None, kinds=None, **settings):
        files = Unflushed() if files is None else files
        self.files = files
        self.data_dir = DataDir(path, files).open()
        self.committer = GroupCommit(files)
        settings = Settings(**settings)
        self.hub = Hub(settings)
        self.broker = Broker(self.data_dir, files, Durability(self.committer), settings, self.hub, kinds)
        try:
            self.broker.recover()
        except BaseException:
            self.committer.stop()
            self.data_dir.close()
            raise

    @property
    def vhost(self):
        """The vhost ``/``."""
        return self.broker.vhosts["/"]

    def stop(self):
        self.broker.close()
        self.committer.stop()
        self.hub.close()
        self.data_dir.close(in_order=not self.committer.has_failed)

    def kill(self, are_answered=True):
        """What SIGKILL leaves: files as written, nothing closed, nothing flushed by us,
        and nobody who goes on over the same folder.

        ``are_answered``: those who changed definitions or users before, so that the changes are in the logs.
        Messages and acks are as unflushed as they are. May switch.
        """
        self.hub.close()
        if are_answered:
            self._write_logs()
        self.committer.kill()
        self.data_dir.close()

    def _write_logs(self):
        self.wait(lambda: not self.committer._is_syncing, what="no thread writes them")
        for log in (self.broker._log._log, self.broker.users._log._log):
            if log.file.accepted:
                self.files.write_accepted(log.file)
                self.files.tell_written(log.file)

    def publish(self, exchange, routing_key, body=b"x", properties=b"\0\0", expires_in_ms=None, **fields):
        """Route one message as a door does. Returns what its destinations answered."""
        now_ms = unix_ms()
        message = Message()
        expires_at_ms = 0 if expires_in_ms is None else now_ms + expires_in_ms
        message.assign(
            exchange.encode(), routing_key.encode(), properties, body, now_ms, expires_at_ms=expires_at_ms,
            **fields,
        )
        return [
            queue.publish(message) for queue in self.vhost.route(self.vhost.exchange(exchange), routing_key)
        ]

    def take(self, queue):
        """The body and the properties of the next message of a queue, acked; None when it is empty."""
        message = Message()
        if not get(self.vhost.queue(queue), message, True):
            return None
        return message.get_body(), message.get_properties()

    def wait(self, predicate, timeout_s=TIMEOUT_S, what=None):
        """Let the hub run until the predicate is true."""
        return wait_until(predicate, timeout_s, what, gevent.sleep)
