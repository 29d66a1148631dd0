"""Users: changed, kept, and who may come from where."""
import errno
import os
from random import Random
from types import SimpleNamespace

import bcrypt
import gevent
import pytest

from gomq_py.auth import passwords, users
from gomq_py.auth.users import Users, is_loopback
from gomq_py.hub.scheduler import Scheduler
from gomq_py.storage.disk.files import Files
from gomq_py.storage.flush.group_commit import GroupCommit
from gomq_py.storage.logs import definition_log
from gomq_py.storage.logs.framed_log import LogError
from tests.support.passwords import has_password
from tests.support.waiting import wait_until


class State:
    revision = 0


class NoCommitter:
    """Nothing here waits for the disk, and what is changed is written at once; counts what is marked."""

    enabled = False

    def __init__(self):
        self.marked = []
        self.background = SimpleNamespace(short=self, long=self)

    def mark_file(self, file):
        self.marked.append(file)

    def mark_folder(self, path):
        pass

    def add(self, function, *arguments, done):
        pass  # nothing is compacted


def cheap_bcrypt(password):
    """The lowest cost there is: what is tested here is not bcrypt."""
    return bcrypt.hashpw(password, bcrypt.gensalt(4)).decode()


@pytest.fixture
def reopen(tmp_path):
    """A function that opens the users of one folder, as if after a kill."""
    opened = []

    def reopen_users():
        store = Users(Files(), tmp_path / "users", NoCommitter(), Scheduler(), State, only_local=("guest",))
        opened.append(store.open())
        return store

    yield reopen_users
    for store in opened:
        store.close()


def test_users_and_permissions_are_kept(reopen):
    store = reopen()
    store.set_user("ann", password="secret", tags=("monitoring", "management"))
    store.set_permission("ann", "/", "a", "b", "c")
    store.set_permission("ann", "gone", "a", "b", "c")
    store.set_user(
        "bob", password_hash=passwords.hash_password("b", passwords.SHA512), hashing_algorithm="SHA512"
    )
    store.set_user("eve", password="e")
    store.delete_user("eve")
    store.delete_permission("ann", "gone")
    store.set_tags("bob", ["policymaker"])

    store = reopen()

    assert sorted(user.name for user in store) == ["ann", "bob"]
    ann = store.get("ann")
    assert has_password(store, "ann", "secret") and not has_password(store, "ann", "Secret")
    assert ann.tags == ("monitoring", "management")
    assert {
        vhost: (right.configure, right.write, right.read) for vhost, right in ann.permissions.items()
    } == {"/": ("a", "b", "c")}
    assert has_password(store, "bob", "b") and store.get("bob").has_tag("policymaker")


def test_change_is_marked_for_the_next_sync(tmp_path):
    committer = NoCommitter()
    store = Users(Files(), tmp_path / "users", committer, Scheduler(), State).open()

    store.set_user("ann", password="secret")
    store.close()

    assert [file.path for file in committer.marked] == [str(tmp_path / "users")]


def test_user_without_a_password_cannot_log_in(reopen):
    store = reopen()
    store.set_user("ann")

    assert not has_password(store, "ann", "")
    assert not has_password(store, "nobody", "")


def test_repeated_login_is_remembered_until_the_password_changes(reopen):
    store = reopen()
    store.set_user("ann", password_hash=cheap_bcrypt(b"secret"), hashing_algorithm="bcrypt")

    assert store.is_costly("ann", "secret")
    assert has_password(store, "ann", "secret")
    assert not store.is_costly("ann", "secret") and has_password(store, "ann", "secret")
    assert store.is_costly("ann", "wrong") and not has_password(store, "ann", "wrong")

    store.set_user("ann", password_hash=cheap_bcrypt(b"other"), hashing_algorithm="bcrypt")
    assert not has_password(store, "ann", "secret")


def test_remembered_logins_are_bounded(reopen, monkeypatch):
    monkeypatch.setattr(users, "REMEMBERED_LOGINS", 3)
    store = reopen()
    for name in "abcdefgh":
        store.set_user(name, password=name)

    assert all(has_password(store, name, name) for name in "abcdefgh" * 2)
    assert len(store._verified) <= 3


