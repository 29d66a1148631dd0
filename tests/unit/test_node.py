"""A node whose boot or end fails: whatever step it was, nothing stays open,
and the folder can be opened again.
"""
import contextlib
import errno
import gc
import json
import os
import shutil
import socket
from collections import Counter
from functools import partial
from unittest import mock

import gevent
import pytest

from gomq_py import node as node_module
from gomq_py.broker.broker import Broker
from gomq_py.broker.policies.parameters import Parameters
from gomq_py.broker.topology import first_import
from gomq_py.broker.topology.vhost import VHost
from gomq_py.config.settings import Settings
from gomq_py.content.properties import Properties
from gomq_py.errors import DefinitionsError
from gomq_py.global_names import IMPORTED
from gomq_py.net.listener import BindError
from gomq_py.node import Node
from gomq_py.storage.disk.files import Files
from gomq_py.storage.errors import StoreError
from gomq_py.storage.logs.framed_log import LogError
from tests.support.faulty_files import FaultyFiles
from tests.support.jobs import Doing
from tests.support.node import Node as ModelNode
from tests.support.ports import reserve
from tests.support.resources import descriptors, mapped_count
from tests.support.waiting import wait_until

PERSISTENT = Properties(delivery_mode=2).encode()
KINDS = {
    "classic": {}, "priority": {"x-max-priority": 2}, "stream": {"x-queue-type": "stream"},
    "expiring": {"x-message-ttl": 1, "x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"},
    "dead": {},
}


class Open:
    """What this process has that a boot may leave: descriptors by name, and active watchers of the loop."""

    def __init__(self):
        self.descriptors = descriptors()
        self.watchers = gevent.get_hub().loop.activecnt

    def wait_until_nothing_is_left(self):
        """Wait until there is no more than there was then;
        greenlets that were told to end do so a moment later.
        """
        left = []

        def nothing_is_left():
            now = Open()
            left[:] = [f"{count} of {name}" for name, count in (now.descriptors - self.descriptors).items()]
            if now.watchers > self.watchers:
                left.append(f"{now.watchers - self.watchers} watchers")
            return not left

        wait_until(nothing_is_left, what=left, sleep=gevent.sleep)


def greenlets():
    gc.collect()
    return [
        one for one in gc.get_objects() if isinstance(one, gevent.Greenlet) and one.started and not one.dead
    ]


@pytest.fixture
def settings(tmp_path):
    return Settings.checked(
        data_dir=str(tmp_path / "data"), amqp_bind="127.0.0.1", amqp_port=0, http_port=-1,
        metrics_http_port=-1, mqtt_port=-1, control_unix_path="", segment_size=65536)


@pytest.fixture
def killed(tmp_path):
    """A data folder that a kill has left, with queues of each kind that hold messages."""
    folder = tmp_path / "killed"
    node = ModelNode(folder, segment_size=65536)
    for name, arguments in KINDS.items():
        node.vhost.declare_queue(name, durable=True, arguments=arguments)
        for number in range(3):
            node.publish("", name, b"%d" % number, PERSISTENT)
    letters = [node.vhost.queues[name] for name in ("expiring", "dead")]
    # a letter whose copy is safe and whose original is not gone yet would be there twice
    node.wait(lambda: node.committer.is_idle and sum(
        queue.ready_count + queue.unacked_count for queue in letters) == 6)
    node.kill()
    return folder


def boot(settings, files, monkeypatch):
    """A node over these files that has been closed again, whether it could boot or not."""
    monkeypatch.setattr(node_module, "Files", lambda replicators: files)
    node = Node(settings)
    try:
        with contextlib.suppress(OSError, StoreError, LogError):
            node.lead()
    finally:
        node.close()


def test_first_boot_that_the_disk_stops_at_any_step_leaves_nothing_open(settings, monkeypatch):
    sound = FaultyFiles()
    boot(settings, sound, monkeypatch)
    held, before = greenlets(), Open()
    for number in range(1, len(sound.calls) + 1):
        shutil.rmtree(settings.data_dir, ignore_errors=True)

        boot(settings, FaultyFiles(number), monkeypatch)

        before.wait_until_nothing_is_left()
    assert number > 10
    assert [one for one in greenlets() if one not in held] == []


@pytest.mark.parametrize("how", ["fail", "dead"])
def test_boot_that_the_disk_stops_at_any_step_leaves_nothing_open_and_loses_nothing(
    killed, settings, monkeypatch, how
):
    """Each call of the boot is refused in turn; then a boot with a sound disk finds all messages."""
    shutil.copytree(killed, settings.data_dir)
    sound = FaultyFiles()
    boot(settings, sound, monkeypatch)
    held, mapped, before = greenlets(), mapped_count(), Open()
    for number in range(1, len(sound.calls) + 1):
        shutil.rmtree(settings.data_dir)
        shutil.copytree(killed, settings.data_dir)
        files = FaultyFiles(number, how)

        boot(settings, files, monkeypatch)

        before.wait_until_nothing_is_left()
        # What expired in that boot may have been copied by then,
        # and its original kept because the disk refused the flush.
        assert_all_messages_are_there(settings.data_dir, f"{how} at call {number}, {files.failed}", twice=3)
    assert number > 40
    before.wait_until_nothing_is_left()
    assert [one for one in greenlets() if one not in held] == [] and mapped_count() == mapped


