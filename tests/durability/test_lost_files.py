"""What a data folder means of which a file is missing, empty, older, or of another folder, after a kill and
after an orderly stop: as the table in docs/storage-format.md says, and never another first boot.
"""
import logging
import os
import re
import shutil
import pytest

from gomq_py.auth.users import Users
from gomq_py.broker.features.stream_offset import FIRST, StreamStart
from gomq_py.ctl import recover
from gomq_py.ctl.fsck import check_folder
from gomq_py.ctl.offline import FolderError
from gomq_py.mqtt.model.kinds import all_kinds
from gomq_py.mqtt.model.session_kind import EXTRA
from gomq_py.mqtt.wire.constants import PUBACK
from gomq_py.storage.disk.data_dir import KILLED, DataDir, DataDirError, logs_left_in, queue_id
from gomq_py.storage.logs.definition_log import DefinitionLog
from gomq_py.storage.message import Message
from tests.support.mqtt_outbound import Peer, mqtt_message, publish
from tests.support.node import Node
from tests.support.streams import STREAM
from tests.support.unflushed import Unflushed
from tests.unit.source_tree import ROOT

OLD, NEW = 2, 5  # messages of each queue when the older copy was made, and at the end
QUEUES = {
    "jobs": {}, "levels": {"x-max-priority": 3}, "quorum": {"x-queue-type": "quorum"}, "log": STREAM}
LATE = {"late": {}, **QUEUES}  # the first was declared after the older copy
WHOLE = (["admin"], dict.fromkeys(LATE, NEW))


def fill(node, name, numbers):
    node.vhost.declare_queue(name, durable=True, arguments=LATE[name])
    for number in numbers:
        node.publish("", name, b"%s-%d" % (name.encode(), number), persistent=True, priority=number % 4)


def made_at(root, end):
    """A data folder whose run has ended so, with an older copy and another folder beside it."""
    other = Node(f"{root}.other", Unflushed())
    for name in QUEUES:
        fill(other, name, range(NEW))
    other.stop()
    node = Node(root, Unflushed())
    node.broker.users.set_user("admin", password_hash="", tags=("administrator",))
    for name in QUEUES:
        fill(node, name, range(OLD))
    node.stop()
    shutil.copytree(root, f"{root}.older")
    node = Node(root, Unflushed())
    node.broker.users.delete_user("guest")
    for name in QUEUES:
        fill(node, name, range(OLD, NEW))
    fill(node, "late", range(NEW))
    node.committer.wait()
    node.wait(lambda: is_noted(root), what="the length of users is noted")
    getattr(node, end)()
    return root


def is_noted(root):
    """Whether .last-run tells all that is in users."""
    return (root / "users").stat().st_size in logs_left_in(root, KILLED)["users"].values()


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """{how its run ended: a data folder}."""
    root = tmp_path_factory.mktemp("made")
    return {end: made_at(root / end, end) for end in ("kill", "stop")}


@pytest.fixture(params=["kill", "stop"])
def root(request, folders, tmp_path):
    """A copy of a folder after either end."""
    return copied(folders, request.param, tmp_path)


def copied(folders, end, tmp_path):
    return shutil.copytree(folders[end], tmp_path / end)


def boot(root):
    """(users, {queue: messages}) of a boot that stops in order again."""
    node = Node(root, Unflushed())
    users = sorted(user.name for user in node.broker.users)
    found = {name: queue.ready_count for name, queue in node.vhost.queues.items()}
    node.stop()
    return users, found


def set_aside(root):
    return sorted(os.listdir(root / "set-aside")) if (root / "set-aside").exists() else []


# Of the stores that have their own rows: the queue or store, and the name of the file.
OTHERS = {
    "consumer_offsets": ("log", "consumer_offsets"), "a session's msgs": ("mqtt.c", "msgs.*"),
    "a session's acks": ("mqtt.c", "acks.*"), "msgs of mqtt.retained": ("mqtt.retained", "msgs.*"),
    "acks of mqtt.retained": ("mqtt.retained", "acks.*"),
}


