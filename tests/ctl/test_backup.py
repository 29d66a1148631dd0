"""Backups of a running broker: what was confirmed before is in them, and half of one is no backup."""
import json
import os
import shutil
import subprocess
import sys
import threading
from contextlib import contextmanager

import pika
import pytest

from gomq_py.ctl import backup_folder
from gomq_py.ctl.backup_folder import DATA, MANIFEST
from gomq_py.ctl.fsck import check_folder
from gomq_py.storage.disk.plain_files import PlainFiles
from gomq_py.storage.message import Message
from tests.ctl.running import Runner, done, environment
from tests.support.broker_process import ROOT, BrokerProcess
from tests.support.node import Node
from tests.support.reading import get
from tests.support.unflushed import Unflushed
from tests.support.waiting import in_time, wait_until

PERSISTENT = pika.BasicProperties(delivery_mode=2)
BODY = b"%09d " + bytes(200)
QUEUES = 5


@pytest.fixture(scope="module")
def broker(tmp_path_factory):
    with BrokerProcess(tmp_path_factory.mktemp("broker") / "data", http_port=0) as broker:
        yield broker


@pytest.fixture(scope="module")
def ctl(broker):
    return ctl_of(broker)


@pytest.fixture(scope="module")
def publishing(broker):
    with publisher_of(broker) as channel:
        yield channel


@pytest.fixture
def channel(publishing):
    """A channel with confirms to the broker, which has no queue ``jobs``."""
    publishing.queue_delete("jobs")
    return publishing


def ctl_of(broker):
    return Runner(f"http://127.0.0.1:{broker.ports['http']}")


@contextmanager
def publisher_of(broker):
    parameters = pika.URLParameters(broker.amqp_url)
    parameters.heartbeat = 0
    with pika.BlockingConnection(parameters) as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        yield channel


class Load(threading.Thread):
    """Publishes with confirms to durable queues until its end, or declares, fills, purges and deletes others.

    ``confirmed``: the numbers of the confirmed messages.
    """

    def __init__(self, broker, churns):
        super().__init__(daemon=True)
        self.confirmed = []
        self.rounds = 0
        self._url, self._churns = broker.amqp_url, churns
        self._ending = threading.Event()

    def run(self):
        with pika.BlockingConnection(pika.URLParameters(self._url)) as connection:
            channel = connection.channel()
            channel.confirm_delivery()
            while not self._ending.is_set():
                self._churn(channel) if self._churns else self._publish(channel)
                self.rounds += 1

    def _publish(self, channel):
        number = self.rounds
        channel.basic_publish("", f"kept-{number % QUEUES}", BODY % number, PERSISTENT)
        self.confirmed.append(number)

    def _churn(self, channel):
        name = f"churned-{self.rounds % 3}"
        channel.queue_declare(name, durable=True)
        for number in range(20):
            channel.basic_publish("", name, BODY % number, PERSISTENT)
        channel.queue_purge(name)
        channel.basic_publish("", name, BODY % 0, PERSISTENT)
        channel.queue_delete(name)

    def end(self):
        self._ending.set()
        self.join(in_time(30))


# gomq-py-ctl, which stops at the first word of a step, says so, and goes on with the next line of its input.
STEPPING = """
import sys
from gomq_py.ctl import __main__, backup
class Stepping(backup.Figures):
    def __call__(self, what, done, total):
        if what == sys.argv[1]:
            print(what, flush=True)
            input()
            sys.argv[1] = ""
step, sys.argv[1:] = sys.argv[1], [sys.argv[1], *sys.argv[2:]]
backup.Figures = Stepping
from gomq_py.ctl.commands import ctl
import gomq_py.ctl.backup
ctl.main(sys.argv[2:])
"""
# The same with a disk that is full once so many blocks were written.
FULL = """
import errno, os, sys
from gomq_py.storage.disk.plain_files import PlainFiles
def full(self, file, start, octets):
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), file.path)
PlainFiles.put = full
from gomq_py.ctl.__main__ import main
sys.exit(main())
"""


