"""A node's loop against a model of etcd: it campaigns, leads, is fenced, goes on, and is deposed."""
import gevent
import pytest

from gomq_py.cluster import coordination, leadership
from gomq_py.cluster.coordination import Coordination
from gomq_py.cluster.member import Folder
from gomq_py.cluster.core.in_sync import Progress
from gomq_py.cluster.core.promises import Promises
from gomq_py.cluster.core.records import CLUSTER, IN_SYNC, LEADER, NODES, InSyncRecord, LeaderRecord, decoded
from gomq_py.cluster.core.transactions import CoordinatorError, Unanswered
from gomq_py.errors import ClusterError
from gomq_py.hub.gate import Gate
from gomq_py.hub.scheduler import Scheduler
from tests.support.etcd_model import EtcdModel
from tests.support.waiting import TIMEOUT_S, wait_until

ONE, TWO, THREE = "1" * 32, "2" * 32, "3" * 32
HERE = "c" * 32


def wait(condition, **more):
    return wait_until(condition, sleep=gevent.sleep, **more)


class Clock:
    def __init__(self):
        self.now_s = 100.0

    def __call__(self):
        return self.now_s


class Etcd:
    """The model, whose calls a test makes fail: ``fault`` raises before the call, ``lost`` behind those of
    ``losing``.
    """

    def __init__(self, clock):
        self.model = EtcdModel(clock)
        self.fault = self.lost = None
        self.losing = {"transact", "keep_alive"}
        self.reads = 0

    def __getattr__(self, name):
        call = getattr(self.model, name)

        def asked(*arguments):
            gevent.sleep(0)
            self.reads += name == "read"
            if self.fault is not None:
                raise self.fault
            result = call(*arguments)
            if self.lost is not None and name in self.losing:
                raise self.lost
            return result

        return asked if name in ("read", "transact", "grant", "keep_alive", "revoke") else call


class Alarms:
    def __init__(self):
        self.on = {}

    def set(self, source, word, detail=""):
        self.on[source] = word

    def clear(self, source, detail=""):
        self.on.pop(source, None)


class Links:
    """What the leader's links tell."""

    def __init__(self):
        self.progress = {}

    def take_leavers(self):
        return set()


class Holds:
    def count(self, in_sync, least):
        self.is_on = in_sync < least


class Node:
    """A Member that notes what it is told."""

    def __init__(self, etcd, clock, node=ONE, cluster="", epoch=0, position=0, **options):
        self.folder = Folder(cluster, epoch, position=position)
        self.hears_leader = self.is_hanging = False
        self.is_flushed = True
        self.told = []
        self.refuses_to_take = None
        self.scheduler, self.alarms, self.links, self.holds = Scheduler(), Alarms(), Links(), Holds()
        self.promises = Promises()
        self.leadership = None
        self.coordination = Coordination(
            etcd, self, node, "name", "host:5679", self.promises, clock=clock, **options)

    def hangs(self):
        return self.is_hanging

    def follow_leader(self, address):
        if self.told[-1:] != [("follow", address)]:
            self.told.append(("follow", address))
        return ""

    def settle(self):
        self.told.append("settle")
        return self.is_flushed

    def take(self, cluster, epoch):
        if self.refuses_to_take is not None:
            raise self.refuses_to_take
        self.folder = Folder(cluster, epoch)
        self.told.append(("take", epoch))

    def note(self, position):
        self.folder = self.folder._replace(position=position)

    def elected(self, leadership, is_first):
        self.leadership, self.is_first = leadership, is_first
        leadership.serve(Gate(self.scheduler), self.alarms, self.links, self.holds)
        leadership.start()
        self.told.append("elected")

    def lead_on(self, epoch):
        self.told.append(("lead on", epoch))

    def end_links(self):
        self.told.append("end links")
        self.leader_at_end = leader_in(self.coordination._coordinator)

    def deposed(self, reason):
        self.told.append("deposed")
        self.reason = reason

    @property
    def is_open(self):
        return self.leadership is not None and self.leadership.opened.is_set()


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def etcd(clock):
    return Etcd(clock)


