"""Coordination: the loop of a node in an elected cluster, which reads etcd and does what the Elector decides.

Uses ``core`` and a Coordinator (etcd). Calls the Member: the part of the node that owns the data folder, the
follower and the broker. While etcd does not answer, a follower continues, and a leader continues until its
lease's deadline. The loop waits for the Member's methods, so none may take long while this node leads.
Keepalives have their own greenlet.
"""
import contextlib
import os
from collections.abc import Callable, Mapping
from typing import Any

import gevent
from gevent.event import Event

from gomq_py.cluster.core.coordinator import Coordinator
from gomq_py.cluster.core.elector import (
    Again, Bootstrap, Campaign, Clear, Decision, Deposed, Elector, Follow, Lead, Wait,
)
from gomq_py.cluster.core.in_sync import InSync
from gomq_py.cluster.core.lease import EVERY, Lease
from gomq_py.cluster.core.overrides import NotPossible
from gomq_py.cluster.core.promises import Promises
from gomq_py.cluster.core.records import (
    LEADER, NODES, SECRET, InSyncRecord, LeaderRecord, NodeRecord, decoded,
)
from gomq_py.cluster.core.transactions import (
    CREATE, Compare, CoordinatorError, Delete, Outcome, Put, Transaction, Unanswered,
)
from gomq_py.cluster.leadership import Leadership, boot_time_s
from gomq_py.cluster.member import Member
from gomq_py.cluster.membership import address_of
from gomq_py.cluster.shared_settings import Difference, Warner
from gomq_py.errors import ClusterError
from gomq_py.observability.log import logger
from gomq_py.observability.quiet_log import QuietLog

LOG = logger("cluster")
# Pause after a failed call of etcd, and after a transaction whose comparisons did not hold.
RETRY_S = 0.5
# A node that lets others lead first looks again: a leader that has closed its links leads no more.
LOOK_S = 0.2
# Time for the election of a successor that an operator has named, and between two looks. The others let it
# lead first for elector.HEARING_S.
SUCCESSOR_S, SUCCESSOR_LOOK_S = 1.5, 0.02
# A node whose folder cannot be flushed, or whose disk hangs, tries to campaign again after this time.
FOLDER_S = 2.0
HANGS = "a flush or the file system hangs: another node is to lead"
# A node writes its record anew no more often where another process has written it: two copies of one folder
# would wake all nodes with each of their writes, for ever.
REGISTER_S = 60.0