def python(code, *arguments):
    return subprocess.Popen(
        [sys.executable, "-c", code, *arguments], text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        stderr=subprocess.PIPE, cwd=ROOT, env=environment())


def stopped_at(step, ctl, *arguments):
    """A gomq-py-ctl that has come to a step, and waits for a line or its end."""
    process = python(STEPPING, step, "--uri", ctl.uri, *arguments)
    assert process.stdout.readline() == f"{step}\n", process.communicate()
    return process


def numbers(folder, *queues):
    """The numbers of the messages in queues of a broker that boots with a data folder."""
    node, message, found = Node(folder, Unflushed()), Message(), []
    for queue in queues:
        while get(node.vhost.queues[queue], message):
            found.append(int(bytes(message.get_body()[:9])))
    node.stop()
    return found


def fill(channel, first, end):
    channel.queue_declare("jobs", durable=True)
    for number in range(first, end):
        channel.basic_publish("", "jobs", BODY % number, PERSISTENT)


def is_sound(folder):
    return check_folder(folder).damage == []


def test_a_backup_under_load_has_all_that_was_confirmed_before_it_began(broker, ctl, channel, tmp_path):
    names = [f"kept-{number}" for number in range(QUEUES)]
    for name in names:
        channel.queue_declare(name, durable=True)
    loads = [Load(broker, churns) for churns in (False, True)]
    for load in loads:
        load.start()
    wait_until(lambda: loads[0].rounds > 100 and loads[1].rounds > 2)
    confirmed = list(loads[0].confirmed)
    backup, folder = tmp_path / "backup", tmp_path / "restored"

    finished = ctl("backup", str(backup))
    for load in loads:
        assert load.is_alive()
        load.end()

    assert finished.returncode == 0 and f"{backup} is a whole backup: " in finished.stderr, finished.stderr
    assert is_sound(backup / DATA)
    done(ctl("restore", str(backup), str(folder)))
    assert is_sound(folder) and not (folder / ".cluster").exists()
    assert set(confirmed) <= set(numbers(folder, *names))
    assert is_sound(folder)


def test_a_second_backup_into_the_folder_copies_what_differs(broker, ctl, channel, tmp_path):
    backup, folder = tmp_path / "backup", tmp_path / "restored"
    fill(channel, 0, 50)
    done(ctl("backup", str(backup)))
    octets = json.loads((backup / MANIFEST).read_text())["bytes"]
    fill(channel, 50, 60)
    done(ctl("backup", str(backup)))

    sent = [line for line in broker.log if "sync done" in line][-1]
    assert int(sent.split("sync done, ")[1].split()[0]) < octets / 2
    done(ctl("restore", str(backup), str(folder)))
    assert numbers(folder, "jobs") == list(range(60))


def test_a_broker_with_a_follower_is_backed_up_beside_it(tmp_path):
    secret = tmp_path / "secret"
    secret.write_text("sixteen octets or more")
    secret.chmod(0o600)
    options = {"http_port": 0, "cluster": True, "cluster_port": 0, "cluster_secret_file": secret}
    with BrokerProcess(tmp_path / "broker", **options) as broker:
        with publisher_of(broker) as channel:
            fill(channel, 0, 20)
        done(ctl_of(broker)("backup", str(tmp_path / "backup")))
    done(Runner("")("restore", str(tmp_path / "backup"), str(tmp_path / "restored"), bare=True))
    assert numbers(tmp_path / "restored", "jobs") == list(range(20))


def test_a_killed_backup_is_half_of_one_and_disturbs_nothing(ctl, channel, tmp_path):
    backup, folder = tmp_path / "backup", tmp_path / "restored"
    fill(channel, 0, 20)

    for step in ("copying", "checking"):
        stopped_at(step, ctl, "backup", str(backup)).kill()
        refused = ctl("restore", str(backup), str(folder))
        assert refused.returncode == 2 and f"is no whole backup: it has no {MANIFEST}" in refused.stderr
        assert not folder.exists()
    fill(channel, 20, 40)
    wait_until(lambda: ctl("backup", str(backup)).returncode == 0)  # the broker sees soon that nobody copies

    done(ctl("restore", str(backup), str(folder)))
    assert numbers(folder, "jobs") == list(range(40))


