"""Replies of one channel: in order, and held back by the disk only where they say so."""
from gomq_py.amqp.server.replies import Replies


class Disk:
    """Collects callbacks; ``finish`` is the end of the oldest sync."""

    def __init__(self):
        self.waiting = []

    def after_sync(self, callback):
        self.waiting.append(callback)

    def finish(self, error=None, which=0):
        self.waiting.pop(which)(error)


class Line:
    """A channel's replies with everything around them recorded."""

    def __init__(self, after_sync=None):
        self.disk = Disk()
        self.written = []
        self.failures = []
        self.replies = Replies(self.written.append, after_sync or self.disk.after_sync, self.failures.append)


def test_reply_leaves_at_once_when_nothing_waits():
    line = Line()

    line.replies.send(b"one")

    assert line.written == [b"one"]


def test_durable_reply_waits_for_the_disk():
    line = Line()

    line.replies.send_when_safe(b"durable")

    assert line.written == []
    line.disk.finish()
    assert line.written == [b"durable"]


def test_durable_reply_leaves_at_once_when_the_disk_has_nothing_to_do():
    line = Line(after_sync=lambda callback: callback(None))

    line.replies.send_when_safe(b"durable")

    assert line.written == [b"durable"]


def test_replies_behind_a_waiting_one_keep_their_order():
    line = Line()
    line.replies.send_when_safe(b"durable")
    line.replies.send(b"two")
    line.replies.act(lambda: line.written.append("action"))
    line.replies.send(b"three")

    line.disk.finish()

    assert line.written == [b"durable", b"two", "action", b"three"]


def test_second_sync_that_ends_first_does_not_overtake():
    line = Line()
    line.replies.send_when_safe(b"one")
    line.replies.send_when_safe(b"two")

    line.disk.finish(which=1)
    assert line.written == []
    line.disk.finish()

    assert line.written == [b"one", b"two"]


def test_action_of_a_durable_reply_runs_behind_its_octets():
    line = Line()

    line.replies.send_when_safe(b"ok", lambda: line.written.append("action"))
    line.disk.finish()

    assert line.written == [b"ok", "action"]


def test_reply_made_by_an_action_takes_its_place_behind_those_waiting():
    line = Line()
    line.replies.send_when_safe(b"one", lambda: line.replies.send(b"late"))
    line.replies.send(b"two")

    line.disk.finish()

    assert line.written == [b"one", b"two", b"late"]


def test_refusal_of_the_disk_is_told_and_nothing_leaves():
    line = Line()
    line.replies.send_when_safe(b"durable")
    line.replies.send(b"behind")

    line.disk.finish(OSError("full"))

    assert [str(failure) for failure in line.failures] == ["full"]
    assert line.written == []


def test_nothing_leaves_after_close():
    line = Line()
    line.replies.send_when_safe(b"durable")
    line.replies.close()

    line.disk.finish()
    line.replies.send(b"more")
    line.replies.act(lambda: line.written.append("action"))
    line.replies.send_when_safe(b"durable too")

    assert line.written == []
    assert line.disk.waiting == []


def test_waiting_replies_are_counted():
    line = Line()
    assert line.replies.waiting_count == 0

    line.replies.send_when_safe(b"one")
    line.replies.send(b"two")

    assert line.replies.waiting_count == 2
