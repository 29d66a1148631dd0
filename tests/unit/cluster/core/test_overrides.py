"""Overrides: what an operator writes where no election is possible."""
import pytest

from gomq_py.cluster.core.elector import Again, Campaign, Elector
from gomq_py.cluster.core.overrides import UNKNOWN, NotPossible, adopt, force_leader
from gomq_py.cluster.core.records import InSyncRecord
from tests.unit.cluster.core.place import CLUSTER, OTHER, A, B, C, Place


@pytest.fixture
def place():
    return Place()


def override(place, what, node=A, cluster=CLUSTER, epoch=5):
    assert place.etcd.transact(what(place.etcd.read(), node, cluster, epoch)).is_done
    return InSyncRecord.decode(place.etcd.kept["isr"].value)


def test_an_emptied_etcd_is_written_anew(place):
    record = override(place, adopt)

    assert record == InSyncRecord(5 + UNKNOWN, {A: 5})
    assert place.etcd.kept["cluster"].value == CLUSTER.encode()
    assert place.wins(Elector(A, CLUSTER, 5, "a:1")).epoch == 6 + UNKNOWN


def test_a_leader_whose_etcd_was_emptied_leads_on(place):
    """It is fenced until then, and its clients stay connected."""
    place.keep()
    elector = Elector(A, CLUSTER, 5, "a:1")
    place.wins(elector)
    place.etcd.empty()

    override(place, adopt, epoch=6)

    assert type(place.decides(elector)) is Again
    assert place.wins(elector).epoch == 7 + UNKNOWN


def test_a_leader_is_deposed_when_another_node_is_adopted(place):
    place.keep()
    elector = Elector(A, CLUSTER, 5, "a:1")
    place.wins(elector)
    place.etcd.empty()
    override(place, adopt, node=B)
    place.wins(Elector(B, CLUSTER, 5, "b:1"))

    assert B in place.decides(elector).reason


@pytest.mark.parametrize("what, epoch, highest", [(force_leader, 5, 5), (force_leader, 3, 5)])
def test_a_forced_node_is_the_only_one_in_sync(place, what, epoch, highest):
    place.keep(members=(B, C))

    assert override(place, what, epoch=epoch) == InSyncRecord(highest, {A: epoch})
    assert type(place.decides(Elector(A, CLUSTER, epoch, "a:1"))) is Campaign


def test_a_set_that_cannot_be_read_is_forced(place):
    place.keep()
    place.etcd.put("isr", b"rubbish")

    assert override(place, force_leader) == InSyncRecord(5 + UNKNOWN, {A: 5})


@pytest.mark.parametrize("what", [adopt, force_leader])
def test_nothing_is_changed_under_a_leader(place, what):
    place.keep()
    place.led_by(B)

    with pytest.raises(NotPossible):
        what(place.etcd.read(), A, CLUSTER, 5)


@pytest.mark.parametrize("what", [adopt, force_leader])
def test_a_leader_that_no_election_has_written_is_in_nobodys_way(place, what):
    if what is force_leader:
        place.keep(members=(B, C))
    place.etcd.put("leader", b"rubbish")

    override(place, what)

    assert type(place.decides(Elector(A, CLUSTER, 5, "a:1"))) is Campaign


@pytest.mark.parametrize("what", [adopt, force_leader])
def test_a_folder_of_no_cluster_is_refused(place, what):
    with pytest.raises(NotPossible):
        what(place.etcd.read(), A, "", 0)


def test_nothing_is_adopted_where_an_election_is_possible(place):
    place.keep()

    with pytest.raises(NotPossible, match="cluster_force_leader"):
        adopt(place.etcd.read(), A, CLUSTER, 5)


def test_a_node_of_another_cluster_is_not_forced(place):
    place.keep(cluster=OTHER)

    with pytest.raises(NotPossible, match="cluster_adopt"):
        force_leader(place.etcd.read(), A, CLUSTER, 5)


def test_an_override_is_void_when_etcd_has_changed(place):
    transaction = adopt(place.etcd.read(), A, CLUSTER, 5)
    place.keep(members=(B,))

    assert not place.etcd.transact(transaction).is_done