def test_a_killed_second_backup_leaves_the_first_one_or_none(ctl, channel, tmp_path):
    backup = tmp_path / "backup"
    fill(channel, 0, 20)
    done(ctl("backup", str(backup)))
    fill(channel, 20, 40)

    stopped_at("copying", ctl, "backup", str(backup)).kill()
    done(ctl("restore", str(backup), str(tmp_path / "first")))
    assert numbers(tmp_path / "first", "jobs") == list(range(20))

    stopped_at("checking", ctl, "backup", str(backup)).kill()
    refused = ctl("restore", str(backup), str(tmp_path / "second"))
    assert refused.returncode == 2 and "is not as it was when the backup ended" in refused.stderr
    assert f"Run gomq-py-ctl backup {backup} again." in refused.stderr
    assert not any(name for name in os.listdir(tmp_path / "second") if not name.startswith("."))


def test_a_broker_that_is_killed_meanwhile_ends_the_backup_in_words(tmp_path):
    with BrokerProcess(tmp_path / "broker", http_port=0) as broker:
        process = stopped_at("copying", ctl_of(broker), "backup", str(tmp_path / "backup"))
        broker.kill()
    said = process.communicate("\n", timeout=in_time(60))[1]

    assert process.returncode == 2 and "gomq-py-ctl: the copy was cut off: " in said, said
    assert not (tmp_path / "backup" / MANIFEST).exists()


def test_a_full_disk_ends_the_backup_in_words_and_not_the_broker(ctl, channel, tmp_path):
    fill(channel, 0, 20)

    process = python(FULL, "--uri", ctl.uri, "backup", str(tmp_path / "backup"))
    said = process.communicate(timeout=in_time(60))[1]

    assert process.returncode == 2 and "No space left on device" in said, said
    fill(channel, 20, 40)
    done(ctl("backup", str(tmp_path / "another")))


def test_a_backup_is_for_administrators(ctl, tmp_path):
    done(ctl("add_user", "watcher", "secret"))
    done(ctl("set_user_tags", "watcher", "monitoring"))

    refused = ctl("-u", "watcher", "backup", str(tmp_path / "backup"), GOMQ_CTL_PASSWORD="secret")

    assert refused.returncode == 1 and "not authorised" in refused.stderr


def test_a_folder_with_other_things_is_left_alone(ctl, tmp_path):
    (tmp_path / "thesis.tex").write_text("dear")

    refused = ctl("backup", str(tmp_path))

    assert refused.returncode == 2
    assert refused.stderr == (
        f"gomq-py-ctl: {tmp_path} holds 'thesis.tex', and so is no backup: name an empty or a new folder\n")


def test_a_folder_inside_the_data_folder_would_be_copied_too_and_is_refused(broker, ctl):
    refused = ctl("backup", str(broker.data_dir / "queues" / "backup"))

    assert refused.returncode == 2
    assert f"is inside {broker.data_dir}, a data folder: the backup would copy itself" in refused.stderr
    assert not (broker.data_dir / "queues" / "backup").exists()


def test_a_link_in_the_data_folder_is_named(broker, ctl, tmp_path):
    link = broker.data_dir / "link"
    link.symlink_to("/dev/null")
    try:
        refused = ctl("backup", str(tmp_path / "backup"))
    finally:
        link.unlink()

    assert refused.returncode == 1 and f"{link} is a link: " in refused.stderr, refused.stderr
    done(ctl("backup", str(tmp_path / "backup")))


def test_a_backup_of_another_broker_is_left_alone(ctl, tmp_path):
    done(ctl("backup", str(tmp_path / "backup")))
    before = (tmp_path / "backup" / MANIFEST).read_bytes()

    with BrokerProcess(tmp_path / "other", http_port=0) as other:
        refused = ctl_of(other)("backup", str(tmp_path / "backup"))

    assert refused.returncode == 2 and "is the backup of another broker" in refused.stderr
    assert (tmp_path / "backup" / MANIFEST).read_bytes() == before


