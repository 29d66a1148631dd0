"""Elector: what a node decides by what the coordinator holds, over the model of etcd."""
import pytest

from gomq_py.cluster.core.elector import (
    ADOPT, DAMAGED_S, FOREIGN_S, HEARING_S, Again, Bootstrap, Campaign, Clear, Deposed, Elector, Follow,
    Lead, Wait,
)
from gomq_py.cluster.core.records import MAX_EPOCH, InSyncRecord, LeaderRecord
from tests.unit.cluster.core.place import CLUSTER, OTHER, A, B, C, Place


@pytest.fixture
def place():
    return Place()


@pytest.fixture
def elector():
    return Elector(A, CLUSTER, 5, "a:1")


# a follower


def test_a_leader_is_followed(place, elector):
    place.keep()
    place.led_by(B)

    assert place.decides(elector) == Follow("b:1", 5)


def test_a_node_of_another_cluster_does_not_follow(place, elector):
    place.keep(cluster=OTHER)
    place.led_by(B)

    assert OTHER in place.decides(elector).reason


def test_a_new_node_follows(place):
    place.keep()
    place.led_by(B)

    assert place.decides(Elector(C, "", 0, "c:1")) == Follow("b:1", 5)


# a candidate


def test_a_member_campaigns_without_a_leader(place, elector):
    place.keep()

    campaign = place.decides(elector)

    assert type(campaign) is Campaign
    assert campaign.record == InSyncRecord(6, {A: 5, B: 5})
    assert campaign.leader == LeaderRecord(A, 6, "a:1")


def test_who_has_won_leads(place, elector):
    place.keep()

    lead = place.wins(elector)

    assert lead == Lead(
        6, CLUSTER, place.etcd.kept["leader"].create_revision, InSyncRecord(6, {A: 5, B: 5}),
        place.etcd.kept["isr"].mod_revision)
    assert place.decides(elector) == lead


def test_the_former_leader_is_told(place, elector):
    place.keep()
    lease = place.led_by(B)
    place.decides(elector)
    place.etcd.end_lease(lease)

    assert place.wins(elector).former == B


def test_two_campaigns_elect_one(place, elector):
    place.keep()
    other = Elector(B, CLUSTER, 5, "b:1")
    campaign = place.decides(other)
    place.wins(elector)
    other.lease = place.etcd.grant(5)

    outcome = place.etcd.transact(campaign.transaction(other.lease))

    assert not outcome.is_done
    assert other.viewed(outcome.view, place.now_s, other.revision) == Follow("a:1", 6)


def test_an_election_is_void_when_the_set_has_changed(place, elector):
    place.keep()
    campaign = place.decides(elector)
    place.keep(members=(B,))

    outcome = place.etcd.transact(campaign.transaction(place.etcd.grant(5)))

    assert not outcome.is_done


def test_an_election_is_void_when_etcd_has_another_cluster(place, elector):
    place.keep()
    campaign = place.decides(elector)
    place.etcd.put("cluster", OTHER.encode())

    assert not place.etcd.transact(campaign.transaction(place.etcd.grant(5))).is_done


@pytest.mark.parametrize("members, epoch, is_whole, words", [
    ((B, C), 5, True, "not in sync"),
    ((A, B), 4, True, "put back, or emptied"),
    ((A, B), 6, True, ADOPT),
    ((A, B), 5, False, "not be on its disk"),
])
def test_who_may_lack_promises_waits(place, members, epoch, is_whole, words):
    place.keep(members=members)

    decision = place.decides(Elector(A, CLUSTER, epoch, "a:1", is_whole))

    assert words in decision.reason and decision.again_s is None


@pytest.mark.parametrize("epoch, position, is_elected", [
    (5, 6, False), (5, 7, True), (5, 8, True), (4, 9, False), (6, 0, True)])
def test_an_older_folder_of_the_same_epoch_waits(place, epoch, position, is_elected):
    """A position of the next epoch counts from zero."""
    place.keep(epoch=6)
    place.etcd.put("isr", InSyncRecord(6, {A: 5, B: 5}, {A: 7}).encode())

    decision = place.decides(Elector(A, CLUSTER, epoch, "a:1", position=position))

    assert type(decision) is (Campaign if is_elected else Wait)


def test_who_may_lack_promises_leads_where_nobody_has_more(place):
    place.keep(members=(A,))

    assert type(place.decides(Elector(A, CLUSTER, 5, "a:1", is_whole=False))) is Campaign


