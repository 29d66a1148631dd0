"""What clients were shown is there after a kill: the folder as it is at every event of the file seam, and
between a thread's work and its telling, is opened again.

A kill leaves the system's cache, so that a copy of the folder is what it leaves. Judged by what was shown:
offsets of a stream keep their messages, positions stay within it, what was settled does not come back, and
what was answered is there.
"""
import shutil
from functools import partial
from typing import NamedTuple

import gevent
import pytest
from gevent.event import AsyncResult

from gomq_py.broker.features.stream_offset import FIRST, StreamStart
from gomq_py.content.properties import Properties
from gomq_py.hub.scheduler import unix_ms
from gomq_py.storage.flush import flushing, group_commit
from gomq_py.storage.message import Message
from gomq_py.storage.stores.stream_cursor import StreamCursor
from tests.durability import flush_pool
from tests.support.kept import STORE, content, kept_kinds, made
from tests.support.node import Node
from tests.support.reading import get
from tests.support.streams import STREAM
from tests.support.unflushed import Unflushed
from tests.support.waiting import wait_until
from tests.support.watched_files import WatchedFiles

KINDS = {
    "classic": {}, "priority": {"x-max-priority": 3}, "stream": STREAM, "definitions": {}, "users": {},
    "kept": {}, "delayed": {}}
DELAY = {"x-delay": 10_000_000}
SETTINGS = {"segment_size": 65536}
# Two fill a segment, so that files are made ahead, named late, emptied and used again.
BODY_BYTES = 30_000
ROUNDS = 12
# Of how many kills one is looked at where time is short; coprime to the events of a round.
EVERY = 7


class Shown(NamedTuple):
    """What clients had been told at the moment of a kill."""

    offsets: dict  # of the stream: the body shown under each
    position: int  # that the stream's consumer goes on at, as far as it is settled
    settled: frozenset  # bodies whose acks an end of a batch has covered
    confirmed: frozenset  # and those whose flush was answered
    taken: frozenset  # all that were given to a consumer
    declared: frozenset  # queues and users that were answered to be there
    gone: frozenset  # and those that were answered to be deleted
    delayed: int  # messages that wait in a delayed exchange, and were confirmed
    kept: dict  # {key: number} of what MQTT keeps by keys (retained messages, wills), and has shown


class Kills(WatchedFiles, Unflushed):
    """Calls ``on_event`` at every event."""

    on_event = staticmethod(lambda: None)

    def about_to(self, call, subject):
        self.on_event()


class Client:
    """A publisher and a consumer of one queue, and the account of what both were told."""

    def __init__(self, node, kind):
        self.node, self.kind = node, kind
        self.queue, _ = node.vhost.declare_queue("q", durable=True, arguments=KINDS[kind])
        self.offsets, self.position, self.message = {}, 0, Message()
        self.settled, self.confirmed, self.taken, self.acked = set(), set(), set(), set()
        self.reader = (
            self.queue.open_reader(StreamStart(FIRST), "joe") if kind == "stream" else None)
        self.published = 0
        self.declared, self.gone, self.kept, self.delayed = set(), set(), {}, 0
        if kind == "delayed":
            node.vhost.declare_exchange(
                "later", "x-delayed-message", durable=True, arguments={"x-delayed-type": "fanout"})

    def shown(self):
        return Shown(
            dict(self.offsets), self.position, frozenset(self.settled), frozenset(self.confirmed),
            frozenset(self.taken), frozenset(self.declared), frozenset(self.gone), self.delayed,
            dict(self.kept))

    def work(self):
        """A batch: one is published, all that is there is consumed, and somebody waits for a confirm."""
        body = b"%06d" % self.published
        self.node.publish("", "q", body + bytes(BODY_BYTES), b"\x10\x00\x02", persistent=True)
        self.published += 1
        self.queue.write_out()
        self.node.committer.after_sync(lambda error: self.confirmed.add(body))
        if self.kind == "definitions":
            vhost = self.node.vhost
            self.change(partial(vhost.declare_queue, durable=True), vhost.delete_queue, body.decode())
        elif self.kind == "users":
            users = self.node.broker.users
            self.change(partial(users.set_user, password_hash="", tags=()), users.delete_user, body.decode())
        elif self.kind == "delayed":
            self.delay(body + bytes(BODY_BYTES))
        elif self.kind == "kept":
            self.keep(f"k{self.published % 3}", body)
        # one stays in a queue, so that each folder holds something
        if self.reader is None:
            while self.queue.ready_count > 1:
                self.take()
        while self.reader is not None and self.read():
            pass
        self.queue.write_out()
        self.settled |= self.acked
        if self.reader is not None:
            self.position = len(self.offsets)

    def change(self, declare, delete, name):
        """One is declared, and from the third on the oldest is deleted."""
        declare(name)
        self.node.committer.after_sync(lambda error: self.declared.add(name))
        if len(self.declared) > 2:
            oldest = min(self.declared)
            self.declared.discard(oldest)
            delete(oldest)
            self.node.committer.after_sync(lambda error: self.gone.add(oldest))

    def delay(self, body):
        """A message waits in the delayed exchange, for longer than the test."""
        message, vhost = Message(), self.node.vhost
        message.assign(
            b"later", b"", Properties(delivery_mode=2, headers=DELAY).encode(), body, unix_ms(),
            persistent=True)
        (waiting,) = vhost.route(vhost.exchange("later"), "", DELAY)
        assert waiting.publish(message) == 1
        waiting.write_out()
        self.node.committer.after_sync(self.delayed_one)

    def delayed_one(self, _error):
        self.delayed += 1

    def keep(self, key, body):
        """A message is kept for a key, and shown to whoever asks from the end of the batch on."""
        kept = self.node.vhost.extras[STORE]
        assert kept.put(key, made(key, body + bytes(BODY_BYTES))) == 1
        kept.write_out()
        self.kept[key] = int(body)

    def read(self):
        """The consumer of the stream is shown a message, and settles it. False: there is none to show."""
        if not self.reader.next(self.message):
            return False
        self.offsets[self.reader.cursor.offset] = self.message.get_body()[:6]
        self.queue.note_delivered()
        self.queue.ack(self.reader.take(BODY_BYTES))
        return True

    def take(self):
        """The consumer of a queue gets a message, and settles it."""
        assert get(self.queue, self.message, False)
        body = self.message.get_body()[:6]
        self.taken.add(body)
        self.queue.ack(self.message.describe()["location"])
        self.acked.add(body)


