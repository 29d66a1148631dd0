"""Model of etcd in memory, without I/O and without a clock of its own: keys below one prefix, revisions,
leases, transactions and watches, as etcd 3.4 has them.

A simulation of the cluster's core uses it in place of etcd; tests/e2e/cluster/test_etcd_model.py compares it
with the real one. It is always in reach and answers at once. Lost requests, lost answers and delays are the
caller's work: it makes a call without using the answer, or uses it later.
"""
from gomq_py.cluster.core.records import Kept
from gomq_py.cluster.core.transactions import CoordinatorError, Delete, Outcome, Put
from gomq_py.cluster.etcd.messages import view_from

# Smallest time to live that etcd grants with its default timing: 1.5 times the election timeout, rounded up.
LEAST_TTL_S = 2


class EtcdModel:
    """A Coordinator (core.coordinator). ``clock()``: seconds, which may stand still or jump; ``is_refused``:
    requests are refused, as by an etcd without a majority. Keys are without the prefix.
    """

    def __init__(self, clock):
        self._clock = clock
        self._watches = []
        self._last_lease = 0
        self.is_refused = False
        self._empty()

    # the Coordinator

    def read(self):
        """The View of all keys. Raises CoordinatorError."""
        self._check()
        return view_from(self.revision, self.kept)

    def transact(self, transaction):
        """Carry out a Transaction if all its compares hold. Returns the Outcome.

        Raises CoordinatorError for a lease that does not exist and for a key that is written twice.
        """
        self._check()
        written = [operation.key for operation in transaction.operations if isinstance(operation, Put)]
        deleted = {operation.key for operation in transaction.operations if isinstance(operation, Delete)}
        if len(set(written) - deleted) < len(written):
            raise CoordinatorError("etcdserver: duplicate key given in txn request")
        is_done = all(self._holds(compare) for compare in transaction.compares)
        if is_done:
            self._carry_out(transaction.operations)
        return Outcome(is_done, view_from(self.revision, self.kept))

    def grant(self, ttl_s):
        """A new lease of at least LEAST_TTL_S. Returns its id."""
        self._check()
        self._last_lease += 1
        lease = self._last_lease
        self._leases[lease] = max(ttl_s, LEAST_TTL_S)
        self._ends_s[lease] = self._clock() + self._leases[lease]
        return lease

    def keep_alive(self, lease):
        """Let a lease begin anew. Returns False if it has ended."""
        self._check()
        if lease not in self._leases:
            return False
        self._ends_s[lease] = self._clock() + self._leases[lease]
        return True

    def revoke(self, lease):
        """End a lease, with its keys, unless it has ended."""
        self._check()
        if lease in self._leases:
            self.end_lease(lease)

    def watch(self, wake):
        """Call ``wake()`` behind each change, in its caller's turn. Returns a Watch, to be closed."""
        watch = Watch(wake, self._watches)
        self._watches.append(watch)
        return watch

    # what happens by itself, and what operators do

    def expire(self):
        """End the leases whose time is over. Every call does so first; a simulation calls it at
        next_end_s(), so that watches hear of it.
        """
        now_s = self._clock()
        for lease in sorted(lease for lease, end_s in self._ends_s.items() if end_s <= now_s):
            self.end_lease(lease)

    def next_end_s(self):
        """When the next lease ends, by the clock, or None."""
        return min(self._ends_s.values(), default=None)

    def leases(self):
        """The ids of the leases there are, in the order of their grants."""
        return list(self._leases)

    def end_lease(self, lease):
        """End a lease whether its time is over or not, and delete its keys, in one revision."""
        del self._leases[lease], self._ends_s[lease]
        self._write(dict.fromkeys(key for key, kept in self.kept.items() if kept.lease == lease))

    def put(self, key, value, lease=0):
        """Write a key unconditionally, as an operator with etcdctl does."""
        self._carry_out([Put(key, value, lease)])

    def delete(self, key):
        """Delete a key, if it is there."""
        if key in self.kept:
            self._write({key: None})

    def compact(self, revision):
        """Without effect: the client asks for no old events."""

    def empty(self):
        """Begin anew without keys and leases, at revision 1, as a new etcd at the same address does."""
        self._empty()
        self._tell()

    # helpers

    def _empty(self):
        self.revision = 1
        self.kept = {}  # {key: Kept}
        self._leases, self._ends_s = {}, {}

    def _check(self):
        if self.is_refused:
            raise CoordinatorError("etcdserver: no leader")
        self.expire()

    def _holds(self, compare):
        kept = self.kept.get(compare.key)
        if kept is None:
            return compare.revision == 0
        return compare.revision == {"create": kept.create_revision, "mod": kept.mod_revision}[compare.target]

    def _carry_out(self, operations):
        changes = {}  # a key may be deleted twice
        for operation in operations:
            if isinstance(operation, Put):
                if operation.lease and operation.lease not in self._leases:
                    raise CoordinatorError("etcdserver: requested lease not found")
                changes[operation.key] = operation
            elif operation.key in self.kept:
                changes[operation.key] = None
        self._write(changes)

    def _write(self, changes):
        """Make changes, {key: Put, or None to delete it}, in one revision; without any it stays."""
        if not changes:
            return
        self.revision += 1
        for key, put in changes.items():
            if put is None:
                del self.kept[key]
            else:
                there = self.kept.get(key)
                created = self.revision if there is None else there.create_revision
                self.kept[key] = Kept(put.value, created, self.revision, put.lease)
        self._tell()

    def _tell(self):
        for watch in list(self._watches):
            watch.wake()


class Watch:
    """Registered with the model until it is closed."""

    def __init__(self, wake, watches):
        self.wake = wake
        self._watches = watches

    def close(self):
        """No further wake()."""
        if self in self._watches:
            self._watches.remove(self)