def test_change_of_permissions_changes_the_revision(reopen):
    store = reopen()
    ann = store.set_user("ann", password="secret")
    revisions = [ann.state.revision]

    store.set_permission("ann", "/", "", "", "")
    revisions.append(ann.state.revision)
    store.delete_permission("ann", "/")
    revisions.append(ann.state.revision)
    store.delete_user("ann")
    revisions.append(ann.state.revision)

    assert revisions == sorted(set(revisions))


def test_bad_permission_changes_nothing(reopen):
    store = reopen()
    store.set_user("ann", password="secret")

    with pytest.raises(ValueError):
        store.set_permission("ann", "/", "(", "", "")

    assert store.get("ann").permission("/") is None
    assert reopen().get("ann").permission("/") is None


def test_forgotten_vhost_takes_its_permissions_along(reopen):
    store = reopen()
    for name in ("ann", "bob"):
        store.set_user(name, password="x")
        store.set_permission(name, "v", ".*", ".*", ".*")

    for user in list(store):
        store.forget_vhost("v", user.name)

    assert all(user.permission("v") is None for user in reopen())


class Compacting:
    """Users whose log is long with 20 records too many, beside a committer;
    ``jobs`` are what the log asked the scheduler to run.
    """

    def __init__(self, folder, files=None):
        self.path = folder / "users"
        self.committer = GroupCommit(files or Files())
        self.jobs = []
        self.users = Users(files or Files(), self.path, self.committer, self, State)

    def open(self):
        self.users.open()
        return self

    def start(self, job):
        self.jobs.append(job)

    def run_slice(self):
        if self.jobs and not self.jobs[0].step():
            self.jobs.pop(0)

    def finish(self):
        """Until no compaction is under way."""
        def is_over():
            self.run_slice()
            self.committer.after_sync(lambda error: None)  # it need not wait for the next unhurried one
            return (
                not self.users._log.is_compacting and self.committer.is_idle
                and self.committer.background.is_idle
            )

        wait_until(is_over, sleep=gevent.sleep)

    def stop(self):
        self.committer.wait()
        self.users.close()
        self.committer.stop()

    def content(self):
        """Everything that is said of each user."""
        return {
            user.name: (
                user.password_hash, user.hashing_algorithm, user.tags, user.limits,
                {key: (right.configure, right.write, right.read) for key, right in user.permissions.items()},
                {key: (limit.write, limit.read) for key, limit in user.topic_permissions.items()},
            )
            for user in self.users
        }


@pytest.fixture
def small(monkeypatch):
    monkeypatch.setattr(users, "_SLACK", 20)
    monkeypatch.setattr(definition_log, "SLICE", 2)
    monkeypatch.setattr(definition_log, "COUNTED", 2)


def test_long_log_is_compacted_while_it_is_in_use(tmp_path, small):
    there = Compacting(tmp_path).open()
    for number in range(100):
        there.users.set_user("ann", tags=(str(number),))
        there.finish()
    there.stop()

    again = Compacting(tmp_path).open()

    assert again.users.get("ann").tags == ("99",)
    assert again.users._log.record_count < 40
    assert os.listdir(tmp_path) == ["users"]
    again.stop()


def change_at_random(store, random, number):
    name, vhost = random.choice("abc"), random.choice("vw")
    if name not in store or random.random() < 0.1:
        store.set_user(name, tags=(str(number),), grants=random.choice([(), ("v",)]))
    else:
        random.choice([
            lambda: store.set_tags(name, (str(number),)), lambda: store.delete_user(name),
            lambda: store.set_limits(name, random.choice([{}, {"max-channels": number}])),
            lambda: store.set_permission(name, vhost, "", str(number), ""),
            lambda: store.delete_permission(name, vhost),
            lambda: store.set_topic_permission(name, vhost, "x", str(number), ""),
            lambda: store.delete_topic_permissions(name, vhost),
        ])()


@pytest.mark.parametrize("seed", range(20))
def test_changes_during_a_compaction_are_kept(tmp_path, small, seed):
    random = Random(seed)
    there = Compacting(tmp_path).open()
    compacted = 0
    for number in range(200):
        change_at_random(there.users, random, number)
        if random.random() < 0.5:
            compacted += there.users._log.is_compacting
            there.run_slice()
        if random.random() < 0.1:
            there.committer.wait()
    expected = there.content()
    there.stop()

    again = Compacting(tmp_path).open()

    assert compacted
    assert again.content() == expected
    again.stop()


class SickFiles(Files):
    """Flushes fail while ``is_sick``."""

    is_sick = False

    def sync(self, file):
        if self.is_sick:
            raise OSError(errno.EIO, "Input/output error", file.path)
        super().sync(file)