@pytest.fixture
def begin(etcd, clock):
    made = []

    def begin(**options):
        node = Node(etcd, clock, **options)
        made.append(node)
        node.coordination.start()
        return node

    yield begin
    for node in made:
        etcd.fault = etcd.lost = None
        node.coordination.stop()


def leader_in(etcd):
    return decoded(etcd.model.read().leader, LeaderRecord.decode)


def in_sync_in(etcd):
    return decoded(etcd.model.read().in_sync, InSyncRecord.decode)


def put_cluster(etcd, members, epoch=3):
    etcd.model.put(CLUSTER, HERE.encode())
    etcd.model.put(IN_SYNC, InSyncRecord(epoch, members).encode())


def put_leader(etcd, node, epoch, address="other:5679"):
    lease = etcd.model.grant(5)
    etcd.model.put(LEADER, LeaderRecord(node, epoch, address).encode(), lease)
    return lease


def test_first_node_begins_the_cluster_and_opens(etcd, begin):
    node = begin()

    wait(lambda: node.is_open)

    assert node.told == ["settle", ("take", 1), "elected"]
    assert (leader_in(etcd).node, in_sync_in(etcd)) == (ONE, InSyncRecord(1, {ONE: 1}))
    assert node.folder.cluster == etcd.model.read().cluster.value.decode()
    assert not node.scheduler.is_shut and node.alarms.on == {}
    kept = []
    node.promises.ask(5, kept.append)
    assert kept == [None]


def test_node_follows_the_leader_that_etcd_names(etcd, begin):
    put_cluster(etcd, {ONE: 3, TWO: 3})
    put_leader(etcd, TWO, 3)

    node = begin(cluster=HERE, epoch=3)

    wait(lambda: node.told)
    assert node.told == [("follow", "other:5679")]


def test_member_of_the_in_sync_set_is_elected_when_the_leader_is_gone(etcd, begin):
    put_cluster(etcd, {ONE: 3, TWO: 3})
    lease = put_leader(etcd, TWO, 3)
    node = begin(cluster=HERE, epoch=3)
    wait(lambda: node.told)

    etcd.model.end_lease(lease)

    wait(lambda: node.is_open)
    assert leader_in(etcd) == (ONE, 4, "host:5679")
    assert in_sync_in(etcd) == InSyncRecord(4, {ONE: 4, TWO: 3})


def test_promises_wait_until_the_former_leader_is_removed(etcd, clock, begin):
    put_cluster(etcd, {ONE: 3, TWO: 3})
    node = begin(cluster=HERE, epoch=3)
    wait(lambda: node.is_open)
    kept = []
    node.promises.ask(1, kept.append)

    def pass_time():
        clock.now_s += 0.1
        return kept

    assert kept == []
    wait(pass_time)

    assert kept == [None] and in_sync_in(etcd) == InSyncRecord(4, {ONE: 4})


def test_election_whose_answer_is_lost_is_won_when_it_is_seen(etcd, begin):
    etcd.lost = Unanswered("lost by the test")
    node = begin()
    wait(lambda: leader_in(etcd) is not None)

    etcd.lost = None

    wait(lambda: node.is_open)
    assert leader_in(etcd).epoch == 1


def test_member_is_elected_with_no_older_copy_of_its_folder(etcd, clock, begin, monkeypatch):
    """The copy is of the same epoch, and nobody leads when the folder is put back."""
    monkeypatch.setattr(leadership, "NOTE_S", 0.0)
    put_cluster(etcd, {ONE: 3})
    node = begin(cluster="c" * 32, epoch=3)
    wait(lambda: node.is_open)
    node.promises.ask(7, lambda error: None)
    wait(lambda: in_sync_in(etcd).positions == {ONE: 7})
    node.coordination.stop()

    older = begin(cluster="c" * 32, epoch=4, position=6)
    wait(lambda: "was put back" in getattr(older.coordination.decision, "reason", ""))
    older.folder = older.folder._replace(position=7)
    older.coordination.look()

    wait(lambda: older.is_open)