def assert_all_messages_are_there(folder, when, twice=0):
    """Up to so many of the dead letters ``twice``."""
    node = ModelNode(folder, segment_size=65536)
    # what was due by now is copied first, and is in two places until the disk has the copy
    node.wait(lambda: node.committer.is_idle and not node.vhost.queues["expiring"].dead_letter_count)
    counts = Counter(
        {name: queue.ready_count + queue.unacked_count for name, queue in node.vhost.queues.items()}
    )
    node.stop()
    counts["dead"] += counts.pop("expiring")  # where they go, sooner or later
    assert 6 <= counts.pop("dead") <= 6 + twice, when
    assert counts == {"classic": 3, "priority": 3, "stream": 3}, when


def test_of_a_boot_that_fails_between_two_queues_nothing_runs_and_nothing_is_lost(
    killed, settings, monkeypatch
):
    """The queue to which what is due by then would go is not there yet,
    and closing the others gives timers a turn.
    """
    recover_queue, ran = VHost.recover_queue, []

    def recover_all_but_dead(vhost, name, *arguments, **options):
        if name == "dead":
            node.hub.timers.start(0, lambda: ran.append("timer"))
            node.hub.scheduler.start(Doing(lambda: ran.append("job")))
            raise OSError(errno.EMFILE, "no descriptors")
        recover_queue(vhost, name, *arguments, **options)

    shutil.copytree(killed, settings.data_dir)
    node = Node(settings)
    before = Open()
    monkeypatch.setattr(VHost, "recover_queue", recover_all_but_dead)

    with pytest.raises(OSError, match="no descriptors"):
        node.lead()
    node.close()

    before.wait_until_nothing_is_left()
    assert ran == []
    monkeypatch.undo()
    assert_all_messages_are_there(settings.data_dir, "after the boot that failed")


def test_boot_that_fails_says_why_though_closing_fails_too(settings, monkeypatch):
    def fail(error):
        raise error

    monkeypatch.setattr(Broker, "_recover", lambda _: fail(ValueError("the reason")))
    monkeypatch.setattr(Broker, "close", lambda _: fail(OSError(errno.EIO, "the end")))
    node = Node(settings)

    with pytest.raises(ValueError, match="the reason"):
        node.lead()
    node.close()


def queues_of(settings, then=lambda broker: None):
    """The names of the queues after a boot; ``then(broker)`` is called before the node stops."""
    node = Node(settings)
    node.lead()
    names = list(node.broker.vhosts["/"].queues)
    then(node.broker)
    node.durability.wait()
    node.close()
    return names


@pytest.fixture
def definitions(settings, tmp_path):
    """The path of a file that a boot is to import, with queue q."""
    path = tmp_path / "definitions.json"
    path.write_text('{"queues": [{"name": "q", "vhost": "/", "durable": true, "arguments": {}}]}')
    settings.load_definitions = str(path)
    return path


def test_definitions_are_imported_once_and_what_was_deleted_since_stays_so(settings, definitions):
    assert queues_of(settings, lambda broker: broker.vhosts["/"].delete_queue("q")) == ["q"]

    assert queues_of(settings) == []


@pytest.mark.parametrize("end", ["missing file", "fault at its end"])
def test_import_that_did_not_end_is_made_again_by_the_next_boot(settings, definitions, monkeypatch, end):
    kept = f"{definitions}.kept"
    with monkeypatch.context() as patched:
        if end == "missing file":
            os.rename(definitions, kept)
        else:
            patched.setattr(Parameters, "set_internal", mock.Mock(side_effect=OSError(errno.EIO, "gone")))
        node = Node(settings)
        with pytest.raises((OSError, DefinitionsError)):
            node.lead()
        node.close()
    if end == "missing file":
        os.rename(kept, definitions)

    assert queues_of(settings) == ["q"]


def warnings_of_a_boot(settings, caplog):
    """What the log warns of, about load_definitions, in a boot that must not import anything."""
    caplog.clear()
    before = queues_of(settings)
    assert before == ["q"]
    return [
        record.getMessage() for record in caplog.records
        if record.levelname == "WARNING" and "load_definitions" in record.getMessage()]


