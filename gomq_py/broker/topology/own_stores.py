"""Own stores: message stores of a vhost that belong to no queue or exchange, such as those for MQTT.

Other packages make the stores under names that they have registered (Kinds.add_store). The definitions log
contains the stores' names.
"""
from gomq_py.broker.topology_log import records
from gomq_py.errors import OutOfResources, Refused
from gomq_py.observability.log import logger
from gomq_py.storage.errors import StoreError

LOG = logger("broker")


class OwnStores:
    """Makes, opens, reopens and removes a vhost's stores that belong to no queue or exchange."""

    def __init__(self, vhost, factory):
        self._vhost = vhost
        self._factory = factory
        self._stores = {}  # name: (store, or None if it could not be opened; its incarnation)
        self._is_closed = False  # the broker is stopping

    def make(self, name):
        """Return the MessageStore of this name; a missing one is made and recorded. Raises OutOfResources."""
        vhost = self._vhost.name
        if name not in self._stores:
            if self._vhost.is_gone:
                raise OutOfResources(f"vhost '{vhost}' is deleted")
            try:
                store, incarnation = self._factory.open_own(vhost, name)
            except StoreError as error:
                raise OutOfResources(f"cannot make store '{name}' of vhost '{vhost}': {error}") from error
            try:
                self._vhost.record(records.store_made(vhost, name, incarnation))
            except Refused:
                self._factory.remove_own(vhost, name, store, incarnation)
                raise
            self._stores[name] = store, incarnation
        store = self._stores[name][0]
        if store is None:
            raise OutOfResources(f"store '{name}' of vhost '{vhost}' is closed after a fault")
        return store

    def replace(self, name):
        """Replace a failed store and its files by a new store, which is returned. Raises OutOfResources."""
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
        """Reopen a store that a fault has closed, then call ``done(store, error)``. One of the two is None.
        ``done`` is not called if the broker stops first, or the store is replaced or removed first.
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
        """Open a store of an earlier run, at boot. Blocks. Raises LookupError for an unregistered name."""
        opened = self._vhost.kinds.store_opened(name)
        store = None
        try:
            store, _ = self._factory.open_own(self._vhost.name, name, incarnation)
        except StoreError as error:  # the store stays closed; the boot goes on
            LOG.error("store %r of vhost %r is closed: %s", name, self._vhost.name, error)
        self._stores[name] = store, incarnation
        opened(self._vhost, store)

    def closed(self):
        """List the names of the stores that a fault has closed."""
        return [
            name for name, (store, _) in self._stores.items() if store is None or store.failure is not None]

    def names(self):
        return list(self._stores)

    def opened(self):
        return [store for store, _ in self._stores.values() if store is not None]

    def incarnations(self):
        return [incarnation for _, incarnation in self._stores.values()]

    def record_of(self, name):
        return records.store_made(self._vhost.name, name, self._stores[name][1])

    def close(self, shutdown):
        """Close all stores when the broker stops. ``shutdown.do()`` runs each step, even after an error."""
        self._is_closed = True
        for store in self.opened():
            if store.listener is not None:
                shutdown.do(store.listener.close)  # flushes no longer report to it
            shutdown.do(store.close)

    def remove_one(self):
        """Remove any one of the stores, because the vhost is deleted."""
        name, (store, incarnation) = self._stores.popitem()
        if store is not None:
            store.write_out()
        self._factory.remove_own(self._vhost.name, name, store, incarnation)