class Coordination:
    """Runs one node's part in the cluster.

    ``node``: this node's id in hex. ``name``, ``address``: this node's, published in etcd for the other
    nodes.

        settings      the result of shared_settings.told()
        secret        the cluster's secret as read from etcd; empty if the settings have it
        decision      the last decision
        leadership    the Leadership of a leader, else None
        view          the last View, or None
        error         the last etcd failure, "" when etcd answers
    """

    def __init__(
            self, coordinator: Coordinator, member: Member, node: str, name: str, address: str,
            promises: Promises, lease_ttl_s: float = 5.0, ack_timeout_s: float = 3.0, min_isr: int = 1,
            clock: Callable[[], float] = boot_time_s, settings: Mapping[str, str] = {}, secret: bytes = b""):
        folder = member.folder
        self.decision: Decision = Wait("etcd was not asked yet")
        self.leadership: Leadership | None = None
        self.view: Any = None
        self.error = ""
        self._coordinator, self._member, self._promises = coordinator, member, promises
        self._node, self._record = node, NodeRecord(name, address, settings).encode()
        self._warner = Warner(node, settings)
        self._secret = secret
        self._clock = clock
        self.min_isr, self._ack_timeout_s = min_isr, ack_timeout_s
        self._elector = Elector(node, folder.cluster, folder.epoch, address)
        self._lease = Lease(lease_ttl_s)
        self._lease_id = 0
        self._revision = 0  # create revision of `leader` in the present election
        self._wake = Event()
        self._pause_s: float | None = None
        self._registered_s = -REGISTER_S  # time at which the record of this node was written
        self._quiet = QuietLog(LOG)
        self._said = ""
        self._has_ended = False
        self._greenlets: list[Any] = []

    # life

    def start(self) -> None:
        """Start the greenlets that read etcd, carry out decisions, and send keepalives."""
        for function, name in ((self._run, "decides"), (self._keep_alive, "keepalives")):
            greenlet = gevent.spawn(function)
            greenlet.name = f"cluster: {name}"
            self._greenlets.append(greenlet)

    def look(self) -> None:
        """Wake the loop to read etcd and decide at once."""
        self._wake.set()

    def stop(self) -> None:
        """End the loop for good, and revoke the lease, so that another node can be elected at once.

        May switch greenlets.
        """
        # ``decision`` and ``leadership`` stay as they are.
        self._end()
        self._forget_lease()

    def resign(self, reason: str, stays: bool = False) -> None:
        """Stop leading, so that another node is elected at once. May switch greenlets.

        ``stays``: keep the links to followers until a successor is elected. A follower with a link waits
        before it campaigns, so the follower that the caller has disconnected is elected first.
        """
        if not self._has_ended:
            self._depose(reason, stays)

    def hand_over(self) -> None:
        """Stop leading before the node shuts down, so that another node is elected meanwhile.

        May switch greenlets.
        """
        if not self._has_ended:
            self._cease()

    def override(self, what: Callable[[Any, str, str, int], Transaction]) -> None:
        """Change the cluster's keys for an operator. May switch greenlets.

        ``what``: a function of core.overrides. Raises NotPossible, CoordinatorError, Unanswered.
        """
        folder = self._member.folder
        transaction = what(self._coordinator.read(), self._node, folder.cluster, folder.epoch)
        if not self._coordinator.transact(transaction).is_done:
            raise NotPossible("etcd has changed meanwhile: look again")
        LOG.warning("an operator has changed the cluster's keys: %s", what.__name__)
        self.look()

    def is_gone(self, address: str) -> None:
        """Delete the key ``leader`` if it names ``address``, where no process listens any more.

        May switch greenlets.
        """
        # Refusals says how often at most. Does nothing unless this node is in sync, since it could not lead;
        # nor while the leader has not raised its own epoch in ``isr``: it still reads its folder and does not
        # listen yet, as any successor would.
        view = self.view
        if self._has_ended or self.leadership is not None or view is None or view.leader is None:
            return
        leader = decoded(view.leader, LeaderRecord.decode)
        in_sync = decoded(view.in_sync, InSyncRecord.decode)
        if (
            leader is None or leader.address != address or in_sync is None
            or self._node not in in_sync.members
            or in_sync.members.get(leader.node) != leader.epoch
        ):
            return
        LOG.warning("nobody listens at the leader's address %s: another node is to be elected", address)
        try:
            self._coordinator.transact(Transaction(
                (Compare(LEADER, CREATE, view.leader.create_revision),), (Delete(LEADER),)))
        except (Unanswered, CoordinatorError) as error:
            self._failed(error)

    @property
    def revision(self) -> int:
        """The create revision of the key ``leader`` from this node's last election; 0 before the first."""
        return self._revision

    @property
    def differences(self) -> list[Difference]:
        """Settings in which other nodes differ from this node, as last compared while it led."""
        return self._warner.found

    @property
    def lease_id(self) -> int:
        """The id of the present lease, or 0."""
        return self._lease_id

    def kept_alive(self, lease_id: int, sent_s: float | None, is_lost: bool) -> None:
        """Note the result of a BootKeepalives (``kept``) for a present or earlier lease, and read etcd again.

        ``sent_s``: when the last successful keepalive was sent, or None. ``is_lost``: the lease has ended.
        """
        if lease_id == self._lease_id:
            if sent_s is not None:
                self._lease.answered(sent_s, True)
            if is_lost:
                self._lose_lease(self._lease)
        self.look()

    # the loop

    def _run(self) -> None:
        watch = self._coordinator.watch(self._wake.set)
        try:
            while not self._has_ended:
                self._wake.clear()
                self._pause_s = None
                try:
                    self._look()
                except Exception:
                    LOG.exception("the cluster's state could not be handled; it is read again")
                    self._pause_s = RETRY_S
                if not self._has_ended:
                    self._wake.wait(self._pause_s)
        finally:
            watch.close()

    def _look(self) -> None:
        since = self._elector.revision
        try:
            view = self._coordinator.read()
        except (Unanswered, CoordinatorError) as error:
            self._failed(error)
            return
        decision: Decision | None = self._decide(view, since)
        while decision is not None and not self._has_ended:
            decision = self._do(decision)
        if not self._has_ended:
            self._register(view)
            if self.leadership is not None:
                self._warner.look(view.nodes)

    def _register(self, view: Any) -> None:
        """Write this node's name, address and settings, and the cluster's secret, if etcd lacks them."""
        # Without the secret a node that starts would make another one, and be refused by all that run.
        kept, missing = view.nodes.get(self._node), []
        is_due = self._clock() >= self._registered_s + REGISTER_S
        if kept is None or (kept.value != self._record and is_due):
            missing.append(Transaction((), (Put(NODES + self._node, self._record),)))
            self._registered_s = self._clock()
        if view.secret is None and self._secret:
            missing.append(Transaction((Compare(SECRET, CREATE, 0),), (Put(SECRET, self._secret),)))
        try:
            for transaction in missing:
                self._coordinator.transact(transaction)
        except (Unanswered, CoordinatorError) as error:
            self._failed(error)

    def _decide(self, view: Any, since: int) -> Decision:
        self.error, self.view = "", view
        if self.leadership is None:
            self._elector.folder(*self._member.folder)
        return self._elector.viewed(view, self._clock(), since, self._member.hears_leader)

    def _do(self, decision: Decision) -> Decision | None:
        """Carry out a decision. Returns the decision that follows from it at once, or None."""
        self.decision = decision
        if self.leadership is not None:
            self.leadership.know(isinstance(decision, Lead) and decision.revision == self._revision)
        if isinstance(decision, Deposed):
            self._depose(decision.reason)
        elif isinstance(decision, Wait):
            self._pause_s = decision.again_s and min(decision.again_s, LOOK_S)
            self._say(decision.reason)
        elif isinstance(decision, Follow):
            self._follow(decision)
        elif isinstance(decision, Clear):
            return self._outcome(decision.transaction)
        elif isinstance(decision, Campaign):
            return self._campaign(decision)
        elif isinstance(decision, Lead):
            self._lead(decision)
        return None

    def _follow(self, decision: Follow) -> None:
        if self._lease_id:
            self._forget_lease()
        why = self._member.follow_leader(decision.address)
        if why:
            self.decision = Wait(why)
        self._say(why)

    def _campaign(self, decision: Campaign) -> Decision | None:
        if not isinstance(decision, Again) and self.leadership is None and not self._member.settle():
            self._pause_s = FOLDER_S
            return None
        if self._member.hangs():  # it would win each time: others still hear it, and wait
            self.decision = Wait(HANGS)
            self._say(HANGS)
            self._pause_s = FOLDER_S
            return None
        if not self._take_lease():
            return None
        if isinstance(decision, Bootstrap):
            transaction = decision.transaction(self._lease_id, os.urandom(16).hex())
        else:
            transaction = decision.transaction(self._lease_id)
        return self._outcome(transaction)

    def _outcome(self, transaction: Transaction) -> Decision | None:
        """Send a transaction. Returns the decision that follows from its outcome, or None."""
        since = self._elector.revision
        try:
            outcome: Outcome = self._coordinator.transact(transaction)
        except (Unanswered, CoordinatorError) as error:  # the next read shows whether it was done
            self._failed(error)
            return None
        if not outcome.is_done:
            self._pause_s = RETRY_S
        return self._decide(outcome.view, since)

    def _failed(self, error: Exception) -> None:
        self.error = str(error)
        self._pause_s = RETRY_S
        if self.view is None:
            self.decision = Wait(f"etcd: {error}")
        self._quiet.warning("etcd", "etcd: %s", error)

    def _say(self, reason: str) -> None:
        """Log why nothing is done, unless the last log entry has the same reason."""
        if reason != self._said and reason:
            LOG.warning("%s", reason)
        self._said = reason

    # the lease

    def _take_lease(self) -> bool:
        """Get a new lease if there is no live lease. Returns False if etcd grants none now."""
        if self._lease_id and not self._lease.is_past(self._clock()):
            self._keep_alive_once(self._lease, self._lease_id)  # etcd may have ended it meanwhile
            if self._lease_id:
                return True
        lease, sent_s = Lease(self._lease.ttl_s), self._clock()
        try:
            lease_id = self._coordinator.grant(self._lease.ttl_s)
        except (Unanswered, CoordinatorError) as error:
            self._failed(error)
            return False
        lease.sent(sent_s)
        lease.answered(sent_s, True)
        self._lease, self._lease_id = lease, lease_id
        self._elector.lease = lease_id
        return True

    def _forget_lease(self) -> None:
        """Revoke the lease. If this node leads, etcd then deletes the key ``leader``.

        May switch greenlets.
        """
        lease_id, self._lease_id = self._lease_id, 0
        self._elector.lease = 0
        self._lease = Lease(self._lease.ttl_s)
        if lease_id:
            try:
                self._coordinator.revoke(lease_id)
            except (Unanswered, CoordinatorError) as error:
                LOG.info("the lease ends by itself: %s", error)

    def _keep_alive(self) -> None:
        while not self._has_ended:
            try:
                if self._lease_id and self._may_keep_alive():
                    self._keep_alive_once(self._lease, self._lease_id)
            except Exception:
                LOG.exception("no keepalive could be sent; another one is")
            gevent.sleep(EVERY * self._lease.ttl_s / 4)

    def _may_keep_alive(self) -> bool:
        # Past the deadline etcd has to answer a read first: where its answers are lost and requests are not,
        # keepalives would hold the leadership of a node that is fenced.
        now_s = self._clock()
        if self.error and self._lease.is_past(now_s):
            return False
        return self._lease.is_due(now_s) and not self._member.hangs()

    def _keep_alive_once(self, lease: Lease, lease_id: int) -> None:
        sent_s = self._clock()
        lease.sent(sent_s)
        try:
            is_alive = self._coordinator.keep_alive(lease_id)
        except (Unanswered, CoordinatorError) as error:
            self._failed(error)
            self._wake.set()  # it is read until etcd answers
            return
        lease.answered(sent_s, is_alive)
        if lease is not self._lease:
            return
        if not is_alive:
            self._lose_lease(lease)
        if self.leadership is not None:
            self.leadership.refresh()

    def _lose_lease(self, lease: Lease) -> None:
        lease.answered(0.0, False)
        self._lease_id = self._elector.lease = 0
        self._wake.set()

    # leading

    def _lead(self, lead: Lead) -> None:
        leadership = self.leadership
        if leadership is not None and self._revision == lead.revision:
            if leadership.in_sync.saw(self.view.in_sync):
                LOG.warning("`isr` in etcd was written by somebody else: this leader writes it anew")
            if lead.mend is not None:
                self._mend(lead.mend)
            return
        try:
            self._member.take(lead.cluster, lead.epoch)
        except (OSError, ClusterError) as error:
            self._depose(f"the epoch {lead.epoch} cannot be written into the data folder: {error}")
            return
        self._elector.folder(*self._member.folder)
        in_sync = InSync(
            self._node, lead.epoch, lead.revision, lead.record, lead.mod_revision, self.min_isr,
            self._ack_timeout_s, lead.former)
        self._revision = lead.revision
        if leadership is None:
            LOG.warning("this node was elected leader, in epoch %d", lead.epoch)
            self.leadership = Leadership(
                self._coordinator, self._promises, self._lease, in_sync, self.min_isr, self._clock,
                self._member.note, self._former(lead.former))
            self.leadership.know(True)
            self._member.elected(self.leadership, lead.record.members.get(self._node) == 0)
        else:
            LOG.warning("this node was elected again, in epoch %d: clients stay connected", lead.epoch)
            self._member.lead_on(lead.epoch)
            leadership.renew(self._lease, in_sync)
            leadership.know(True)

    def _former(self, node: str) -> tuple[str, tuple[str, int]] | None:
        """Return (id, (host, port)) of ``node``, the former leader; None if its address is unknown."""
        record = decoded(self.view.nodes.get(node), NodeRecord.decode)
        return None if record is None else (node, address_of(record.address))

    def _mend(self, transaction: Transaction) -> None:
        """Send the transaction that writes this leader's ``leader`` record again. May switch greenlets."""
        self._quiet.warning(
            "leader", "`leader` in etcd was written by somebody else: this leader writes its own again")
        try:
            self._coordinator.transact(transaction)
        except (Unanswered, CoordinatorError) as error:
            self._failed(error)

    def _depose(self, reason: str, stays: bool = False) -> None:
        LOG.warning("this node leads no more: %s", reason)
        self.decision = Deposed(reason)
        self._cease(stays)
        self._member.deposed(reason)

    def _cease(self, stays: bool = False) -> None:
        """Stop confirming and delivering, and let another node be elected. May switch greenlets."""
        self._end()
        if self.leadership is not None:
            self.leadership.end()
            if not stays:
                self._member.end_links()
        self._forget_lease()
        if stays:
            self._wait_for_successor()

    def _wait_for_successor(self) -> None:
        """Wait until etcd names a leader, for at most SUCCESSOR_S. May switch greenlets."""
        with gevent.Timeout(SUCCESSOR_S, False):
            while True:
                with contextlib.suppress(Unanswered, CoordinatorError):
                    if self._coordinator.read().leader is not None:
                        return
                gevent.sleep(SUCCESSOR_LOOK_S)

    def _end(self) -> None:
        self._has_ended = True
        self._wake.set()
        for greenlet in self._greenlets:
            if greenlet is not gevent.getcurrent():
                greenlet.kill(block=False)
        if self.leadership is not None:
            self.leadership.stop()
