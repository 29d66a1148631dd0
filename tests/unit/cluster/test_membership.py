"""Membership: whether a node that was promoted follows its former leader again."""
from types import SimpleNamespace

import gevent
import pytest

from gomq_py.cluster import identity, membership
from gomq_py.cluster.identity import Identity
from gomq_py.cluster.login import LeaderLogin
from gomq_py.cluster.membership import Membership
from gomq_py.cluster.wire import frames
from gomq_py.cluster.wire.frames import FrameReader
from gomq_py.cluster.wire.messages import Refused
from gomq_py.config.settings import Settings
from gomq_py.storage.disk.plain_files import PlainFiles
from tests.support.played_leader import CLUSTER, RUN, SECRET
from tests.support.ports import reserve
from tests.support.waiting import TIMEOUT_S


def refuse(leader, epoch):
    """As a leader does in whose folder damage was found: when the follower has proved who it is."""
    leader.greet()
    leader.reader = FrameReader()
    login = LeaderLogin(SECRET, CLUSTER, epoch, RUN, lambda run, position: False)
    leader.connection.sendall(login.feed(leader._frame()))
    login.feed(leader._frame())
    leader.connection.sendall(frames.encode(frames.REFUSED, Refused("damaged").encode(), epoch))


@pytest.mark.parametrize("epoch, follows", [(4, True), (3, False)])
def test_node_that_was_promoted_follows_a_later_leader_that_refuses_it(
        leader, root, epoch, follows, monkeypatch):
    """Both would lead otherwise."""
    monkeypatch.setattr(membership, "ANSWER_S", TIMEOUT_S)
    address = f"127.0.0.1:{leader.port}"
    identity.write(PlainFiles(), root, Identity(CLUSTER, b"n" * 16, 3, promoted=address))
    settings = Settings.checked(
        data_dir=str(root), cluster_leader=address, cluster_password=SECRET.decode())
    playing = gevent.spawn(refuse, leader, epoch)

    assert Membership(settings).must_follow(str(root)) is follows
    playing.get()


def test_promoted_node_that_was_killed_while_a_sync_was_swapped_in_follows_on(tmp_path):
    """Its ``.cluster`` is the former content's still; the next one has the leader's epoch, in which two nodes
    would lead.
    """
    address = f"127.0.0.1:{reserve()}"  # nobody answers there
    identity.write(PlainFiles(), tmp_path, Identity(b"c" * 16, b"n" * 16, 2, promoted=address))
    one = Membership(Settings.checked(
        data_dir=str(tmp_path), cluster_leader=address, cluster_password="a secret of the cluster"))
    assert not one.must_follow(tmp_path)

    (tmp_path / ".sync.manifest").touch()

    assert one.must_follow(tmp_path)


def test_copy_whose_flush_has_failed_is_promoted_by_force_only(root):
    """Also by another process than the one in which it failed."""
    one = Membership(Settings.checked(data_dir=str(root), cluster_leader="other:5679"))
    torn = Identity(CLUSTER, b"n" * 16, 3, torn=identity.this_boot())
    one._follower = SimpleNamespace(is_whole=True, is_syncing=False, identity=torn)

    assert "a flush has failed" in one.why_not_promote(False)
    assert one.why_not_promote(True) == ""

    one._follower.identity = torn._replace(torn="of an earlier boot")
    assert one.why_not_promote(False) == ""