def check(folder, kind, shown):
    """What a boot finds in the folder that a kill has left."""
    node = Node(folder, kinds=kept_kinds(), **SETTINGS)
    try:
        queue = node.vhost.queue("q")
        if kind == "stream":
            cursor, message, found = StreamCursor(queue.stream), Message(), {}
            while cursor.peek(message):
                found[cursor.offset] = message.get_body()[:6]
                cursor.step()
            cursor.close()
            lost = {offset for offset, body in shown.offsets.items() if found.get(offset) != body}
            assert not lost, f"shown, and gone or another's: {sorted(lost)[:5]}"
            kept = queue.stream.offsets.get("joe") or 0
            assert shown.position <= kept <= queue.stream.next_offset, "the position of its consumer"
            there = set(found.values())
        else:
            there = set()
            while (one := node.take("q")) is not None:
                there.add(one[0][:6])
            assert not there & shown.settled, "settled, and back"
        missing = shown.confirmed - there - shown.taken
        assert not missing, f"confirmed, and gone: {sorted(missing)[:5]}"
        found = {key: int(body[:6]) for key, body in content(node.vhost.extras[STORE]).items()}
        older = {key: found.get(key) for key, number in shown.kept.items() if found.get(key, -1) < number}
        assert not older, f"kept: {found}, shown: {shown.kept}"
        names = {*node.vhost.queues, *[user.name for user in node.broker.users]}
        assert shown.declared <= names and not shown.gone & names
        if kind == "delayed":
            assert node.vhost.exchanges["later"].delayed_store.count >= shown.delayed
        assert node.broker.damage() == (0, []), "a kill is no damage"
    finally:
        node.kill(False)


class TellingLate(flush_pool.FlushPool):
    """Work of threads, with a kill before the hub hears of it."""

    files = None

    def spawn(self, function, *arguments):
        told = AsyncResult()

        def work():
            try:
                result = function(*arguments)
            except BaseException as error:
                told.set_exception(error)
            else:
                self.files.on_event()
                told.set(result)

        gevent.spawn(work)
        return told


class Killed:
    """The folders that kills leave of ``root``, each with what ``shown()`` says at that moment. A context:
    threads work in greenlets, and tell late.
    """

    def __init__(self, root, monkeypatch, every):
        self.root, self.every = root, every
        self.files, self.kills, self._patches = Kills(), [], monkeypatch.context()

    def __enter__(self):
        patches = self._patches.__enter__()
        patches.setattr(TellingLate, "files", self.files)
        patches.setattr(flushing, "ThreadPool", TellingLate)
        patches.setattr(group_commit, "UNHURRIED_S", 3600)
        return self

    def __exit__(self, *failure):
        self.end()
        self._patches.__exit__(*failure)

    def begin(self, shown):
        self.shown = shown
        self.files.on_event = self.kill

    def kill(self):
        folder = self.root.with_name(f"killed-{len(self.kills)}")
        is_looked_at = len(self.kills) % self.every == 0
        if is_looked_at:
            shutil.copytree(self.root, folder)
        self.kills.append((folder, self.shown() if is_looked_at else None))

    def end(self):
        self.files.on_event = lambda: None

    def left(self):
        """(folder, what was shown) of those that are looked at."""
        return self.kills[::self.every]


@pytest.mark.parametrize("every", [
    EVERY, pytest.param(1, marks=[pytest.mark.long, pytest.mark.timeout(400)])
])
@pytest.mark.parametrize("kind", KINDS)
def test_what_was_shown_outlives_a_kill_at_every_event(tmp_path, monkeypatch, kind, every):
    with Killed(tmp_path / "data", monkeypatch, every) as killed:
        node = Node(killed.root, killed.files, kept_kinds(), **SETTINGS)
        client = Client(node, kind)
        if kind == "kept":
            client.keep("k0", b"000000")  # the store itself is a definition, which is answered as others are
        answered = []
        node.committer.after_sync(answered.append)
        wait_until(lambda: answered, sleep=gevent.sleep)
        killed.begin(client.shown)
        for number in range(ROUNDS):
            client.work()
            killed.kill()
            if number % 3 == 2:  # else the next batch comes before the threads have their turn
                wait_until(lambda: len(client.confirmed) == client.published, sleep=gevent.sleep)
        killed.end()
        node.kill()

        assert len(killed.kills) > 4 * ROUNDS
        for folder, shown in killed.left():
            check(folder, kind, shown)
