"""In-sync set: who is required, admitted and removed, over the model of etcd."""
import pytest

from gomq_py.cluster.core.in_sync import InSync, Progress
from gomq_py.cluster.core.records import IN_SYNC, InSyncRecord, LeaderRecord
from tests.support.etcd_model import EtcdModel

A, B, C = "a" * 32, "b" * 32, "c" * 32
STEP_S = 0.25


class Place:
    """A leader A in epoch 5 with its set, in etcd's model. ``asked``, ``promised``: positions."""

    def __init__(self):
        self.now_s = 1000.0
        self.etcd = EtcdModel(lambda: 0.0)
        self.etcd.put("leader", LeaderRecord(A, 5, "a:1").encode())
        self.asked = self.promised = 0
        self.waits = False  # somebody, for what was promised before
        self.progress = {}
        self.in_sync = None

    def begin(self, *members, epoch=4, positions={}, **arguments):
        """Begin with these members of an epoch."""
        record = InSyncRecord(5, dict.fromkeys((A, *members), epoch), positions)
        self.etcd.put("isr", record.encode())
        self.in_sync = InSync(
            A, 5, self.etcd.kept["leader"].create_revision, record, self.etcd.kept["isr"].mod_revision,
            **arguments)

    def step(self):
        """The next step. Returns its Transaction, or None."""
        self.now_s += STEP_S
        asked = self.asked if self.asked > self.promised or self.waits else None
        return self.in_sync.step(self.now_s, self.progress, asked, self.promised)

    def settle(self, seconds=STEP_S):
        """Steps for some seconds, whose transactions are done. Returns the members."""
        for _ in range(round(seconds / STEP_S)):
            transaction = self.step()
            if transaction is not None:
                self.in_sync.done(self.etcd.transact(transaction))
        return set(self.in_sync.members)

    def positions(self):
        """The positions in etcd."""
        return dict(InSyncRecord.decode(self.etcd.kept[IN_SYNC].value).positions)

    def stored(self):
        """The members in etcd."""
        return dict(InSyncRecord.decode(self.etcd.kept[IN_SYNC].value).members)


@pytest.fixture
def place():
    return Place()


def streams(flushed):
    return Progress(flushed, True)


def test_positions_that_members_have_noted_stand_in_the_set(place):
    """Those of members that do not stream stay, and those of nodes outside do not count."""
    place.begin(B, epoch=5)
    place.progress = {B: Progress(9, True, noted=7), C: Progress(0, False, noted=3)}
    place.in_sync.noted = 8
    place.settle()
    assert place.positions() == {A: 8, B: 7}
    assert place.step() is None

    place.progress = {B: Progress(0, False), C: streams(9)}
    place.settle(1)

    assert place.positions() == {A: 8, B: 7} and C in place.in_sync.members


def test_position_of_an_earlier_epoch_does_not_count(place):
    place.begin(B, positions={A: 20, B: 30})
    place.settle()
    assert place.positions() == {B: 30}

    place.progress = {B: Progress(9, True, noted=0)}
    place.settle()

    assert place.positions() == {} and place.stored() == {A: 5, B: 5}


# the beginning


def test_doors_stay_closed_until_the_leaders_epoch_is_stored(place):
    place.begin()
    assert not place.in_sync.is_open and not place.in_sync.may_promise

    place.settle()

    assert place.in_sync.is_open and place.in_sync.may_promise
    assert place.stored() == {A: 5}


def test_nothing_is_promised_until_each_members_epoch_is_stored(place):
    """Its folder of an earlier epoch, put back, would lead without what was promised meanwhile."""
    place.begin(B)
    place.settle()
    assert place.in_sync.is_open and not place.in_sync.may_promise

    place.progress[B] = streams(0)
    place.settle()

    assert place.stored() == {A: 5, B: 5}
    assert place.in_sync.may_promise


def test_members_are_required_from_the_beginning(place):
    place.begin(B, C)

    assert place.in_sync.required == {B, C}


def test_a_member_whose_sync_is_under_way_keeps_its_epoch(place):
    place.begin(B)
    place.progress[B] = Progress(0, False)

    place.settle(1)

    assert place.stored() == {A: 5, B: 4}


# removal


def test_a_member_without_a_connection_is_removed_behind_the_timeout(place):
    place.begin(B, epoch=5)

    assert place.settle(2.75) == {A, B}
    assert place.settle(0.5) == {A}
    assert place.in_sync.required == set()


def test_the_former_leader_is_removed_sooner(place):
    place.begin(B, C, epoch=5, former=B)

    assert place.settle(1.5) == {A, C}


def test_a_member_without_progress_is_removed_while_somebody_waits(place):
    place.begin(B, epoch=5)
    place.progress[B] = streams(7)
    assert place.settle(6) == {A, B}

    place.asked = 9

    assert place.settle(2.5) == {A, B}
    assert place.in_sync.late == set()
    assert place.settle(1) == {A}


