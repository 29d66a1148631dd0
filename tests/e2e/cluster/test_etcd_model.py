"""The model of etcd, which the simulation of the core uses, against etcd itself: random transactions,
leases and revocations by seed, and after each the same answer and the same keys of both.
"""
import random

import gevent
import pytest

from gomq_py.cluster.core.transactions import CREATE, MOD, Compare, CoordinatorError, Delete, Put, Transaction
from tests.support.etcd_model import EtcdModel
from tests.support.waiting import wait_until

KEYS = ("cluster", "leader", "isr", "nodes/a", "nodes/b", "secret")
ROUNDS = 120

pytestmark = pytest.mark.needs_program("etcd")


class Pair:
    """etcd and the model of it, asked the same. Revisions of the model begin at 1, those of the shared etcd
    where the test before has left off; ids of leases differ, too.
    """

    def __init__(self, etcd):
        self.etcd = etcd
        self.now_s = 0.0
        self.model = EtcdModel(lambda: self.now_s)
        self.ahead = etcd.read().revision - self.model.revision
        self.leases = []  # (etcd's, the model's)

    def ask(self, call):
        """``call(coordinator, number)`` of both, where ``number`` 0 is etcd. The answers are the same."""
        answers = []
        for number, coordinator in enumerate((self.etcd, self.model)):
            try:
                answers.append(call(coordinator, number))
            except CoordinatorError as error:
                answers.append(str(error).rpartition(" refuses: ")[2])
        theirs, ours = (self._shown(answer, number) for number, answer in enumerate(answers))
        assert ours == theirs
        return theirs

    def transact(self, draw):
        """A random transaction, of which most hold."""
        view = self.model.kept
        compares = [self._compare(draw, view) for _ in range(draw.randrange(3))]
        operations = [self._operation(draw) for _ in range(draw.randrange(4))]

        def call(coordinator, number):
            return coordinator.transact(Transaction(
                tuple(self._seen_by(compare, number) for compare in compares),
                tuple(self._of(operation, number) for operation in operations)))

        self.ask(call)

    def grant(self):
        """A lease that does not end by itself meanwhile."""
        self.leases.append(tuple(coordinator.grant(600) for coordinator in (self.etcd, self.model)))

    def keep_alive(self, draw):
        """Keep one alive that may have been revoked."""
        lease = draw.choice(self.leases)
        self.ask(lambda coordinator, number: coordinator.keep_alive(lease[number]))

    def revoke(self, draw):
        """Revoke one that may have been revoked."""
        lease = draw.choice(self.leases)
        self.ask(lambda coordinator, number: coordinator.revoke(lease[number]))

    def _compare(self, draw, view):
        key = draw.choice(KEYS)
        target = draw.choice((CREATE, MOD))
        kept = view.get(key)
        if draw.random() < 0.1:
            return Compare(key, target, draw.choice((0, 1, self.model.revision)))
        if kept is None:
            return Compare(key, target, 0)
        return Compare(key, target, {CREATE: kept.create_revision, MOD: kept.mod_revision}[target])

    def _operation(self, draw):
        key = draw.choice(KEYS)
        if draw.random() < 0.3:
            return Delete(key)
        lease = draw.choice(self.leases[-2:]) if draw.random() < 0.5 else 0
        return Put(key, draw.randbytes(draw.randrange(4)), lease)

    def _of(self, operation, number):
        if isinstance(operation, Delete) or operation.lease == 0:
            return operation
        return operation._replace(lease=operation.lease[number])

    def _seen_by(self, compare, number):
        if number or not compare.revision:
            return compare
        return compare._replace(revision=compare.revision + self.ahead)

    def _shown(self, answer, number):
        """An answer with revisions and leases as the model counts."""
        if hasattr(answer, "view"):
            return answer._replace(view=self._shown(answer.view, number))
        if hasattr(answer, "revision") and number == 0:
            return answer._replace(
                revision=answer.revision - self.ahead,
                nodes={name: self._kept(kept) for name, kept in answer.nodes.items()},
                cluster=self._kept(answer.cluster), leader=self._kept(answer.leader),
                in_sync=self._kept(answer.in_sync), secret=self._kept(answer.secret))
        return answer

    def _kept(self, kept):
        if kept is None:
            return None
        leases = dict(self.leases) | {0: 0}
        return kept._replace(
            create_revision=kept.create_revision - self.ahead, mod_revision=kept.mod_revision - self.ahead,
            lease=leases[kept.lease])


@pytest.mark.parametrize("seed", range(4))
def test_model_answers_as_etcd_does(seed, shared_etcd, connected):
    """Random transactions, leases and revocations; refusals have the same words."""
    draw = random.Random(seed)
    pair = Pair(connected(shared_etcd, prefix=f"seed-{seed}"))
    pair.grant()

    for _ in range(ROUNDS):
        draw.choices(
            (lambda: pair.transact(draw), pair.grant, lambda: pair.keep_alive(draw),
             lambda: pair.revoke(draw)), (20, 1, 2, 2))[0]()
        pair.ask(lambda coordinator, number: coordinator.read())

    assert pair.model.revision > ROUNDS / 10


def test_revision_of_a_lease_that_ends_by_itself(shared_etcd, connected):
    """Its keys are deleted in one revision; a lease without keys takes none."""
    pair = Pair(connected(shared_etcd, prefix="ends"))
    pair.leases.append((pair.etcd.grant(1), pair.model.grant(1)))
    pair.leases.append((pair.etcd.grant(1), pair.model.grant(1)))
    pair.ask(lambda coordinator, number: coordinator.transact(Transaction((), tuple(
        Put(key, b"x", pair.leases[0][number]) for key in ("leader", "isr")))))
    pair.ask(lambda coordinator, _: coordinator.transact(Transaction((), (Put("cluster", b"x"),))))

    pair.now_s = 1.9
    assert pair.model.read().leader is not None  # 2 s are the least
    pair.now_s = 2.0
    wait_until(lambda: pair.etcd.read().leader is None, what="the lease ends", sleep=gevent.sleep)

    shown = pair.ask(lambda coordinator, number: coordinator.read())
    assert (shown.revision, shown.leader, shown.in_sync) == (4, None, None)
    assert shown.cluster is not None
