"""Membership: what a node with ``follow`` does at its start."""
from gomq_py.cluster import identity
from gomq_py.cluster.identity import Identity
from gomq_py.cluster.membership import Membership
from gomq_py.config.settings import Settings
from gomq_py.storage.disk.plain_files import PlainFiles

LEADER = "127.0.0.1:1"  # nobody answers there


def test_promoted_node_that_was_killed_while_a_sync_was_swapped_in_follows_on(tmp_path):
    """Its ``.cluster`` is the former content's still; the next one has the leader's epoch, in which two nodes
    would lead.
    """
    identity.write(PlainFiles(), tmp_path, Identity(b"c" * 16, b"n" * 16, 2, promoted=LEADER))
    membership = Membership(Settings.checked(
        data_dir=str(tmp_path), cluster_leader=LEADER, cluster_password="a secret of the cluster"))
    assert not membership.must_follow(tmp_path)

    (tmp_path / ".sync.manifest").touch()

    assert membership.must_follow(tmp_path)