@pytest.mark.parametrize("is_sick_again", [False, True])
def test_log_whose_flush_failed_is_written_anew_and_takes_changes_again(tmp_path, is_sick_again):
    """At once, or with a later change where the disk was as sick then: no boot is needed."""
    files = SickFiles()
    there = Compacting(tmp_path, files).open()
    there.users.set_user("ann")
    there.committer.wait()
    failed = os.stat(there.path).st_ino
    files.is_sick = True
    there.users.set_user("bob")
    with pytest.raises(OSError, match="Input/output error"):
        there.committer.wait()

    if is_sick_again:
        there.finish()
        there.users.set_user("eve")
        with pytest.raises(OSError, match="Input/output error"):
            there.committer.wait()
    files.is_sick = False
    there.finish()
    if is_sick_again:
        there.users.set_user("eve")
        there.finish()

    there.users.set_user("kim")
    there.committer.wait()
    assert os.stat(there.path).st_ino != failed and os.listdir(tmp_path) == ["users"]
    there.committer.kill()
    again = Compacting(tmp_path).open()
    assert set(again.content()) == {"ann", "bob", "kim", *["eve"] * is_sick_again}
    again.stop()


@pytest.mark.parametrize("address, local", [
    ("127.0.0.1", True), ("127.8.9.10", True), ("::1", True), ("::ffff:127.0.0.1", True), ("", True),
    ("::ffff:192.0.2.1", False),
    ("192.0.2.1", False), ("fe80::1%eth0", False), ("2001:db8::1", False), ("nonsense", False),
    ("0.0.0.0", False),
])
def test_loopback_is_told_from_elsewhere(reopen, address, local):
    assert is_loopback(address) is local
    assert reopen().may_come_from("guest", address) is local
    assert reopen().may_come_from("ann", address)


def test_topic_permissions_are_kept_and_go_with_user_and_vhost(reopen):
    store = reopen()
    for user in ("ann", "bob"):
        store.set_user(user, password="x")
        store.set_topic_permission(user, "/", "amq.topic", "^w", "^r")
    store.set_topic_permission("ann", "/", "events", "^a", "^b")
    store.set_topic_permission("ann", "shop", "events", "^a", "^b")
    store.delete_topic_permissions("ann", "/", "events")
    store.forget_vhost("shop", "ann")
    store.delete_user("bob")
    store.set_user("bob", password="x")

    store = reopen()

    limit = store.get("ann").topic_permission("/", "amq.topic")
    assert (limit.write, limit.read) == ("^w", "^r")
    assert list(store.get("ann").topic_permissions) == [("/", "amq.topic")]
    assert store.get("bob").topic_permissions == {}


def test_lost_topic_expression_allows_nothing(reopen, monkeypatch):
    """An expression that this release's matcher refuses must not open what it closed."""
    store = reopen()
    store.set_user("ann", password="x")
    store._append(
        {"op": "topic-permission", "user": "ann", "vhost": "/", "exchange": "x", "write": "(", "read": ".*"}
    )

    limit = reopen().get("ann").topic_permission("/", "x")

    assert not limit.allows("write", "anything")


def test_changed_topic_permissions_change_the_revision(reopen):
    store = reopen()
    ann = store.set_user("ann", password="x")
    before = ann.state.revision

    store.set_topic_permission("ann", "/", "x", ".*", ".*")
    after_set = ann.state.revision
    store.delete_topic_permissions("ann", "/")

    assert before < after_set < ann.state.revision


def test_file_of_which_nothing_can_be_read_is_an_error_that_says_what_to_do(reopen, tmp_path):
    """Not the first boot again: that would bring back the default user with its known password."""
    reopen().begin([("guest", passwords.hash_password("changed"), passwords.SHA256, (), ())])
    content = (tmp_path / "users").read_bytes()

    for damaged in (
        content[:50] + bytes([content[50] ^ 1]) + content[51:], bytes(len(content)), content[:60]
    ):
        (tmp_path / "users").write_bytes(damaged)
        with pytest.raises(
            LogError, match=r"users: the file is damaged, .* Restore it from a backup, or begin with"
        ):
            reopen()
        assert (tmp_path / "users").read_bytes() == damaged