def made_others_at(root, end):
    """A data folder with the files of OTHERS: a stream and how far a consumer has come in it, a session, and
    what is retained; an older copy and another folder beside it.
    """
    def boot(folder, numbers, how="stop"):
        node = Node(folder, Unflushed(), all_kinds())
        sessions, log = node.vhost.extras[EXTRA], node.vhost.declare_queue("log", True, arguments=STREAM)[0]
        peer = Peer(node).subscribe("t", qos=1)
        for number in numbers:
            publish(node, mqtt_message("t", b"%d" % number, 1))
            topic = f"kept/{number}"
            assert sessions.retained.store(topic, mqtt_message(topic, b"x", 1)) == 1
            node.publish("", "log", b"%d" % number, persistent=True)
            if number == 0:
                peer.acknowledge(PUBACK, peer.packet().packet_identifier)
        peer.disconnect()
        sessions.retained.delete("kept/0")
        reader, message = log.open_reader(StreamStart(FIRST), "joe"), Message()
        while reader.next(message):
            log.note_delivered()
            log.ack(reader.take(1))
        reader.cursor.close()
        for one in (log, sessions.retained, sessions.by_client["c"].queue):
            one.write_out()
        node.committer.wait()
        node.wait(lambda: not sessions.retained._deleting and not sessions.retained.touched)
        getattr(node, how)()

    boot(root.with_name(f"{root.name}.other"), range(NEW))
    boot(root, range(OLD))
    shutil.copytree(root, f"{root}.older")
    boot(root, range(OLD, NEW), end)
    return root


def found_others(root):
    """(messages of the session, of the stream, position of its consumer, retained topics) of a boot."""
    node = Node(root, Unflushed(), all_kinds())
    log, sessions = node.vhost.queue("log"), node.vhost.extras[EXTRA]
    found = (
        sessions.by_client["c"].queue.ready_count, log.ready_count, log.stream.offsets.get("joe"),
        sessions.retained.index.count)
    node.stop()
    return found


WHOLE_OTHERS = NEW - 1, NEW, NEW, NEW - 1


@pytest.fixture(scope="module")
def others(tmp_path_factory):
    """{how its run ended: a data folder}."""
    root = tmp_path_factory.mktemp("others")
    return {end: made_others_at(root / end, end) for end in ("kill", "stop")}


def path_of(root, file):
    """A file of the data folder; msgs and acks are those of the first segment of jobs."""
    if file in OTHERS:
        name, pattern = OTHERS[file]
        return min((root / "queues").glob(f"{queue_id('/', name)}.*/{pattern}"))
    if file not in ("msgs", "acks"):
        return root / file
    found, = [path for path in (root / "queues").rglob("msgs.*") if b"jobs-0" in path.read_bytes()]
    return found.with_name(found.name.replace("msgs", file))


def harm(root, made, file, how):
    path = path_of(root, file)
    if how == "gone":
        path.unlink()
    elif how == "empty":
        path.write_bytes(b"")
    else:
        other = made.with_name(made.name + {"older": ".older", "another's": ".other"}[how])
        shutil.copy(path_of(other, file), path)


def outcome(root, caplog, look=None, whole=WHOLE):
    """What the next boot makes of the folder, in the words of the table."""
    caplog.clear()
    try:
        with caplog.at_level(logging.WARNING, "gomq_py"):
            found = (look or boot)(root)
    except DataDirError as error:
        assert str(root) in str(error)
        return "no boot"
    if caplog.text:
        return "set aside" if set_aside(root) else "said"
    return "no loss" if found == whole else "not noticed"


def table():
    """(file, how, end, outcome) of the cells in docs/storage-format.md; "-": there is no such file then."""
    text = (ROOT / "docs" / "storage-format.md").read_text(encoding="utf-8")
    _, _, section = text.partition("## A file that is not what the last run left")
    for line in section.partition("\n## ")[0].splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if line.startswith("| `"):
            for end, expected in zip(("stop", "kill"), cells[2:4]):
                if expected != "-":
                    yield cells[0].strip("`"), cells[1], end, expected


@pytest.mark.parametrize("file, how, end, expected", list(table()))
def test_folder_with_a_file_that_is_not_what_the_last_run_left_is_what_the_table_says(
    folders, others, tmp_path, caplog, file, how, end, expected
):
    made, looked = (others, (found_others, WHOLE_OTHERS)) if file in OTHERS else (folders, ())
    root = copied(made, end, tmp_path)
    harm(root, made[end], file, how)

    assert outcome(root, caplog, *looked) == expected


@pytest.mark.parametrize("end", ["kill", "stop"])
def test_folder_of_which_nothing_is_missing_is_whole(folders, others, tmp_path, caplog, end):
    assert outcome(copied(folders, end, tmp_path), caplog) == "no loss"
    root = shutil.copytree(others[end], tmp_path / "others")
    assert outcome(root, caplog, found_others, WHOLE_OTHERS) == "no loss"


def test_table_has_every_file_of_a_data_folder(folders):
    files = {name for name in os.listdir(folders["stop"]) if (folders["stop"] / name).is_file()}

    assert files | {"msgs", "acks"} | OTHERS.keys() == {file for file, _, _, _ in table()}