def test_a_slow_member_with_progress_stays(place):
    place.begin(B, epoch=5)
    place.asked = 1000
    for flushed in range(20):
        place.progress[B] = streams(flushed)
        assert place.settle(1) == {A, B}


def test_a_member_that_syncs_is_removed_while_somebody_waits(place):
    place.begin(B, epoch=5)
    place.asked = 9
    for octets in range(4):
        place.progress[B] = Progress(octets, False)
        place.settle(1)

    assert set(place.in_sync.members) == {A}


def test_a_member_that_syncs_is_removed_while_its_epoch_is_waited_for(place):
    """Somebody asks for what is promised, but may_promise holds all promises until B's epoch is stored."""
    place.begin(B, epoch=4)
    place.waits = True
    place.progress = {B: Progress(0, False)}
    place.settle()

    assert not place.in_sync.may_promise and place.settle(3) == {A}
    assert place.in_sync.may_promise


def test_a_removed_member_is_required_until_the_removal_is_answered(place):
    place.begin(B, epoch=5)
    place.settle(2.75)

    transaction = place.step() or place.step()

    assert place.in_sync.required == {B}
    place.in_sync.done(place.etcd.transact(transaction))
    assert place.in_sync.required == set()


def test_a_leader_that_was_stopped_removes_nobody_for_it(place):
    place.begin(B, epoch=5)
    place.progress[B] = streams(0)
    place.asked = 9
    place.settle(1)

    place.now_s += 60

    assert place.settle(1) == {A, B}


@pytest.mark.parametrize("seconds", [-3600, 3600])
def test_a_clock_that_jumps_removes_nobody(place, seconds):
    place.begin(B, epoch=5)
    place.settle(1)

    place.now_s += seconds

    assert place.settle(1) == {A, B}


def test_a_member_whose_disk_has_failed_is_removed_at_once(place):
    place.begin(B, epoch=5)
    place.settle()

    place.in_sync.leave(B)

    assert place.settle() == {A}


def test_a_member_that_has_come_back_does_not_leave(place):
    place.begin(B, epoch=5)
    place.progress[B] = streams(0)
    place.settle()

    place.in_sync.leave(B)

    assert place.settle() == {A, B}


# min_isr


def test_the_set_never_shrinks_below_min_isr(place):
    place.begin(B, C, epoch=5, min_isr=2)
    place.progress[C] = streams(3)
    place.settle(3.5)
    assert set(place.in_sync.members) == {A, C}
    del place.progress[C]

    place.settle(10)

    assert set(place.in_sync.members) == {A, C}
    assert place.in_sync.late == {C}
    assert place.in_sync.required == {C}


def test_the_member_that_is_furthest_behind_goes_first(place):
    place.begin(B, C, epoch=5, min_isr=2)
    place.asked = 9
    place.progress = {B: streams(5), C: streams(4)}

    assert place.settle(4) == {A, B}


def test_with_fewer_than_min_isr_nothing_is_promised(place):
    place.begin(min_isr=2)
    place.settle()
    assert place.in_sync.is_open and not place.in_sync.has_enough and not place.in_sync.may_promise

    place.progress[B] = streams(0)
    transaction = place.step()
    assert not place.in_sync.has_enough
    place.in_sync.done(place.etcd.transact(transaction))

    assert place.in_sync.may_promise


def test_a_dead_member_is_replaced_where_min_isr_allows_no_removal(place):
    place.begin(B, epoch=5, min_isr=2)
    place.settle(5)

    place.progress[C] = streams(0)
    place.settle(1)

    assert set(place.in_sync.members) == {A, C}


# admission


def test_a_follower_that_has_everything_is_admitted(place):
    place.begin()
    place.settle()
    place.promised = place.asked = 10
    place.progress[B] = streams(10)

    assert place.settle() == {A, B}
    assert place.stored()[B] == 5


def test_a_follower_is_required_before_its_admission_is_sent(place):
    place.begin()
    place.settle()
    place.progress[B] = streams(0)

    assert place.step() is not None
    assert place.in_sync.required == {B}
    assert set(place.in_sync.members) == {A}


def test_promises_wait_for_a_follower_that_is_near(place):
    """Under load it never has all that was promised: promises wait for it, then it has."""
    place.begin()
    place.settle()
    for position in (100, 200, 300, 400):
        place.progress[B] = streams(position - 100)
        place.asked = place.promised = position
        transaction = place.step()
    assert transaction is None and place.in_sync.required == {B}

    place.progress[B] = streams(400)

    assert place.settle() == {A, B}


