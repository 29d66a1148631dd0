"""Elected membership: what the coordination is told of the folder, and changes that operators ask for."""
from types import SimpleNamespace

import pytest

from gomq_py.cluster.elected import ElectedMembership
from gomq_py.cluster.identity import Identity
from gomq_py.config.settings import Settings
from gomq_py.errors import ClusterError


class Follower:
    """What was received is not all on the disk, until a sync is swapped in."""

    identity = Identity(b"c" * 16, b"n" * 16, 5)
    damage = OSError("broken")

    def follow(self, address):
        pass

    def flush(self):
        return self.damage


@pytest.fixture
def membership(tmp_path):
    made = ElectedMembership(Settings.checked(data_dir=str(tmp_path)), connect=SimpleNamespace)
    made._follower = Follower()
    made._forwarder = SimpleNamespace(leader_changed=lambda: None)
    return made


def test_folder_is_whole_again_after_a_sync(membership):
    assert not membership.settle()
    assert not membership.folder.is_whole

    membership._follower.damage = None

    assert membership.folder.is_whole
    assert membership.settle()


def test_follower_accepts_no_damage(membership, tmp_path):
    """Its .cluster would be written as it was when the process began, with the epoch of then."""
    membership._identity = Identity(b"c" * 16, b"n" * 16, 4, damaged=True)

    with pytest.raises(ClusterError, match="ask the leader"):
        membership.change("accept_damage")

    assert not (tmp_path / ".cluster").exists()