def test_a_copy_of_a_member_is_not_elected(place, elector):
    """Its folder is of the member's epoch, and lacks what the member has acknowledged since the copy."""
    place.keep()
    elector.folder(CLUSTER, 5, is_copy=True)

    decision = place.decides(elector)

    assert type(decision) is Wait and "another node follows the leader with this node's id" in decision.reason


@pytest.mark.parametrize("key, value, words", [
    ("isr", b"rubbish", "`isr` in etcd cannot be read"),
    ("leader", b"rubbish", "`leader` in etcd cannot be read"),
    ("cluster", b"rubbish", "`cluster` in etcd cannot be read"),
    ("isr", InSyncRecord(MAX_EPOCH, {A: 5}).encode(), "highest epoch"),
])
def test_what_cannot_be_read_is_waited_for(place, elector, key, value, words):
    place.keep()
    place.etcd.put(key, value)

    assert words in place.decides(elector).reason


@pytest.mark.parametrize("gone", [("cluster",), ("isr",), ("cluster", "isr")])
def test_an_emptied_etcd_is_waited_for(place, elector, gone):
    place.keep()
    for key in gone:
        place.etcd.delete(key)

    assert ADOPT in place.decides(elector).reason


def test_who_hears_the_leader_lets_it_win_again(place, elector):
    place.keep()
    first = place.decides(elector, hears_leader=True)
    place.now_s += HEARING_S / 2

    second = place.decides(elector, hears_leader=True)

    assert first == Wait("another node may lead first", HEARING_S)
    assert second.again_s == pytest.approx(HEARING_S / 2)
    assert type(place.decides(elector, hears_leader=False)) is Campaign
    place.now_s += HEARING_S / 2
    assert type(place.decides(elector, hears_leader=True)) is Campaign


def test_a_damaged_node_lets_others_win(place):
    place.keep()
    elector = Elector(A, CLUSTER, 5, "a:1", is_damaged=True)

    assert place.decides(elector).again_s == DAMAGED_S
    place.now_s += DAMAGED_S
    assert type(place.decides(elector)) is Campaign


def test_a_clock_that_is_set_back_lengthens_no_wait(place):
    place.keep()
    elector = Elector(A, CLUSTER, 5, "a:1", is_damaged=True)
    place.decides(elector)
    place.now_s -= 1000

    assert place.decides(elector).again_s == DAMAGED_S


def test_the_only_member_waits_for_nobody(place):
    place.keep(members=(A,))

    assert type(place.decides(Elector(A, CLUSTER, 5, "a:1", is_damaged=True))) is Campaign


@pytest.mark.parametrize("value", [b"rubbish", LeaderRecord(B, 5, "b:1").encode()])
def test_a_leader_that_no_election_has_written_is_deleted_after_a_while(place, elector, value):
    """It has no lease and would stay for ever; a leader that lives writes its own over it."""
    place.keep()
    place.etcd.put("leader", value)
    first = place.decides(elector)
    place.now_s += FOREIGN_S

    assert type(first) is not Clear and type(place.decides(elector, hears_leader=True)) is not Clear
    clear = place.decides(elector)
    outcome = place.etcd.transact(clear.transaction)
    assert type(elector.viewed(outcome.view, place.now_s, elector.revision)) is Campaign


def test_a_node_that_may_not_lead_deletes_no_leader(place):
    place.keep(members=(B, C))
    place.etcd.put("leader", b"rubbish")
    elector = Elector(A, CLUSTER, 5, "a:1")
    place.decides(elector)
    place.now_s += FOREIGN_S

    assert type(place.decides(elector)) is Wait


# elections whose answer was lost


def test_an_election_without_an_answer_is_won_when_it_is_seen(place, elector):
    place.keep()
    campaign = place.decides(elector)
    elector.lease = place.etcd.grant(5)
    place.etcd.transact(campaign.transaction(elector.lease))

    assert type(place.decides(elector)) is Lead


def test_the_leader_of_an_earlier_process_is_cleared(place, elector):
    place.keep()
    place.wins(elector)
    later = Elector(A, CLUSTER, 6, "a:1")

    clear = place.decides(later)
    outcome = place.etcd.transact(clear.transaction)

    assert type(clear) is Clear
    assert outcome.is_done and outcome.view.leader is None
    assert type(later.viewed(outcome.view, place.now_s, later.revision)) is Campaign