def test_a_follower_that_does_not_come_near_is_given_up(place):
    place.begin()
    place.settle()
    place.asked = place.promised = 100
    place.progress[B] = streams(99)
    place.settle(1)
    place.progress[B] = streams(100)
    place.promised = 101
    place.progress[B] = streams(100)
    place.step()
    place.progress[B] = streams(100)

    place.settle(4)

    assert place.in_sync.required == set()


@pytest.mark.parametrize("found", [Progress(50, False), Progress(50, True, False), streams(9)])
def test_who_is_not_near_is_not_admitted(place, found):
    place.begin()
    place.promised = place.asked = 50
    place.settle(1)
    place.progress[B] = found

    assert place.settle(1) == {A}
    assert place.in_sync.required == set()


def test_who_flaps_waits_longer(place):
    place.begin()
    place.settle()
    waits = []
    for _ in range(4):
        place.progress[B] = streams(0)
        began_s = place.now_s
        while B not in place.settle():
            pass
        waits.append(place.now_s - began_s)
        del place.progress[B]
        place.settle(4)

    assert waits == pytest.approx([0.25, 2.25, 4.25, 8.25], abs=0.3)


# answers that do not come


def test_both_sets_count_while_a_removal_has_no_answer(place):
    place.begin(B, epoch=5)
    place.settle(3)
    place.in_sync.leave(B)
    transaction = place.step()
    place.in_sync.unanswered()

    assert transaction is not None and place.in_sync.required == {B}
    place.step()
    assert place.in_sync.required == {B}


def test_an_admission_without_an_answer_is_ended_by_the_next_change(place):
    """The follower has gone: the set is written as it was, and the admission is impossible from then on."""
    place.begin()
    place.settle()
    place.progress[B] = streams(0)
    admission = place.step()
    place.in_sync.unanswered()
    place.progress.clear()
    assert place.in_sync.required == {B}

    place.settle()

    assert place.in_sync.required == set()
    assert not place.etcd.transact(admission).is_done


def test_an_admission_that_was_made_unseen_counts(place):
    place.begin()
    place.settle()
    place.progress[B] = streams(0)
    place.etcd.transact(place.step())
    place.in_sync.unanswered()

    transaction = place.step()
    outcome = place.etcd.transact(transaction)
    place.in_sync.done(outcome)

    assert not outcome.is_done
    assert set(place.in_sync.members) == {A, B}


def test_many_changes_without_answers_are_kept_once(place):
    place.begin()
    place.progress[B] = streams(0)
    for _ in range(100):
        assert place.step() is not None
        place.in_sync.unanswered()

    assert len(place.in_sync._pending) == 1


def test_a_change_that_was_refused_does_not_count(place):
    place.begin()
    place.settle()
    place.progress[B] = streams(0)
    place.step()
    place.in_sync.not_done()
    del place.progress[B]

    assert place.step() is None
    assert place.in_sync.required == set()


def test_one_change_at_a_time(place):
    place.begin()

    assert place.step() is not None
    assert place.step() is None


# others


def test_another_leader_deposes(place):
    place.begin()
    transaction = place.step()
    place.etcd.delete("leader")
    place.etcd.put("leader", LeaderRecord(B, 6, "b:1").encode())

    place.in_sync.done(place.etcd.transact(transaction))

    assert place.in_sync.is_deposed and not place.in_sync.may_promise
    assert place.step() is None


def test_a_set_of_another_epoch_deposes(place):
    place.begin()
    transaction = place.step()
    place.etcd.put("isr", InSyncRecord(9, {B: 9}).encode())

    place.in_sync.done(place.etcd.transact(transaction))

    assert place.in_sync.is_deposed


def test_a_set_of_an_earlier_epoch_is_written_anew(place):
    """An operator has put it there; nobody else was elected, since `leader` is this one's."""
    place.begin(B, epoch=5)
    place.etcd.put("isr", InSyncRecord(4, {A: 4, B: 4}).encode())
    place.in_sync.leave(B)

    members = place.settle(2 * STEP_S)

    assert not place.in_sync.is_deposed and members == {A} and place.stored() == {A: 5}


def test_a_set_that_somebody_else_has_changed_is_taken(place):
    place.begin(B, epoch=5)
    place.settle(3)
    transaction = place.step() or place.step()
    place.etcd.put("isr", InSyncRecord(5, {A: 5, C: 5}).encode())

    place.in_sync.done(place.etcd.transact(transaction))

    assert place.in_sync.required == {C}


@pytest.mark.parametrize("is_gone", [False, True])
def test_a_set_that_cannot_be_read_is_written_anew(place, is_gone):
    place.begin(B, epoch=5)
    place.progress[B] = streams(0)
    place.settle()
    if is_gone:
        place.etcd.delete("isr")
    else:
        place.etcd.put("isr", b"rubbish")
    place.progress[C] = streams(0)
    place.settle()
    assert place.in_sync.required == {B, C}

    place.settle()

    assert place.stored() == {A: 5, B: 5, C: 5}
