"""Own stores: what a vhost keeps besides its queues and delayed exchanges, each store under a name, for those
who registered that with the kinds (broker.topology.kinds).

Beside vhost, above the factory that opens and removes stores, and the log that names them.
"""
from gomq_py.broker.topology_log import records
from gomq_py.errors import OutOfResources, Refused
from gomq_py.observability.log import logger
from gomq_py.storage.errors import StoreError

LOG = logger("broker")


class OwnStores:
    """Those of one vhost. ``record(record)`` writes to its log, and raises what VHost.record() does."""

    def __init__(self, vhost, factory, record):
        self._vhost = vhost
        self._factory = factory
        self._record = record
        self._stores = {}  # name: (store, or None where it is not open, its incarnation)
        self._is_closed = False  # the broker stops

    def make(self, name):
        """The MessageStore under a name, made and recorded if it was not there. Raises OutOfResources."""
        vhost = self._vhost.name
        if name not in self._stores:
            if self._vhost.is_gone:
                raise OutOfResources(f"vhost '{vhost}' is deleted")
            try:
                store, incarnation = self._factory.open_own(vhost, name)
            except StoreError as error:
                raise OutOfResources(f"cannot make store '{name}' of vhost '{vhost}': {error}") from error
            try:
                self._record(records.store_made(vhost, name, incarnation))
            except Refused:
                self._factory.remove_own(vhost, name, store, incarnation)
                raise
            self._stores[name] = store, incarnation
        store = self._stores[name][0]
        if store is None:
            raise OutOfResources(f"store '{name}' of vhost '{vhost}' is closed after a fault")
        return store

    def replace(self, name):
        """Make and record another store under this name, whose files go: it has failed. As make()."""
        before = self._stores.pop(name, None)
        try:
            store = self.make(name)
        except Refused:
            if before is not None:
                self._stores[name] = before
            raise
        if before is not None:
            self._factory.remove_own(self._vhost.name, name, *before)
        return store

    def reopen(self, name, done):
        """Open one again that a fault has closed: ``done(store, error)`` is called when that is so, with one
        of both, unless the vhost has been closed or deleted by then.
        """
        if self._is_closed:
            return
        before = self._stores[name]

        def opened(store, error):
            if self._stores.get(name) is before and not self._is_closed:
                if store is not None:
                    self._stores[name] = store, before[1]
                done(store, error)
            elif store is not None and self._is_closed:
                store.close()
            elif store is not None:  # recovery may have made files in its folder
                self._factory.remove_own(self._vhost.name, name, store, before[1])

        self._factory.reopen_own(self._vhost.name, name, *before, opened)

    def recover(self, name, incarnation):
        """Open one of an earlier run; for recovery at boot. Blocks. Raises LookupError where nobody has
        registered it.
        """
        opened = self._vhost.kinds.store_opened(name)
        store = None
        try:
            store, _ = self._factory.open_own(self._vhost.name, name, incarnation)
        except StoreError as error:  # it is there, closed, and everything else goes on
            LOG.error("store %r of vhost %r is closed: %s", name, self._vhost.name, error)
        self._stores[name] = store, incarnation
        opened(self._vhost, store)

    def closed(self):
        """The names of those that a fault has closed, until they are open again."""
        return [
            name for name, (store, _) in self._stores.items() if store is None or store.failure is not None]

    def names(self):
        return list(self._stores)

    def opened(self):
        """The stores that are open."""
        return [store for store, _ in self._stores.values() if store is not None]

    def incarnations(self):
        return [incarnation for _, incarnation in self._stores.values()]

    def record_of(self, name):
        """What the log keeps of one."""
        return records.store_made(self._vhost.name, name, self._stores[name][1])

    def close(self, shutdown):
        """The broker stops: close all, each whatever becomes of the others (hub.shutdown)."""
        self._is_closed = True
        for store in self.opened():
            if store.listener is not None:
                shutdown.do(store.listener.close)  # what is safe later it does not hear of
            shutdown.do(store.close)

    def remove_one(self):
        """The vhost was deleted: let go of a store."""
        name, (store, incarnation) = self._stores.popitem()
        if store is not None:
            store.flush()
        self._factory.remove_own(self._vhost.name, name, store, incarnation)