@pytest.mark.parametrize("how", ["gone", "empty"])
@pytest.mark.parametrize("name", ["users", "definitions"])
def test_log_that_an_earlier_run_has_left_and_is_not_there_ends_the_boot_and_the_way_out_is_named(
    root, folders, name, how
):
    harm(root, None, name, how)
    assert [path for path, _ in check_folder(root).damage] == [str(root / name)]

    for _ in range(2):
        with pytest.raises(DataDirError, match=f"{root / name} is {how} .*gomq-py-ctl recover_{name} {root}"):
            Node(root, Unflushed())

    assert not set_aside(root)
    shutil.copy(folders[root.name] / name, root / name)
    assert boot(root) == WHOLE


@pytest.mark.parametrize("at", ["nowhere", "data folder", "logs", "users", "name"])
def test_first_boot_that_was_killed_anywhere_is_no_earlier_run(tmp_path, monkeypatch, at):
    class Killed(BaseException):
        """The process ends here."""

    def kill(*_):
        raise Killed

    root = tmp_path / "data"
    with monkeypatch.context() as patched:
        if at == "data folder":
            patched.setattr(DataDir, "check_logs", kill)
        elif at == "logs":
            patched.setattr(DefinitionLog, "begin", kill)
        elif at == "users":
            patched.setattr(Users, "begin", kill)
        elif at == "name":
            patched.setattr(DataDir, "keep_cluster_name", kill)
        if at != "nowhere":
            with pytest.raises(Killed):
                Node(root, Unflushed())

    assert boot(root) == (["guest"], {})


def test_log_that_was_compacted_before_a_kill_is_the_last_run_s_and_an_earlier_one_is_not(root, caplog):
    """However far the kill lets the compaction come."""
    node = Node(root, Unflushed())
    log = node.broker.users._log
    compacted = [shutil.copytree(root, root.with_name("before"))]
    log._compact()
    following = log._next_id
    node.wait(lambda: following in logs_left_in(root, KILLED)["users"], what="the next log is noted")
    compacted.append(shutil.copytree(root, root.with_name("amid")))
    node.wait(lambda: [following] == list(logs_left_in(root, KILLED)["users"]), what="it is the only one")
    node.kill()

    with caplog.at_level(logging.WARNING, "gomq_py"):
        assert [boot(each) for each in (*compacted, root)] == [WHOLE] * 3
    assert caplog.text == ""
    harm(root, root, "users", "gone")
    shutil.copy(compacted[0] / "users", root / "users")
    assert outcome(root, caplog) == "said"


@pytest.mark.parametrize("how, end", [
    ("gone", "stop"), ("empty", "stop"), ("older", "stop"), ("another's", "stop"), ("another's", "kill")])
def test_positions_that_are_not_those_of_the_last_run_are_said_once_and_kept(
    others, tmp_path, caplog, how, end
):
    """Consumers get messages again, at the worst all. 275d2dcb says nothing."""
    root = copied(others, end, tmp_path)
    path = path_of(root, "consumer_offsets")
    harm(root, others[end], "consumer_offsets", how)
    content = path.read_bytes() if path.exists() else b""
    assert str(path) in [damaged for damaged, _ in check_folder(root).damage]

    with caplog.at_level(logging.WARNING, "gomq_py"):
        found = found_others(root)
        assert f"{path} is " in caplog.text
        caplog.clear()
        assert found_others(root) == found
    assert caplog.text == "" and check_folder(root).damage == []
    assert found[2] == (OLD if how == "older" else None)
    kept = path.with_name("damaged.consumer_offsets")
    assert kept.read_bytes() == content
    node = Node(root, Unflushed(), all_kinds())
    assert node.broker.damage() == (0, [str(kept)])
    node.stop()


def test_all_users_deleted_is_no_lost_file(root):
    node = Node(root, Unflushed())
    for user in node.broker.users:
        node.broker.users.delete_user(user.name)
    node.stop()

    assert boot(root) == ([], dict.fromkeys(LATE, NEW))


@pytest.mark.parametrize("name", ["users", "definitions"])
def test_flipped_bit_at_the_end_of_a_log_is_damage_after_an_orderly_stop_with_a_copy(
    folders, tmp_path, caplog, name
):
    root = copied(folders, "stop", tmp_path)
    content = (root / name).read_bytes()
    flipped = content[:-3] + bytes((content[-3] ^ 1,)) + content[-2:]
    (root / name).write_bytes(flipped)

    assert [path for path, _ in check_folder(root).damage][0] == str(root / name)
    assert outcome(root, caplog) == ("set aside" if name == "definitions" else "said")
    assert f"{name}: {root / name}: changes in bytes" in caplog.text and "cut off" not in caplog.text
    assert (root / f"{name}.damaged").read_bytes() == flipped