def test_file_that_has_changed_since_its_import_is_warned_of_at_each_boot(settings, definitions, caplog):
    queues_of(settings)
    assert warnings_of_a_boot(settings, caplog) == []
    definitions.write_text('{"queues": [{"name": "new", "vhost": "/"}]}')

    for _ in range(2):
        warning, = warnings_of_a_boot(settings, caplog)
        assert "the file has changed since" in warning
        assert f"gomq-py-ctl import_definitions {definitions}" in warning


def test_file_that_moved_since_its_import_is_warned_of(settings, definitions, caplog):
    queues_of(settings)
    other = definitions.rename(definitions.with_name("other.json"))

    assert warnings_of_a_boot(settings, caplog) == []
    settings.load_definitions = str(other)
    warning, = warnings_of_a_boot(settings, caplog)

    assert f"{other} is not imported" in warning and str(definitions) in warning


@pytest.mark.parametrize("what", ["nothing", "folder", "pipe", "not readable"])
def test_file_that_is_gone_after_its_import_is_no_fault(settings, definitions, caplog, monkeypatch, what):
    queues_of(settings)
    if what == "not readable":
        monkeypatch.setattr(first_import, "open", mock.Mock(side_effect=PermissionError), raising=False)
    else:
        definitions.unlink()
    if what == "folder":
        definitions.mkdir()
    if what == "pipe":
        os.mkfifo(definitions)  # to open it would block

    assert warnings_of_a_boot(settings, caplog) == []


@pytest.mark.parametrize("note, is_warned_of", [
    ("{path}", False), ("/etc/other.json", True), ({"a": 1}, True), (None, True), ([], True)])
def test_notes_of_earlier_versions_are_read(settings, definitions, caplog, note, is_warned_of):
    """They were the path alone, or what a user had set."""
    path = str(definitions)

    def be_earlier(broker):
        broker.parameters.set_internal(IMPORTED, path if note == "{path}" else note)

    queues_of(settings, be_earlier)

    assert bool(warnings_of_a_boot(settings, caplog)) == is_warned_of


@pytest.mark.parametrize("log", ["users", "definitions"])
def test_users_and_queues_are_imported_again_if_the_disk_refused_one_log(
        settings, definitions, monkeypatch, log):
    """Both logs are flushed at once, in two threads: one may be on disk when the other fails."""
    write = Files.write_accepted
    definitions.write_text(
        '{"users": [{"name": "alice", "password": "x"}], "queues": [{"name": "q", "vhost": "/"}]}')

    def fail(self, file):
        if os.path.basename(file.path) == log:
            raise OSError(errno.EIO, "the disk", file.path)
        write(self, file)

    with monkeypatch.context() as patched:
        patched.setattr(Files, "write_accepted", fail)
        node = Node(settings)
        with pytest.raises(OSError, match="the disk"):
            node.lead()
        with contextlib.suppress(OSError):
            node.close()
    users = []

    assert queues_of(settings, lambda broker: users.extend(user.name for user in broker.users)) == ["q"]
    assert "alice" in users


def test_file_that_holds_the_note_is_imported_again_by_the_next_boot(settings, definitions, monkeypatch):
    """Exports of earlier versions hold it. It stands before the queues."""
    content = json.loads(definitions.read_text())
    content["global_parameters"] = [{"name": IMPORTED, "value": "/etc/gomq/definitions.json"}]
    definitions.write_text(json.dumps(content))
    with monkeypatch.context() as patched:
        patched.setattr(VHost, "declare_queue", mock.Mock(side_effect=KeyboardInterrupt))
        node = Node(settings)
        with pytest.raises(KeyboardInterrupt):
            node.lead()
        node.close()

    assert queues_of(settings) == ["q"]


@pytest.mark.parametrize("step", ["AMQPServer", "first_import.load", "Broker", "Hub", "GroupCommit"])
def test_boot_that_fails_at_any_other_step_leaves_nothing_open(settings, monkeypatch, step):
    boot(settings, FaultyFiles(), monkeypatch)
    before = Open()
    settings.load_definitions = "a file" if step == "first_import.load" else ""

    def fail(*_, **__):
        raise OSError(errno.EMFILE, step)

    room = "gomq_py.broker.topology" if step == "first_import.load" else "gomq_py.node"
    monkeypatch.setattr(f"{room}.{step}", fail)
    node = Node(settings)
    with pytest.raises(OSError, match=step):
        node.lead()
    node.close()

    before.wait_until_nothing_is_left()
    assert node.role is None and not node._data_dir.locked


def test_address_that_cannot_be_had_leaves_no_other_one_open(settings):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        settings.http_port = taken.getsockname()[1]
        settings.port = reserve()
        settings.origins = {"http_port": "the test"}
        node = Node(settings)
        node.lead()
        with pytest.raises(BindError):
            node.open_doors()
        (listener,) = node.listeners
        port = listener.port

        node.close()

        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", port)).close()