def test_first_boot_without_users_that_crashes_in_a_later_change_boots(reopen, tmp_path):
    store = reopen()
    store.begin([])
    store.set_user("ann", password="secret")
    content = (tmp_path / "users").read_bytes()
    (tmp_path / "users").write_bytes(content[:-5])

    store = reopen()

    assert not list(store) and not store.is_new


def test_lost_changes_are_said_with_the_file_and_where_its_copy_is(reopen, tmp_path, caplog):
    store = reopen()
    store.begin([("guest", passwords.hash_password("guest"), passwords.SHA256, (), ())])
    store.set_user("ann", password="secret")
    content = bytearray((tmp_path / "users").read_bytes())
    content[90] ^= 1
    (tmp_path / "users").write_bytes(content)

    store = reopen()

    assert [user.name for user in store] == ["ann"]
    assert f"{tmp_path}/users.damaged. Check users, passwords and permissions" in caplog.text


CHANGES = [
    lambda store: store.set_user("bob", password="b"),
    lambda store: store.set_user("ann", password="another"),
    lambda store: store.set_tags("ann", ["monitoring"]),
    lambda store: store.set_limits("ann", {"max-channels": 1}),
    lambda store: store.delete_user("ann"), lambda store: store.set_permission("ann", "/", "", "", ""),
    lambda store: store.delete_permission("ann", "/"),
    lambda store: store.set_topic_permission("ann", "/", "amq.topic", "", ""),
    lambda store: store.delete_topic_permissions("ann", "/"),
]


@pytest.mark.parametrize("change", CHANGES)
def test_change_that_cannot_be_written_is_told_to_nobody_and_not_made(reopen, monkeypatch, change):
    store = reopen()
    store.set_user("ann", password="a", tags=["management"])
    store.set_permission("ann", "/", "a", "b", "c")
    store.set_topic_permission("ann", "/", "amq.topic", "a", "b")
    told = []
    store.on_change = lambda record: told.append(record["op"])
    before = [repr(definition()) for definition in store._snapshot()]

    def refuse(payload):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as full:
        full.setattr(store._log, "append", refuse)
        with pytest.raises(OSError):
            change(store)
    told_of_failed, after = list(told), [repr(definition()) for definition in store._snapshot()]
    change(store)

    assert (told_of_failed, after) == ([], before)
    assert len(told) == 1


def test_change_is_told_when_it_is_written_and_what_was_is_still_there(reopen):
    store = reopen()
    store.set_user("ann", password="a", tags=["management"])
    told = []
    store.on_change = lambda record: told.append(
        (record["tags"], store.get("ann").tags, store._log.record_count)
    )

    store.set_tags("ann", ["monitoring"])

    assert told == [(["monitoring"], ("management",), 2)]


def test_a_user_who_gets_what_there_is_stays_as_it_is(reopen):
    """Neither a record nor an event, and whoever has logged in stays so: by the password as by its hash."""
    store = reopen()
    ann = store.set_user("ann", password="secret", tags=["management", "monitoring"])
    before, count, told = (ann.password_hash, ann.login_revision), store._log.record_count, []
    store.on_change = told.append

    store.set_user("ann", password="secret", tags=["management", "monitoring"])
    store.set_user("ann", password_hash=ann.password_hash, tags=("management", "monitoring"))

    assert ((ann.password_hash, ann.login_revision), store._log.record_count, told) == (before, count, [])


def test_a_user_who_gets_what_may_not_be_on_the_disk_is_written_again(reopen):
    """Or a change that was refused would be answered as done when it is asked for again."""
    store = reopen()
    store.set_user("ann", password="secret", tags=["management"])
    count = store._log.record_count
    store._log._log.file.failure = OSError(errno.EIO, "Input/output error")

    store.set_user("ann", password="secret", tags=["management"])

    assert store._log.record_count == count + 1


def test_a_user_who_gets_other_tags_with_the_same_password_keeps_the_hash(reopen):
    store = reopen()
    before = store.set_user("ann", password="secret", tags=["management"]).password_hash

    store.set_user("ann", password="secret", tags=["monitoring"])

    assert [(user.password_hash, user.tags) for user in reopen()] == [(before, ("monitoring",))]


def test_the_same_password_of_a_weaker_hash_gets_a_new_one(reopen):
    store = reopen()
    store.set_user("ann", password="secret", hashing_algorithm="MD5")

    ann = store.set_user("ann", password="secret")

    assert ann.hashing_algorithm == passwords.SHA256 and has_password(store, "ann", "secret")