def test_failed_flush_keeps_a_node_from_a_campaign(etcd, begin):
    put_cluster(etcd, {ONE: 3, TWO: 3})
    node = begin(cluster=HERE, epoch=3)
    node.is_flushed = False

    wait(lambda: "settle" in node.told)
    assert leader_in(etcd) is None


def test_leader_without_answers_is_fenced_past_its_deadline_and_opens_again(etcd, clock, begin):
    node = begin()
    wait(lambda: node.is_open)
    etcd.fault = CoordinatorError("cut by the test")
    kept = []

    clock.now_s += 3.9
    wait(lambda: node.coordination.error)
    assert not node.leadership.is_fenced
    clock.now_s += 0.2
    wait(lambda: node.leadership.is_fenced)
    node.promises.ask(7, kept.append)
    assert node.scheduler.is_shut and "contact with etcd" in node.alarms.on and kept == []

    etcd.fault = None
    clock.now_s += 0.85  # the next keepalive is due, and the lease has not ended
    wait(lambda: not node.leadership.is_fenced)
    assert not node.scheduler.is_shut and node.alarms.on == {} and kept == [None]
    assert leader_in(etcd).epoch == 1


def test_leader_whose_lease_is_lost_goes_on_in_the_next_epoch(etcd, begin):
    node = begin()
    wait(lambda: node.is_open)

    etcd.model.end_lease(etcd.model.leases()[0])

    wait(lambda: ("lead on", 2) in node.told and not node.leadership.is_fenced)
    assert in_sync_in(etcd) == InSyncRecord(2, {ONE: 2}) and "deposed" not in node.told


def test_leader_that_finds_another_one_is_deposed_and_refuses_its_promises(etcd, begin):
    node = begin()
    wait(lambda: node.is_open)
    answers = []
    node.links.progress = {TWO: Progress(0, True, True)}
    wait(lambda: TWO in node.leadership.in_sync.required)
    node.promises.ask(9, answers.append)

    etcd.model.end_lease(etcd.model.leases()[0])
    etcd.model.put(IN_SYNC, InSyncRecord(2, {TWO: 2}).encode())
    put_leader(etcd, TWO, 2)

    wait(lambda: "deposed" in node.told)
    assert isinstance(answers[0], ClusterError) and node.scheduler.is_shut
    node.promises.ask(10, answers.append)
    assert isinstance(answers[1], ClusterError)


def test_follower_that_is_synced_is_required_before_it_is_in_the_set(etcd, begin):
    node = begin()
    wait(lambda: node.is_open)
    node.links.progress = {TWO: Progress(0, True, True)}

    wait(lambda: in_sync_in(etcd).members == {ONE: 1, TWO: 1})
    kept = []
    node.promises.ask(3, kept.append)
    assert kept == []
    node.promises.acknowledged(TWO, 3)
    assert kept == [None]


@pytest.mark.parametrize("value", [b"rubbish", b"", b"9" * 5000, InSyncRecord(1, {THREE: 1}).encode()])
def test_leader_writes_a_set_anew_that_somebody_else_has_written(etcd, begin, caplog, value):
    """When the leader is lost nobody could be elected by it."""
    node = begin()
    wait(lambda: node.is_open)

    etcd.model.put(IN_SYNC, value)
    node.coordination.look()

    wait(lambda: "`isr` in etcd was written by somebody else" in caplog.text)
    wait(lambda: (found := in_sync_in(etcd)) is not None and ONE in found.members)
    assert leader_in(etcd).node == ONE and not node.leadership.is_fenced


def test_two_copies_of_a_folder_do_not_write_their_record_in_turn(etcd, begin, clock):
    """Each write wakes every node, and etcd keeps each one: its quota would be used up."""
    put_cluster(etcd, {ONE: 3, TWO: 3})
    put_leader(etcd, TWO, 3)
    node, name = begin(cluster=HERE, epoch=3), NODES + ONE
    own = wait(lambda: etcd.model.read().nodes.get(ONE)).value

    etcd.model.put(name, b"of the copy")
    revision = etcd.model.read().revision
    for _ in range(3):
        reads = etcd.reads
        node.coordination.look()
        wait(lambda: etcd.reads > reads)
    assert etcd.model.read().revision == revision

    clock.now_s += coordination.REGISTER_S
    node.coordination.look()
    wait(lambda: etcd.model.read().nodes[ONE].value == own)