def test_a_copy_of_a_node_elsewhere_does_not_clear_it(place, elector):
    place.keep()
    place.wins(elector)

    decision = place.decides(Elector(A, CLUSTER, 6, "elsewhere:1"))

    assert type(decision) is Wait and "a copy" in decision.reason


def test_a_leader_of_which_a_copy_was_elected_is_deposed(place, elector):
    place.keep(members=(A,))
    place.wins(elector)
    place.etcd.end_lease(elector.lease)
    place.etcd.put("isr", InSyncRecord(7, {A: 7}).encode())

    assert type(place.decides(elector)) is Deposed


def test_nobody_else_is_cleared(place, elector):
    place.keep()
    place.wins(elector)
    clear = place.decides(Elector(A, CLUSTER, 6, "a:1"))
    place.etcd.delete("leader")
    place.led_by(B)

    assert not place.etcd.transact(clear.transaction).is_done


def test_an_election_with_a_former_lease_is_cleared(place, elector):
    place.keep()
    campaign = place.decides(elector)
    elector.lease = place.etcd.grant(5)
    place.etcd.transact(campaign.transaction(elector.lease))
    elector.lease = place.etcd.grant(5)

    assert type(place.decides(elector)) is Clear


# the first election


def test_a_cluster_begins_once(place):
    elector, other = Elector(A, "", 0, "a:1"), Elector(B, "", 0, "b:1")
    second = place.decides(other)

    lead = place.wins(elector)

    assert lead.epoch == 1 and lead.cluster == CLUSTER and lead.record.members == {A: 0}
    assert not place.etcd.transact(second.transaction(place.etcd.grant(5), OTHER)).is_done
    assert place.decides(other) == Follow("a:1", 1)


def test_who_began_a_cluster_and_died_at_once_goes_on(place):
    """Its folder names no cluster yet, and nothing was promised."""
    elector = Elector(A, "", 0, "a:1")
    place.wins(elector)
    place.etcd.end_lease(elector.lease)

    lead = place.wins(Elector(A, "", 0, "a:1"))

    assert lead.epoch == 2 and lead.cluster == CLUSTER


def test_a_new_node_does_not_take_a_cluster_over(place):
    place.keep(members=(A,))

    reason = place.decides(Elector(B, "", 0, "b:1")).reason

    assert "not in sync" in reason and "a new, empty cluster" in reason


def test_a_new_node_begins_a_cluster_when_the_keys_of_a_lost_one_are_deleted(place):
    place.keep(members=(A,))
    elector = Elector(B, "", 0, "b:1")
    place.decides(elector)
    place.etcd.empty()

    assert type(place.decides(elector)) is Bootstrap


# a leader


def test_a_lost_lease_is_won_again(place, elector):
    place.keep()
    first = place.wins(elector)
    place.etcd.end_lease(elector.lease)

    assert type(place.decides(elector)) is Again
    lead = place.wins(elector)
    assert lead.epoch == first.epoch + 1 and lead.revision > first.revision and lead.former == ""


def test_a_leader_whose_set_has_changed_goes_on(place, elector):
    place.keep()
    lead = place.wins(elector)
    record = InSyncRecord(6, {A: 6})
    place.etcd.put("isr", record.encode())

    assert place.decides(elector) == lead._replace(
        record=record, mod_revision=place.etcd.kept["isr"].mod_revision)


def test_another_leader_deposes(place, elector):
    place.keep()
    place.wins(elector)
    place.etcd.end_lease(elector.lease)
    place.led_by(B, 7)

    decision = place.decides(elector)
    assert isinstance(decision, Deposed) and "leads in epoch 7" in decision.reason


def test_a_deposed_leader_stays_so(place, elector):
    place.keep()
    place.wins(elector)
    place.etcd.end_lease(elector.lease)
    lease = place.led_by(B, 7)
    deposed = place.decides(elector)
    place.etcd.end_lease(lease)

    assert type(deposed) is Deposed
    assert place.decides(elector) == deposed


@pytest.mark.parametrize("epoch, members", [(7, (A, B)), (6, (B,))])
def test_an_election_since_deposes(place, elector, epoch, members):
    place.keep()
    place.wins(elector)
    place.etcd.end_lease(elector.lease)
    place.keep(epoch, members)

    assert type(place.decides(elector)) is Deposed


