"""Elected membership: what the coordination is told of the folder, and changes that operators ask for."""
import socket
from types import SimpleNamespace

import pytest

from gomq_py.cluster import identity
from gomq_py.cluster.elected import ElectedMembership
from gomq_py.cluster.identity import Identity, IdentityFile
from gomq_py.cluster.membership import Membership
from gomq_py.cluster.wire.messages import NO_ID
from gomq_py.config.settings import Settings
from gomq_py.errors import ClusterError
from gomq_py.net.listener import BindError
from gomq_py.net.tls import TLSError
from gomq_py.storage.disk.plain_files import PlainFiles


class Follower:
    """What was received is not all on the disk, until a sync is swapped in."""

    damage = OSError("broken")
    is_copy = False

    def follow(self, address):
        pass

    def flush(self):
        return self.damage


@pytest.fixture
def membership(tmp_path):
    made = ElectedMembership(Settings.checked(data_dir=str(tmp_path)), connect=SimpleNamespace)
    made._file = IdentityFile(PlainFiles(), str(tmp_path), Identity(b"c" * 16, b"n" * 16, 5))
    made._follower = Follower()
    made._forwarder = SimpleNamespace(leader_changed=lambda: None)
    return made


def test_node_whose_cluster_port_is_taken_does_not_start(tmp_path):
    """It would end whenever it is elected."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        settings = Settings.checked(
            data_dir=str(tmp_path), clustering_bind="127.0.0.1", clustering_port=taken.getsockname()[1])

        with pytest.raises(BindError):
            ElectedMembership(settings, connect=SimpleNamespace).follow(str(tmp_path))


def test_folder_is_whole_again_after_a_sync(membership):
    assert not membership.settle()
    assert not membership.folder.is_whole

    membership._follower.damage = None

    assert membership.folder.is_whole
    assert membership.settle()


def test_leader_without_flushes_is_not_whole_after_a_loss_of_power(tmp_path, monkeypatch):
    """Unless it has ended in order."""
    made = ElectedMembership(Settings.checked(data_dir=str(tmp_path), sync=False), connect=SimpleNamespace)
    made._file = IdentityFile(PlainFiles(), str(tmp_path), Identity(b"c" * 16, b"n" * 16, 5))
    made.take("63" * 16, 6)
    assert made.folder.is_whole
    with monkeypatch.context() as patch:
        patch.setattr(identity, "boot_id", lambda: b"another\n")
        assert not made.folder.is_whole

    made.close()

    assert identity.read(tmp_path).unflushed == ""


def test_failed_flush_of_a_leader_is_noted(tmp_path):
    """A sync of a later process takes nothing from the folder."""
    made = ElectedMembership(Settings.checked(data_dir=str(tmp_path)), connect=SimpleNamespace)
    made._file = IdentityFile(PlainFiles(), str(tmp_path), Identity(b"c" * 16, b"n" * 16, 5))
    made.guard(SimpleNamespace(add=lambda one: None, disk=SimpleNamespace(has_failed=True)))
    assert made.folder.is_whole

    made.note(7)

    kept = identity.read(tmp_path)
    assert kept.position == 7 and not kept.reads_as_on_disk and kept.is_whole


def test_copy_of_a_member_is_told(membership):
    assert not membership.folder.is_copy

    membership._follower.is_copy = True

    assert membership.folder.is_copy


def test_files_of_the_first_sync_are_no_data_of_another_broker(membership, tmp_path):
    """They come into the folder before it is noted that it belongs to a cluster."""
    membership._file.identity = Identity(NO_ID, b"n" * 16, 0)
    assert membership.follow_leader("host:5679") == ""

    (tmp_path / "definitions").write_bytes(b"of the leader")

    assert membership.follow_leader("host:5679") == ""


def test_data_of_another_broker_is_not_overwritten(membership, tmp_path):
    membership._file.identity = Identity(NO_ID, b"n" * 16, 0)
    (tmp_path / "definitions").write_bytes(b"of another broker")

    assert "a node that joins one needs an empty folder" in membership.follow_leader("host:5679")


def test_follower_accepts_no_damage(membership, tmp_path):
    """Its .cluster would be written as it was when the process began, with the epoch of then."""
    membership._file.identity = Identity(b"c" * 16, b"n" * 16, 4, damaged=True)

    with pytest.raises(ClusterError, match="ask the leader"):
        membership.change("accept_damage")

    assert not (tmp_path / ".cluster").exists()


@pytest.mark.parametrize("options, kind", [
    ({"clustering": True}, ElectedMembership), ({"cluster_leader": "127.0.0.1:5679"}, Membership)])
def test_certificate_for_followers_is_looked_for_before_the_node_may_lead(options, kind, tmp_path):
    made = kind(Settings.checked(
        data_dir=str(tmp_path), cluster_password="a secret of the cluster",
        cluster_tls_cert=str(tmp_path / "absent.pem"), **options))

    with pytest.raises(TLSError, match="absent.pem"):
        made.follow(str(tmp_path))