def test_follower_that_logs_in_while_its_leader_ends_is_not_met_by_a_fault(settings, monkeypatch):
    """The leader asks for damage at each login that needs a sync, and listens until its end."""
    membership = mock.Mock(replicators=())
    monkeypatch.setattr(node_module, "_membership", lambda settings: membership)
    settings.cluster = True
    node = Node(settings)
    node.lead()
    _, _, damage_count = membership.lead.call_args.args
    counts = []
    membership.close = lambda: counts.append(damage_count())

    node.close()

    assert counts == [0]


@pytest.mark.parametrize("room, end", [
    ("doors", "close"), ("hub", "take_leave"), ("broker", "close"), ("_committer", "stop"), ("hub", "close")])
def test_end_that_fails_at_one_step_does_all_others_and_says_so(settings, monkeypatch, room, end, caplog):
    node = Node(settings)
    node.lead()
    node.close()
    before = Open()
    node.lead()
    node.open_doors()
    failing = getattr(node, room)
    do = getattr(failing, end)

    def fail():
        do()
        raise RuntimeError(f"{room} cannot end")

    monkeypatch.setattr(failing, end, fail)

    with pytest.raises(RuntimeError, match=f"{room} cannot end"):
        node.close()

    before.wait_until_nothing_is_left()
    assert node.role is None and not node._data_dir.locked
    node.close()


@pytest.mark.parametrize("interruption", [KeyboardInterrupt, SystemExit, gevent.GreenletExit, gevent.Timeout])
@pytest.mark.parametrize(("room", "end"), [
    ("hub", "take_leave"), ("broker", "close"), ("_committer", "stop")
])
def test_end_that_is_interrupted_at_one_step_does_all_others_and_ends_whoever_closes(
    settings, monkeypatch, room, end, interruption
):
    """It is an order to whoever closes: a failure that came before does not take its place, and is logged."""
    node = Node(settings)
    node.lead()
    node.close()
    before = Open()
    node.lead()
    node.open_doors()
    interrupted = getattr(node, room)
    do, close_doors = getattr(interrupted, end), node.doors.close

    def interrupt():
        do()
        raise interruption

    def fail():
        close_doors()
        raise RuntimeError("doors cannot end")

    monkeypatch.setattr(interrupted, end, interrupt)
    monkeypatch.setattr(node.doors, "close", fail)

    with pytest.raises(interruption):
        node.close()

    before.wait_until_nothing_is_left()
    assert node.role is None and not node._data_dir.locked


def test_end_that_fails_at_two_steps_raises_the_first_failure_and_logs_the_other(
    settings, monkeypatch, caplog
):
    node = Node(settings)
    node.lead()
    broker = node.broker
    close_users, stop_events = broker.users.close, broker.events.stop

    monkeypatch.setattr(broker.events, "stop", partial(fail_after, stop_events, "the first"))
    monkeypatch.setattr(broker.users, "close", partial(fail_after, close_users, "the second"))

    with pytest.raises(RuntimeError, match="the first"):
        node.close()

    assert "failed at the end, too" in caplog.text and "the second" in caplog.text


def test_queue_that_cannot_be_closed_keeps_no_other_one_open(settings, monkeypatch):
    node = Node(settings)
    node.lead()
    node.close()
    before = Open()
    node.lead()
    vhost = node.broker.vhosts["/"]
    queues = [vhost.declare_queue(name, durable=True)[0] for name in ("first", "second", "third")]
    vhost.declare_exchange("later", "x-delayed-message", durable=True, arguments={"x-delayed-type": "direct"})
    for queue in queues[:2]:
        vhost.queues[queue.name] = UnclosableQueue(queue)

    with pytest.raises(RuntimeError, match="first cannot be closed"):
        node.close()

    assert [queue.closed for queue in queues] == [True] * 3
    assert vhost.exchanges["later"].delayed_store.closed
    before.wait_until_nothing_is_left()


class UnclosableQueue:
    """A queue, but for its end."""

    def __init__(self, queue):
        self._queue = queue

    def __getattr__(self, name):
        return getattr(self._queue, name)

    def close(self, reason):
        fail_after(partial(self._queue.close, reason), f"{self.name} cannot be closed")


def fail_after(do, text):
    do()
    raise RuntimeError(text)


def test_leader_that_is_closing_knows_whether_damage_was_found(tmp_path):
    """A follower may log in until the listener for followers is closed, behind the broker."""
    node = Node(Settings.checked(
        data_dir=str(tmp_path), amqp_port=-1, http_port=-1, metrics_http_port=-1, mqtt_port=-1,
        control_unix_path="", cluster=True, clustering_port=0, cluster_password="a secret of the cluster"))
    node.lead()
    node.open_doors()
    why_no_sync = node._membership._leader.why_no_sync

    node.close()

    assert why_no_sync() == ""