def test_users_begin_anew_with_the_one_that_recover_users_makes(root, caplog):
    harm(root, None, "users", "empty")

    recover.recover_users(root, "rescue", "secret")

    with caplog.at_level(logging.WARNING, "gomq_py"):
        node = Node(root, Unflushed())
    rescue, = node.broker.users
    assert rescue.has_tag("administrator") and rescue.permission("/") is not None
    assert node.broker.users.matching_hash("rescue", "secret") and caplog.text == ""
    node.stop()
    with pytest.raises(FolderError, match="can be read"):
        recover.recover_users(root, "rescue", "secret")


def test_messages_come_back_by_recover_queue_after_definitions_have_begun_anew(root, caplog):
    harm(root, None, "definitions", "gone")
    recover.recover_definitions(root)
    with pytest.raises(FolderError, match="can be read"):
        recover.recover_definitions(root)

    assert boot(root) == (["admin"], {})
    arguments = [
        recover.recover_queue(root, folder, "/", f"q{number}")
        for number, folder in enumerate(set_aside(root))]
    assert sorted(map(str, arguments)) == sorted(map(str, LATE.values()))
    with pytest.raises(FolderError, match="there is a queue 'q0'"):
        os.makedirs(root / "set-aside" / "x")
        recover.recover_queue(root, "x", "/", "q0")
    os.rmdir(root / "set-aside" / "x")
    caplog.clear()

    with caplog.at_level(logging.WARNING, "gomq_py"):
        _, found = boot(root)

    assert found == {f"q{number}": NEW for number in range(len(LATE))}
    assert caplog.text == "" and not set_aside(root) and check_folder(root).damage == []


def test_folder_that_was_put_back_under_queues_is_set_aside_again_and_never_removed(root):
    folder = next((root / "queues").iterdir())
    stranger = folder.with_name(f"{folder.name}.0")
    shutil.copytree(folder, stranger)
    assert [path for path, _ in check_folder(root).damage] == [str(stranger)]

    for _ in range(2):
        assert boot(root) == WHOLE

    assert set_aside(root) == [f"{stranger.name}.0"]
    assert not stranger.exists()


def test_folder_of_a_queue_that_was_deleted_is_removed_though_the_log_was_compacted_since(root):
    """The kill comes before its folder is removed, and behind a compaction that knows nothing else of it."""
    node = Node(root, Unflushed())
    log = node.broker._log
    folder, = (root / "queues").glob(f"{queue_id('/', 'jobs')}.*")
    node.broker._factory._removals._begin = lambda: None
    node.vhost.delete_queue("jobs")
    log._compact()
    node.wait(lambda: not log.is_compacting, what="the compaction goes on")
    node.kill()
    assert folder.exists() and b"removal" in (root / "definitions").read_bytes()
    assert check_folder(root).damage == []

    _, found = boot(root)

    assert found == {name: NEW for name in LATE if name != "jobs"}
    assert not folder.exists() and not set_aside(root)


@pytest.mark.parametrize("name, left", [("definitions", ["/"]), ("users", [])])
def test_log_of_which_nothing_was_left_when_it_was_compacted_is_no_lost_one(tmp_path, name, left):
    """Its file was empty on 139f34c2, and the boot refused it."""
    root = tmp_path / "data"
    node = Node(root, Unflushed())
    if name == "users":
        node.broker.users.delete_user("guest")
        log = node.broker.users._log
    else:
        node.broker.delete_vhost("/")
        node.wait(lambda: not os.listdir(root / "queues"), what="nothing is being removed")
        log = node.broker._log
    log._compact()
    node.wait(lambda: not log.is_compacting, what="the compaction goes on")
    node.stop()
    assert check_folder(root).damage == []

    for end in ("kill", "stop"):
        node = Node(root, Unflushed())
        assert list(node.broker.users if name == "users" else node.broker.vhosts) == left
        getattr(node, end)()


def test_cluster_name_stays_with_the_folder_and_two_folders_of_a_machine_have_two(tmp_path, monkeypatch):
    def name_of(root):
        node = Node(root, Unflushed())
        name = node.broker.cluster_name
        node.stop()
        return name

    first, second = name_of(tmp_path / "first"), name_of(tmp_path / "second")
    monkeypatch.setattr("socket.gethostname", lambda: "renamed")

    assert first != second and re.fullmatch(r"gomq-[0-9a-f]{8}@.+", first)
    assert name_of(tmp_path / "first") == first


def test_folder_of_an_earlier_version_keeps_the_name_it_had(root, monkeypatch):
    monkeypatch.setattr("socket.gethostname", lambda: "here")
    (root / "cluster_name").unlink()
    assert boot(root) == WHOLE

    monkeypatch.setattr("socket.gethostname", lambda: "renamed")

    node = Node(root, Unflushed())
    assert node.broker.cluster_name == "gomq@here"
    node.broker.parameters.set_global("cluster_name", "ours")
    assert node.broker.cluster_name == "ours"
    node.stop()
