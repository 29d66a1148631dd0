"""A data folder of every format version there has been opens with all that is in it,
after an orderly stop and after a kill.
"""
import json
import tarfile
from pathlib import Path

import pytest

from gomq_py.ctl.fsck import check_folder
from gomq_py.mqtt.model.session import Subscription
from gomq_py.mqtt.model.session_kind import EXTRA
from gomq_py.mqtt.model.sessions import NEVER
from gomq_py.storage.message import Message
from tests.golden.make import FORMATS, HERE, account, open_node
from tests.support.reading import get

# Pythons before 3.11.4 know no filters.
SAFELY = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}
ARCHIVES = sorted(path.name.removesuffix(".tar.gz") for path in HERE.glob("v*.tar.gz"))


@pytest.mark.parametrize("kind", ["stopped", "killed"])
@pytest.mark.parametrize("version", ARCHIVES)
def test_a_folder_of_this_version_opens_with_everything_in_it(tmp_path, version, kind):
    expected = json.loads((HERE / f"{version}.{kind}.json").read_text())
    with tarfile.open(HERE / f"{version}.tar.gz") as archive:
        archive.extractall(tmp_path, **SAFELY)

    node = open_node(tmp_path / kind)
    found = account(node)
    node.stop()

    assert found.keys() >= expected.keys() - {"formats"}
    for part in expected.keys() - {"formats", "definitions"}:
        assert found[part] == expected[part], part
    for part, entries in expected["definitions"].items():
        if isinstance(entries, list):
            assert [
                _known(entry, old) for entry, old in zip(found["definitions"][part], entries, strict=True)
            ] == entries, part


def _known(entry, old):
    """The part of an entry that was exported then: a later version may say more, in its metadata too."""
    return {key: _known(entry[key], old[key]) if key == "metadata" else entry.get(key) for key in old}


@pytest.mark.parametrize("kind", ["stopped", "killed"])
@pytest.mark.parametrize("version", ARCHIVES)
def test_it_is_the_same_folder_at_the_second_opening(tmp_path, version, kind):
    """Looking takes every message and settles none, so that they come back as redelivered,
    and once more counted.
    """
    expected = json.loads((HERE / f"{version}.{kind}.json").read_text())["queues"]
    with tarfile.open(HERE / f"{version}.tar.gz") as archive:
        archive.extractall(tmp_path, **SAFELY)
    for _ in range(2):
        node = open_node(tmp_path / kind)
        found = account(node)["queues"]
        node.stop()

    assert {name: [entry[:4] for entry in entries] for name, entries in found.items()} == {
        name: [entry[:4] for entry in entries] for name, entries in expected.items()}
    assert all(entry[5] for entries in found.values() for entry in entries)


@pytest.mark.parametrize("kind", ["stopped", "killed"])
@pytest.mark.parametrize("version", ARCHIVES)
def test_messages_that_are_acknowledged_now_are_gone_and_others_follow_them(tmp_path, version, kind):
    """New messages lie in segments of the present version, behind those of the folder's."""
    with tarfile.open(HERE / f"{version}.tar.gz") as archive:
        archive.extractall(tmp_path, **SAFELY)
    node = open_node(tmp_path / kind)
    queue, message = node.vhost.queues["ready"], Message()
    for number in range(12):
        get(queue, message)
        if number % 2:
            queue.ack(message.describe()["location"])
    node.publish("", "ready", b"new", persistent=True)
    queue.write_out()
    node.kill()
    assert check_folder(tmp_path / kind).damage == []

    node = open_node(tmp_path / kind)
    found = account(node)["queues"]["/ ready"]
    node.stop()

    bodies = [entry[2] for entry in found]
    assert bodies[:6] == [f"ready {number}" for number in range(0, 12, 2)] and bodies[-1] == "new"
    assert not [body for body in bodies[6:] if body.startswith("ready")]
    assert check_folder(tmp_path / kind).damage == []


@pytest.mark.parametrize("kind", ["stopped", "killed"])
@pytest.mark.parametrize("version", ARCHIVES)
def test_folder_of_a_time_before_mqtt_gets_its_state(tmp_path, version, kind):
    """A session of each vhost is there at the next boot, beside everything that there was."""
    expected = json.loads((HERE / f"{version}.{kind}.json").read_text())
    with tarfile.open(HERE / f"{version}.tar.gz") as archive:
        archive.extractall(tmp_path, **SAFELY)
    node = open_node(tmp_path / kind)
    names = list(node.broker.vhosts)
    for name in names:
        sessions = node.broker.vhosts[name].extras[EXTRA]
        session = sessions.connect(object(), "c", "guest", False, NEVER, 5).session
        session.subscribe(Subscription("a/+", 1))
    node.stop()

    node = open_node(tmp_path / kind)
    found = {name: node.broker.vhosts[name].extras[EXTRA].by_client["c"].subscriptions for name in names}
    definitions = account(node)["definitions"]
    node.stop()

    assert found == {name: {"a/+": Subscription("a/+", 1)} for name in names}
    assert len(definitions["queues"]) == len(expected["definitions"]["queues"])


def test_the_present_formats_have_a_golden_folder():
    """Raised a version?

    Keep the old reader, then make the new folder beside the old ones: python -m tests.golden.make
    """
    covered = [json.loads(path.read_text())["formats"] for path in Path(HERE).glob("v*.stopped.json")]

    assert FORMATS in covered, (
        f"no golden data folder of {FORMATS}: raise SCHEMA_VERSION of the data folder and run "
        "python -m tests.golden.make"
    )