@pytest.fixture(scope="module")
def whole(ctl, publishing, tmp_path_factory):
    """A whole backup of a broker with 20 messages."""
    folder = tmp_path_factory.mktemp("whole") / "backup"
    publishing.queue_delete("jobs")
    fill(publishing, 0, 20)
    done(ctl("backup", str(folder)))
    return folder


@pytest.fixture
def backup(whole, tmp_path):
    return shutil.copytree(whole, tmp_path / "backup")


def flip(path):
    octets = bytearray(path.read_bytes())
    octets[len(octets) // 2] ^= 1
    path.write_bytes(octets)


def of_later_version(backup):
    path = backup / MANIFEST
    path.write_text(json.dumps({**json.loads(path.read_text()), "version": 2}))


def without_total(backup):
    path = backup / MANIFEST
    manifest = json.loads(path.read_text())
    del manifest["bytes"]
    path.write_text(json.dumps(manifest))


def that_climbs(backup):
    path = backup / MANIFEST
    manifest = json.loads(path.read_text())
    manifest["files"]["../../stray"] = manifest["files"].pop("users")
    path.write_text(json.dumps(manifest))


@pytest.mark.parametrize(("harm", "reason"), [
    (lambda backup: flip(next(backup.glob("data/queues/*/msgs.*"))), "is not as it was"),
    (lambda backup: (backup / DATA / "users").unlink(), f"users is missing, but in {MANIFEST}"),
    (lambda backup: (backup / DATA / "more").touch(), f"more is in it, but not in {MANIFEST}"),
    (lambda backup: (backup / MANIFEST).write_text("{"), "is damaged"),
    (lambda backup: (backup / MANIFEST).write_text("[" * 200_000), "is damaged"),
    (without_total, "is damaged"),
    (that_climbs, "is damaged"),
    (of_later_version, "is a backup of version 2"),
], ids=["bit", "lost", "more", "torn manifest", "deep manifest", "total", "path", "version"])
def test_what_is_no_whole_backup_is_refused(backup, tmp_path, harm, reason):
    harm(backup)

    refused = Runner("")("restore", str(backup), str(tmp_path / "new"), bare=True)

    assert refused.returncode == 2 and reason in refused.stderr, refused.stderr
    new = tmp_path / "new"
    assert not new.exists() or not [name for name in os.listdir(new) if not name.startswith(".")]
    assert not (tmp_path / "stray").exists()


def test_a_restore_cut_off_at_its_last_renames_is_finished_by_a_broker(backup, tmp_path, monkeypatch):
    folder = tmp_path / "new"

    def sync_folder(_files, path):
        if path == folder and any(not name.startswith(".") for name in os.listdir(folder)):
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(PlainFiles, "sync_folder", sync_folder)
        with pytest.raises(KeyboardInterrupt):
            backup_folder.restore(backup, folder, lambda *_: None)

    refused = Runner("")("restore", str(backup), str(folder), bare=True)

    assert refused.returncode == 2 and "the start of a broker ends them" in refused.stderr
    assert numbers(folder, "jobs") == list(range(20))


def test_a_folder_with_data_is_not_restored_into(backup, tmp_path):
    into = shutil.copytree(backup / DATA, tmp_path / "busy")
    before = {path: path.read_bytes() for path in into.rglob("*") if path.is_file()}

    refused = Runner("")("restore", str(backup), str(into), bare=True)

    assert refused.returncode == 2 and "restored into an empty or a new folder" in refused.stderr
    assert {path: path.read_bytes() for path in into.rglob("*") if path.is_file()} == before


def test_names_of_files_cannot_write_on_the_terminal(tmp_path):
    folder = tmp_path / "\x1b[2J\r\n"
    folder.mkdir()

    for command in (("restore", str(folder), str(tmp_path / "data")), ("fsck", str(folder))):
        refused = Runner("")(*command, bare=True)
        assert refused.returncode == 2 and refused.stdout == ""
        assert r"\x1b[2J\r\n" in refused.stderr and refused.stderr[:-1].isprintable()