def test_too_few_in_sync_nodes_hold_publishers(etcd, begin):
    node = begin(min_isr=2)
    wait(lambda: node.is_open)
    assert node.holds.is_on

    node.links.progress = {TWO: Progress(0, True, True)}

    wait(lambda: not node.holds.is_on)


def test_late_member_that_min_isr_keeps_in_the_set_holds_publishers(etcd, begin, clock):
    node = begin(min_isr=2)
    node.links.progress = {TWO: Progress(0, True, True)}
    wait(lambda: node.is_open and not node.holds.is_on)

    node.links.progress = {}

    def go_on():
        if node.leadership.lease_left_s > 2:  # keepalives keep pace
            clock.now_s += 0.25
            node.leadership.step()
        return node.holds.is_on

    wait(go_on)
    assert set(in_sync_in(etcd).members) == {ONE, TWO}


def test_keepalives_stop_while_the_disk_hangs(etcd, clock, begin):
    node = begin()
    wait(lambda: node.is_open)
    node.is_hanging = True

    def lose():
        clock.now_s += 0.5
        return node.leadership.is_fenced

    wait(lose)
    clock.now_s += 5
    etcd.model.expire()
    assert leader_in(etcd) is None


def test_leader_that_hears_nothing_of_etcd_does_not_keep_the_lease(etcd, clock, begin):
    """Its requests arrive, so etcd would hold a fenced node for the leader for ever."""
    node = begin()
    wait(lambda: node.is_open)
    etcd.losing = {"read", "transact", "keep_alive"}
    etcd.lost = Unanswered("lost by the test")

    def expire():
        clock.now_s += 0.5
        etcd.model.expire()
        return leader_in(etcd) is None

    wait(expire)


def test_leader_of_an_earlier_process_is_cleared(etcd, begin):
    put_cluster(etcd, {ONE: 3, TWO: 3})
    put_leader(etcd, ONE, 3, address="host:5679")

    node = begin(cluster=HERE, epoch=3)

    wait(lambda: node.is_open)
    assert leader_in(etcd).epoch == 4


def test_folder_that_cannot_take_the_epoch_leads_nothing(etcd, begin):
    node = begin()
    node.refuses_to_take = OSError("no room")

    wait(lambda: "deposed" in node.told)
    assert "elected" not in node.told and "no room" in node.reason
    assert leader_in(etcd) is None


def test_stop_lets_another_node_be_elected_at_once(etcd, begin):
    node = begin()
    wait(lambda: node.is_open)

    node.coordination.stop()

    assert leader_in(etcd) is None and "deposed" not in node.told


@pytest.mark.parametrize("how, is_deposed", [
    (lambda coordination: coordination.hand_over(), False),
    (lambda coordination: coordination.resign("an operator asks"), True),
])
def test_leader_that_hands_over_delivers_nothing_and_hangs_up_first(etcd, begin, how, is_deposed):
    """A follower that hears its leader waits, so that the leader may be elected again."""
    node = begin()
    wait(lambda: node.is_open)

    how(node.coordination)

    assert node.told.count("end links") == 1 and node.leader_at_end is not None
    assert leader_in(etcd) is None and node.leadership.is_fenced
    assert ("deposed" in node.told) == is_deposed


def test_emptied_etcd_fences_the_leader(etcd, begin):
    node = begin()
    wait(lambda: node.is_open)

    for key in (CLUSTER, IN_SYNC, LEADER):
        etcd.model.delete(key)

    wait(lambda: node.leadership.is_fenced)
    assert "cluster_adopt" in node.coordination.decision.reason