def lead_again_unseen(place, elector):
    """An Again that is won, and ends, before the leader has seen it."""
    place.wins(elector)
    place.etcd.end_lease(elector.lease)
    again = place.decides(elector)
    elector.lease = place.etcd.grant(5)
    place.etcd.transact(again.transaction(elector.lease))
    place.etcd.end_lease(elector.lease)


def test_an_own_election_that_was_not_seen_deposes(place, elector):
    """It could be another's."""
    place.keep()
    lead_again_unseen(place, elector)

    assert type(place.decides(elector)) is Deposed


def test_an_own_election_that_was_not_seen_is_repeated_where_nobody_else_is_in_sync(place, elector):
    place.keep(members=(A,))
    lead_again_unseen(place, elector)

    assert place.decides(elector).record.epoch == 8
    assert place.wins(elector).epoch == 8


@pytest.mark.parametrize("gone", [("cluster",), ("isr",), ("leader", "cluster", "isr")])
def test_a_leader_is_fenced_by_an_emptied_etcd(place, elector, gone):
    place.keep()
    place.wins(elector)
    for key in gone:
        place.etcd.delete(key)

    decision = place.decides(elector)
    assert isinstance(decision, Wait) and ADOPT in decision.reason


def test_a_leader_is_fenced_by_an_etcd_that_was_put_back(place, elector):
    place.keep()
    place.wins(elector)
    place.etcd.empty()
    place.keep(epoch=4)

    assert ADOPT in place.decides(elector).reason


def test_a_leader_goes_on_over_a_set_that_cannot_be_read(place, elector):
    """Nobody can be elected by it, and InSync writes it anew."""
    place.keep()
    lead = place.wins(elector)
    place.etcd.put("isr", b"rubbish")

    assert place.decides(elector) == lead


def test_a_leader_is_fenced_without_a_lease_and_a_set_that_cannot_be_read(place, elector):
    place.keep()
    place.wins(elector)
    place.etcd.put("isr", b"rubbish")
    place.etcd.end_lease(elector.lease)

    assert type(place.decides(elector)) is Wait


def test_a_leader_whose_value_was_overwritten_goes_on(place, elector):
    """The key is still the one that it has created."""
    place.keep()
    lead = place.wins(elector)
    place.etcd.put("leader", b"rubbish", elector.lease)

    assert place.decides(elector)._replace(mend=None) == lead


@pytest.mark.parametrize("value", [b"rubbish", b"r" * 1000000, LeaderRecord(B, 6, "b:1").encode()])
def test_a_leader_writes_its_own_record_again(place, elector, value):
    """Without its lease the key would stay when this leader is gone, and nobody could be elected."""
    place.keep()
    lead = place.wins(elector)
    place.etcd.put("leader", value)

    outcome = place.etcd.transact(place.decides(elector).mend)

    kept = outcome.view.leader
    assert (LeaderRecord.decode(kept.value), kept.lease) == (LeaderRecord(A, 6, "a:1"), elector.lease)
    assert place.decides(elector) == lead


def test_a_leader_leaves_the_record_of_a_successor_alone(place, elector):
    place.keep()
    place.wins(elector)
    place.etcd.put("leader", b"rubbish")
    mend = place.decides(elector).mend
    place.etcd.delete("leader")
    place.led_by(B, 7)

    assert not place.etcd.transact(mend).is_done


@pytest.mark.parametrize("value", [b"rubbish", LeaderRecord(B, 7, "b:1").encode()])
def test_a_leader_deletes_what_was_written_in_the_place_of_its_record(place, elector, value):
    """No election has written it, and so this leader is not deposed."""
    place.keep()
    place.wins(elector)
    place.etcd.delete("leader")
    place.etcd.put("leader", value)

    clear = place.decides(elector)
    outcome = place.etcd.transact(clear.transaction)

    assert type(clear) is Clear and outcome.view.leader is None
    assert type(elector.viewed(outcome.view, place.now_s, elector.revision)) is Again


# views out of order


def test_a_view_that_a_newer_one_has_overtaken_changes_nothing(place, elector):
    """A read from before the election is answered behind it."""
    place.keep()
    other = place.led_by(B)
    since, overtaken = elector.revision, place.etcd.read()
    place.etcd.end_lease(other)
    lead = place.wins(elector)

    assert elector.viewed(overtaken, place.now_s, since) == lead


def test_an_etcd_with_lower_revisions_is_believed(place, elector):
    """It was emptied: no read that was sent before can say so."""
    place.keep()
    place.wins(elector)
    place.etcd.empty()

    assert ADOPT in place.decides(elector).reason
