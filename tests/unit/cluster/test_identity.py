"""Identity: the file .cluster."""
import os

import gevent
import pytest

from gomq_py.cluster import identity
from gomq_py.cluster.identity import Identity
from gomq_py.cluster.wire.events import EventError, check_path
from gomq_py.cluster.wire.messages import NO_ID
from gomq_py.errors import ClusterError
from gomq_py.storage.disk.data_dir import NOT_CONTENT, OF_THIS_NODE, DataDir
from gomq_py.storage.disk.files import Files
from tests.support.mirror import Mirror

ONE = Identity(b"c" * 16, b"n" * 16, 3)
LINE = (
    b'{"cluster": "63636363636363636363636363636363", '
    b'"node": "6e6e6e6e6e6e6e6e6e6e6e6e6e6e6e6e", "epoch": 3, "promoted": "", "damaged": false, '
    b'"position": 0, "torn": "", "doubted": "", "unflushed": ""}')


def test_identity_is_read_as_it_was_written(tmp_path):
    identity.write(Files(), tmp_path, ONE)

    assert identity.read(tmp_path) == ONE
    assert (tmp_path / ".cluster").read_bytes() == identity.sha256(LINE).hexdigest().encode() + b"\n" + LINE


@pytest.mark.parametrize("damage", [
    lambda octets: b"", lambda octets: octets[:-1], lambda octets: octets.replace(b": 3,", b": 4,"),
    lambda octets: b"\xff" * 70,
])
def test_damaged_identity_is_an_error(tmp_path, damage):
    identity.write(Files(), tmp_path, ONE)
    path = tmp_path / ".cluster"
    path.write_bytes(damage(path.read_bytes()))

    with pytest.raises(ClusterError, match="is damaged"):
        identity.read(tmp_path)


@pytest.mark.parametrize("content", [
    b"{}", b"[]", b"no", b'{"cluster": "6363", "node": "6e6e", "epoch": 1}', LINE.replace(b" 3,", b' "3",'),
    LINE.replace(b" 3,", b" -3,"), LINE.replace(b'""', b"1"), LINE.replace(b"false", b"0"),
])
def test_strange_content_is_an_error(tmp_path, content):
    (tmp_path / ".cluster").write_bytes(identity.sha256(content).hexdigest().encode() + b"\n" + content)

    with pytest.raises(ClusterError):
        identity.read(tmp_path)


def test_leader_begins_a_cluster_and_stays_in_it(tmp_path):
    first = identity.of_leader(Files(), tmp_path)

    assert first.epoch == 1 and NO_ID not in first
    assert identity.of_leader(Files(), tmp_path) == first


def opened(root):
    return identity.IdentityFile(Files(), root, identity.of_member(Files(), root))


def test_elected_node_takes_the_epoch_of_its_election(tmp_path):
    identity.write(Files(), tmp_path, ONE._replace(promoted="other:5679", damaged=True, position=9))

    file = opened(tmp_path)
    file.take(ONE.cluster_id, 7)

    assert file.identity == identity.read(tmp_path) == ONE._replace(epoch=7, damaged=True)


def test_elected_node_without_a_cluster_is_in_that_one(tmp_path):
    file = opened(tmp_path)
    file.take(b"c" * 16, 1)
    elected = file.identity

    assert elected == identity.read(tmp_path)
    assert (elected.cluster_id, elected.epoch) == (b"c" * 16, 1) and elected.node_id != NO_ID
    file.take(b"c" * 16, 2)
    assert identity.read(tmp_path) == elected._replace(epoch=2)


@pytest.mark.parametrize("cluster_id, epoch, text", [
    (b"d" * 16, 7, "belongs to cluster"),
    (ONE.cluster_id, 2, "is of epoch 3, and this node was elected for 2"),
])
def test_folder_of_another_cluster_or_a_later_epoch_is_not_led(tmp_path, cluster_id, epoch, text):
    identity.write(Files(), tmp_path, ONE)

    with pytest.raises(ClusterError, match=text):
        opened(tmp_path).take(cluster_id, epoch)

    assert identity.read(tmp_path) == ONE


def test_changes_of_two_greenlets_are_both_kept(tmp_path):
    """A leader finds damage while it is elected again."""
    identity.write(Files(), tmp_path, ONE)
    file = opened(tmp_path)

    gevent.joinall([
        gevent.spawn(file.change, damaged=True), gevent.spawn(file.take, ONE.cluster_id, 4)],
        raise_error=True)

    assert file.identity == identity.read(tmp_path) == ONE._replace(epoch=4, damaged=True)


def test_promoted_follower_begins_an_epoch(tmp_path):
    identity.write(Files(), tmp_path, ONE)

    promoted = identity.of_leader(Files(), tmp_path, promoted="broker-1:5679")

    assert promoted == identity.read(tmp_path) == ONE._replace(epoch=4, promoted="broker-1:5679")
    assert identity.of_leader(Files(), tmp_path) == promoted  # after a restart
    assert identity.of_follower(Files(), tmp_path) == ONE._replace(epoch=4)  # of another leader


def test_follower_keeps_its_node_id(tmp_path):
    held = DataDir(tmp_path).follow()
    first = identity.of_follower(Files(), tmp_path)
    again = identity.of_follower(Files(), tmp_path)
    held.close()

    assert first == again and first.cluster_id == NO_ID and first.epoch == 0
    led = identity.of_leader(Files(), tmp_path)
    assert led.node_id == first.node_id and led.cluster_id != NO_ID and led.epoch == 1


def test_folder_of_no_cluster_does_not_follow(tmp_path):
    with DataDir(tmp_path):
        pass

    with pytest.raises(ClusterError, match="holds 'pool' and belongs to no cluster"):
        identity.of_follower(Files(), tmp_path)
    assert identity.read(tmp_path) is None


def test_folder_of_a_cluster_follows(tmp_path):
    with DataDir(tmp_path):
        identity.write(Files(), tmp_path, ONE)

    assert identity.of_follower(Files(), tmp_path) == ONE


def test_names_of_one_node_are_not_in_the_register_and_refused_in_events(tmp_path):
    with DataDir(tmp_path):
        identity.write(Files(), tmp_path, ONE)
    (tmp_path / "lost+found").mkdir()

    files = Files((Mirror(tmp_path, tmp_path / "copy"),))
    files.register.seed(str(tmp_path), NOT_CONTENT)

    paths = [*files.register.paths.values(), *files.register.folders]
    names = {os.path.relpath(path, tmp_path) for path in paths}
    assert names == {"schema_version", "pool", "queues", "transient", "copy"}
    for name in OF_THIS_NODE:
        with pytest.raises(EventError):
            check_path(name)