def is_said_to_be_gone(begin, etcd, members):
    put_cluster(etcd, members, epoch=4)
    put_leader(etcd, TWO, 4)
    node = begin(cluster=HERE, epoch=3)
    wait(lambda: node.told)
    node.coordination.is_gone("other:5679")
    return leader_in(etcd) is None


def test_leader_that_listens_no_more_is_deleted(etcd, begin):
    assert is_said_to_be_gone(begin, etcd, {ONE: 3, TWO: 4})


def test_elected_node_that_does_not_listen_yet_is_not_deleted(etcd, begin):
    """It reads its folder, which may take minutes; each successor would be deleted likewise."""
    assert not is_said_to_be_gone(begin, etcd, {ONE: 3, TWO: 3})


def test_leader_whose_disk_hangs_does_not_win_again(etcd, clock, begin):
    node = begin()
    wait(lambda: node.is_open)
    node.is_hanging = True
    clock.now_s += 10
    etcd.model.expire()
    wait(lambda: node.leadership.is_fenced)

    wait(lambda: "hangs" in getattr(node.coordination.decision, "reason", "") or leader_in(etcd))
    assert leader_in(etcd) is None

    node.is_hanging = False
    node.coordination.look()
    wait(lambda: not node.leadership.is_fenced)
    assert leader_in(etcd).epoch == 2


def test_view_of_an_etcd_put_back_during_an_election_ends_it(etcd, begin):
    put_cluster(etcd, {ONE: 3, TWO: 3})
    etcd.model.revision += 1000
    calls = []

    def transact(transaction):
        """A new, older etcd, in which another node leads."""
        gevent.sleep(0)
        calls.append(transaction)
        if len(calls) == 1:
            etcd.model._empty()
            put_cluster(etcd, {ONE: 3, TWO: 3})
            put_leader(etcd, TWO, 3)
        return etcd.model.transact(transaction)

    etcd.transact = transact
    node = begin(cluster=HERE, epoch=3)

    wait(lambda: ("follow", "other:5679") in node.told or len(calls) > 20)
    assert ("follow", "other:5679") in node.told


def test_fault_in_a_change_of_the_in_sync_set_is_no_end_of_changes(etcd, begin, caplog):
    node = begin()
    wait(lambda: node.is_open)
    transact, faults = etcd.transact, [ValueError("a fault of the client")]

    def failing(transaction):
        if faults:
            raise faults.pop()
        return transact(transaction)

    etcd.transact = failing
    node.links.progress = {TWO: Progress(0, True, True)}

    wait(lambda: in_sync_in(etcd).members == {ONE: 1, TWO: 1})
    assert "a fault of the client" in caplog.text


def test_secret_that_etcd_has_lost_is_written_again(etcd, begin):
    node = begin(secret=b"5" * 64)
    wait(lambda: node.is_open)

    wait(lambda: etcd.model.read().secret is not None)
    assert etcd.model.read().secret.value == b"5" * 64


def test_loss_of_an_earlier_lease_is_no_loss_of_the_present_one(etcd, begin):
    node = begin()
    wait(lambda: node.is_open)

    node.coordination.kept_alive(node.coordination.lease_id + 1, None, True)
    assert not node.leadership.is_fenced and node.coordination.lease_id

    node.coordination.kept_alive(node.coordination.lease_id, None, True)
    assert node.coordination.lease_id == 0


def test_leader_that_resigns_for_a_named_node_ends_its_links_when_that_one_leads(etcd, begin, monkeypatch):
    """The others hear it until then, and let the named one lead first."""
    monkeypatch.setattr(coordination, "SUCCESSOR_S", 2 * TIMEOUT_S)
    put_cluster(etcd, {ONE: 3, TWO: 3})
    node = begin(cluster=HERE, epoch=3)
    node.links.progress = {TWO: Progress(0, True)}
    wait(lambda: node.is_open)

    resigning = gevent.spawn(node.coordination.resign, "asked", True)
    wait(lambda: etcd.model.read().leader is None)
    before = list(node.told)
    put_leader(etcd, TWO, 5)
    resigning.join(TIMEOUT_S)

    assert "deposed" not in before and node.told[-1] == "deposed"
