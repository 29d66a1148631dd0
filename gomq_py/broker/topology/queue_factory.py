"""Queue factory: makes queues with their stores, and removes the files of deleted queues.

A durable queue's folder is named after vhost, queue and *incarnation*, a random number. So its files never
meet those of a later queue of the same name. A deletion is logged first; once the log is on disk, the files
are removed. After a crash in between, the next boot removes the folder that the log names as deleted. Folders
that the log does not name are quarantined.

Code for streams, quorum queues, priority queues and delayed exchanges is imported when the first one is made.
Code for limits is always imported, because a policy may add limits to existing queues at any time.
"""
import os
from collections import deque
from contextlib import contextmanager

from gevent.event import Event
from gevent.lock import BoundedSemaphore

from gomq_py.broker.exchanges import delayed
from gomq_py.broker.features.arguments import QUORUM, STREAM, queue_type_of
from gomq_py.broker.features.message_group import group_of, limit_of
from gomq_py.broker.features.queue_type import MAX_PRIORITY
from gomq_py.broker.features.stream_retention import SEGMENT_BYTES
from gomq_py.broker.policies.queue_settings import PLAIN
from gomq_py.broker.queues.limits import QueueLimits
from gomq_py.broker.routing.route import RememberedRoutes
from gomq_py.broker.topology.delayed_reopening import Reopening, delayed_in_words
from gomq_py.broker.topology.kinds import Parts
from gomq_py.broker.topology.orphans import settle_orphans
from gomq_py.broker.transfer.redistribution import Redistributions
from gomq_py.hub.scheduler import Job
from gomq_py.late_imports import importing
from gomq_py.observability.log import logger
from gomq_py.storage.disk.removal import FolderRemovals
from gomq_py.storage.errors import StoreError
from gomq_py.storage.stores.recovery import open_store
from gomq_py.storage.stores.reopening import open_aside, open_in_thread

LOG = logger("broker")
INCARNATION_SIZE = 16
# Queues whose limits are freed at once: some tens of microseconds each.
PARTED_AT_ONCE = 50
# Most file names in a log line: a long queue may have lost thousands.
SAID_GONE = 5


class QueueFactory:
    """Makes the queues of one broker, with their stores, and removes deleted ones. ``pool`` recycles segment
    files; it is set before the first queue is made. ``scheduler`` schedules the queues' deliveries.
    ``on_idle(queue)`` is called with each expired queue. ``kinds``: the register of types.
    """

    def __init__(
        self, data_dir, files, durability, scheduler, segment_bytes, dead_letters, timers, on_idle, kinds
    ):
        self.kinds = kinds
        self.pool = None
        self.scheduler = scheduler
        self.exchange_defaults = {}
        self.consumer_timeout_ms = 0  # default of queues without their own
        self.may_write = None  # set by the broker: may_write(user, vhost, exchange)
        self.on_consumer_timeout = _nothing  # called when the timeout of a queue has changed
        self._data_dir = data_dir
        self._files = files
        self.durability, self.when_safe = durability, durability.when_safe
        self._committer = durability.disk
        self._segment_bytes = segment_bytes
        self._dead_letters = dead_letters
        self.timers = timers
        self._on_idle = on_idle
        self._incarnations = {}
        # one reopening at a time: other jobs need the hub's threads, too
        self._one_reopening = BoundedSemaphore(1)
        self._is_closed = False
        self._known_folders = set()
        self.removing = set()  # incarnations of deleted entities whose folders still exist
        self._removals = FolderRemovals(files, durability.disk)
        self._held_removals = {}  # folder that is recovered -> arguments of its removals
        self._partings = Partings(scheduler)
        self.redistributions = Redistributions(scheduler, timers, durability.when_safe)

    def close(self):
        """Stop removing files when the broker stops. The next boot removes the files left."""
        self._is_closed = True
        self._removals.close()

    def create(self, vhost, name, durable, auto_delete, owner, arguments, incarnation=None):
        """Make a new queue, without files yet. With ``incarnation``, recover a queue from its files.
        Raises UnknownType and OutOfResources before any file is touched. A recovered queue whose store cannot
        be opened is closed.
        """
        kind = self.kinds.queue_kind(arguments)
        _import_for(arguments)
        recovered = incarnation is not None
        incarnation, folder = self._place(vhost, name, durable, incarnation)
        store, failure = None, None
        try:
            store = self._open_store(_call, folder, incarnation, vhost, name, durable, arguments)
        except StoreError as error:
            if not recovered:
                raise
            failure = error
        queue = self._make_queue(kind, name, vhost, store, durable, owner, auto_delete, arguments)
        if failure is not None:
            queue.fail(failure)  # the queue stays closed; the boot goes on
        if durable:
            self._incarnations[queue] = incarnation
            if recovered:
                self._known_folders.add(folder)
        return queue

    def _place(self, vhost, name, durable, incarnation):
        """Return (incarnation, folder) for a store; a new incarnation if ``incarnation`` is None."""
        if incarnation is None:
            incarnation = os.urandom(INCARNATION_SIZE)
        if not durable:
            return incarnation, self._data_dir.transient_folder
        return incarnation, self._folder(vhost, name, incarnation)

    def _make_queue(self, kind, name, vhost, store, durable, owner, auto_delete, arguments):
        queue = kind.make(Parts(
            name, vhost, store, self.scheduler, self.timers, durable, owner, auto_delete, arguments))
        queue.is_state = kind.is_state
        if store is not None:
            store.open_aside()  # only now: the maker may have read its content
        if queue.type == STREAM:
            return queue
        queue.on_expiring = self._limit_expiring
        if store is not None and store.ready_count:
            self._limit_expiring(queue)  # messages of the last run may expire
        return queue

    def reopen(self, queue, is_wanted):
        """Make a new Queue over the files of a closed queue. A transient queue loses its messages. Returns
        None if ``is_wanted()`` is False before or after the files are read. Raises OSError, StoreError. May
        switch greenlets.
        """
        # The queue may be deleted meanwhile.
        if queue.store is not None:
            queue.store.close()
        incarnation, folder = self._incarnations.get(queue), self._data_dir.transient_folder
        if queue.durable:
            folder = self._folder(queue.vhost, queue.name, incarnation)
            self._settle_files()
        durable = bool(queue.durable)
        with self._one_reopening:
            if not is_wanted():
                return None
            with self._reopening(folder):
                store = self._open_store(
                    open_in_thread, folder, incarnation, queue.vhost, queue.name, durable, queue.arguments)
                if not is_wanted():
                    store.forget_files()
                    return None
        again = self._make_queue(
            self.kinds.queue_kind(queue.arguments), queue.name, queue.vhost, store, durable,
            queue.exclusive_owner, bool(queue.auto_delete), queue.arguments)
        again.declared_by = queue.declared_by
        if durable:
            self._incarnations[again] = self._incarnations.pop(queue)
        return again

    @contextmanager
    def _reopening(self, folder):
        """Context manager that delays the removal of a folder while its files are recovered."""
        self._held_removals[folder] = []
        try:
            yield
        finally:
            for removal in self._held_removals.pop(folder):
                self._removals.add(*removal)

    def _remove_folder(self, folder, store, *arguments):
        removal = (store, folder, *arguments)
        if folder in self._held_removals:
            self._held_removals[folder].append(removal)
        else:
            self._removals.add(*removal)

    def _settle_files(self):
        done = Event()
        self.durability.when_on_disk(lambda error: done.set())
        done.wait()

    def _open_store(self, how, folder, incarnation, vhost, name, durable, arguments):
        """Return the opened store for a queue with these arguments. ``how(function, *arguments)`` calls the
        opening function, perhaps in a thread.
        """
        shared = (folder, self._files, self.pool, self._committer, incarnation)
        if queue_type_of(arguments) == STREAM:
            from gomq_py.storage.stores.stream_recovery import open_stream_store

            store, report = how(
                open_stream_store, *shared, arguments.get(SEGMENT_BYTES, self._segment_bytes))
        elif MAX_PRIORITY in arguments:
            from gomq_py.storage.stores.priority_store import open_priority_store

            store, report = how(
                open_priority_store, *shared, int(arguments[MAX_PRIORITY]), self._segment_bytes, durable)
        elif group_of(arguments) is not None:
            from gomq_py.storage.stores.group_store import open_group_store

            store, report = how(
                open_group_store, *shared, group_of(arguments), limit_of(arguments), self._segment_bytes,
                durable)
        elif queue_type_of(arguments) == QUORUM:
            from gomq_py.broker.queues.quorum import open_with_levels

            store, report = how(open_with_levels, *shared, self._segment_bytes, durable)
        else:
            store, report = how(open_store, *shared, self._segment_bytes, durable)
        if report.lost:
            LOG.error(
                "queue %r in vhost %r: %d messages that had been flushed are damaged and set aside", name,
                vhost, report.lost,
            )
        _say_gone(f"queue {name!r} in vhost {vhost!r}", report)
        return store

    def give_delayed_store(self, exchange, route_of, route, changed, incarnation=None):
        """Make a delayed exchange's message store, without files yet. With ``incarnation``, recover the store
        from its files. Raises OutOfResources before any file is touched. A recovered store that cannot be
        opened is closed.

        ``route_of(exchange, routing_key)`` returns the Route of due messages. If it returns None,
        ``route(exchange, message, headers, pending)`` is called for each of them. ``changed(exchange)`` is
        called whenever a durable store was reopened after a fault.
        """
        with importing("a delayed exchange"):
            from gomq_py.broker.transfer.delayed import DelayQueue

        recovered = incarnation is not None
        name, whose = f"amq.delayed-{exchange.name}", delayed_in_words(exchange)
        incarnation, folder = self._place(exchange.vhost, name, exchange.durable, incarnation)
        failure = None
        try:
            store = self._open_plain(whose, folder, incarnation, exchange.durable)
        except StoreError as error:
            if not recovered:
                raise
            failure = error  # the store stays closed; the boot goes on
            store = self._open_plain(whose, self._data_dir.transient_folder, incarnation, False)

        def make(store):
            made = DelayQueue(
                name, exchange.durable, store, self.scheduler, self.durability, self.timers)
            made.due_ms_of = delayed.due_ms_of
            made.may_write = lambda user: self.may_write(user, exchange.vhost, exchange.name)
            made.release = lambda message, pending: route(
                exchange, *delayed.gone_on(message, self.timers.now_ms()), pending)
            made.routes = RememberedRoutes(lambda routing: route_of(
                exchange, routing[2 + routing[0]:].decode("utf-8", "surrogateescape")))
            return made

        exchange.delayed_store = make(store)
        if exchange.durable:
            self._incarnations[exchange.delayed_store] = incarnation
            if recovered:
                self._known_folders.add(folder)
            exchange.delayed_store.on_failed = Reopening(self, exchange, make, changed).begin
        if failure is not None:
            exchange.delayed_store.fail(failure)
        while exchange.delayed_store.rebuild_some():
            pass

    def reopen_delayed_store(self, exchange, done):
        """Reopen a delayed exchange's store after a fault, then call ``done(store, error)``. One of the two
        is None. Does nothing if the exchange was deleted or the broker stops.
        """
        before = exchange.delayed_store
        if not self.has_delayed_store(exchange, before):
            return
        before.store.listener = None
        before.store.close()

        def opened(store, error):
            if self.has_delayed_store(exchange, before):
                done(store, error)
            elif store is not None:
                store.close()

        self._reopen_plain(
            delayed_in_words(exchange), exchange.vhost, before.name, self._incarnations[before], opened)

    def has_delayed_store(self, exchange, one):
        """True if ``one`` is still the delayed store of the exchange, and the broker is not stopping."""
        return exchange.delayed_store is one and one in self._incarnations and not self._is_closed

    def replace_delayed_store(self, exchange, again):
        """Replace the failed store of a delayed exchange by ``again``, opened over the same files."""
        before = exchange.delayed_store
        again.on_failed = before.on_failed
        self._incarnations[again] = self._incarnations.pop(before)
        exchange.delayed_store = again
        LOG.warning("%s is open again", delayed_in_words(exchange))

    def remove_delayed_store(self, exchange):
        """Remove the messages of a deleted delayed exchange, once the definitions log is on disk."""
        delayed_store = exchange.delayed_store
        if not exchange.durable:
            delayed_store.delete()
            return
        incarnation = self._incarnations.pop(delayed_store)
        folder = self._folder(exchange.vhost, delayed_store.name, incarnation)
        delayed_store.retire()
        what = f"deleted exchange {exchange.name!r} in vhost {exchange.vhost!r}"
        self._remove_files(delayed_store.store, folder, incarnation, what)

    def open_own(self, vhost, name, incarnation=None):
        """Make a vhost's own store (see OwnStores) or, with ``incarnation``, recover it. Returns (store,
        incarnation). Raises StoreError.
        """
        recovered = incarnation is not None
        incarnation, folder = self._place(vhost, name, True, incarnation)
        if recovered:
            self._known_folders.add(folder)
        return self._open_plain(_own(vhost, name), folder, incarnation), incarnation

    def _open_plain(self, whose, folder, incarnation, durable=True):
        store, report = open_store(
            folder, self._files, self.pool, self._committer, incarnation, self._segment_bytes, durable)
        _say_gone(whose, report)
        return store

    def reopen_own(self, vhost, name, store, incarnation, done):
        """Reopen a vhost's own store after a fault, then call ``done(store, error)``; one of them is None."""
        if store is not None:
            store.listener = None
            store.close()
        self._reopen_plain(_own(vhost, name), vhost, name, incarnation, done)

    def _reopen_plain(self, whose, vhost, name, incarnation, done):
        def opened(store, report, error):
            if error is None:
                _say_gone(whose, report)
            done(store, error)

        # a removal of the folder comes behind it: both are long work, which is done in order
        self.durability.when_on_disk(lambda error: open_aside(
            opened, open_store, self._folder(vhost, name, incarnation), self._files, self.pool,
            self._committer, incarnation, self._segment_bytes))

    def remove_own(self, vhost, name, store, incarnation):
        """Remove the files of a vhost's own store, once the definitions log is on disk."""
        self._remove_files(store, self._folder(vhost, name, incarnation), incarnation, _own(vhost, name))

    def incarnation_of(self, queue):
        """Return the folder id (16 bytes) of a durable queue or DelayQueue."""
        return self._incarnations[queue]

    def configure(self, queue, settings):
        """Apply QueueSettings to a queue; None removes its limits."""
        timeout_ms = None if settings is None else settings.consumer_timeout_ms
        timeout_ms = int(self.consumer_timeout_ms if timeout_ms is None else timeout_ms)
        if timeout_ms != queue.consumer_timeout_ms:
            queue.consumer_timeout_ms = timeout_ms
            self.on_consumer_timeout()
        if queue.type == STREAM:
            queue.configure(settings or PLAIN)
        elif settings is None or not settings.needs_limits:
            if queue.limits is not None:
                queue.limits.configure(PLAIN)
        else:
            self._limits_of(queue).configure(settings)

    def _limits_of(self, queue):
        if queue.limits is None:
            queue.limits = QueueLimits(queue, self._dead_letters, self.timers, self._on_idle)
        return queue.limits

    def remove(self, queue, reason, target_of=None):
        """Cancel the consumers of a deleted queue, and remove its files later. ``target_of``
        (Queue.redistribution) gives its messages new destinations, or is None.
        """
        # The files go once the log, its last dead letters and the redistributed messages are on disk.
        if queue.durable:
            self.removing.add(self._incarnations[queue])
        if target_of is not None and not queue.closed:
            queue.retire(reason)
            self.redistributions.give(
                queue, target_of, lambda: self._remove_after_dead_letters(queue, reason, False))
        else:
            self._remove_after_dead_letters(queue, reason, bool(queue.closed))

    def _remove_after_dead_letters(self, queue, reason, was_closed):
        if queue.dead_letter_count and not was_closed:
            queue.retire(reason)
            self._dead_letters.let_leave(queue, lambda: self._remove(queue, reason))
        else:
            self._remove(queue, reason)

    def _remove(self, queue, reason):
        if not queue.durable:
            queue.delete()
            self._partings.add(queue)
            return
        incarnation = self._incarnations.pop(queue)
        folder = self._folder(queue.vhost, queue.name, incarnation)
        # Not closed: that would flush thousands of files that are about to be removed.
        queue.retire(reason)
        self._remove_files(queue.store, folder, incarnation, _whose(queue), queue)

    def remove_orphans(self, named, log_is_damaged=False):
        """At boot, remove or quarantine folders that no queue or store owns (see settle_orphans). Blocks."""
        settle_orphans(
            self._data_dir, self._files, self.pool.listed, self._known_folders, named, log_is_damaged)
        self._known_folders = set()

    def _limit_expiring(self, queue):
        """Give the queue QueueLimits, which expire messages, because its messages may have an expiry."""
        self._limits_of(queue).configure(PLAIN)

    def _folder(self, vhost, name, incarnation):
        return f"{self._data_dir.queue_folder(vhost, name)}.{incarnation[:8].hex()}"

    def _remove_files(self, store, folder, incarnation, whose, queue=None):
        """Remove a deleted entity's files once the definitions log is on disk. ``store``: may be None."""
        self.removing.add(incarnation)

        def done():
            self.removing.discard(incarnation)
            if queue is not None:
                part(queue)

        self.durability.when_on_disk(lambda error: self._remove_folder(folder, store, whose, error, done))


class Partings(Job):
    """Breaks the reference cycles of deleted transient queues and their limits, in slices."""

    name = "parting queues from their limits"

    def __init__(self, scheduler):
        super().__init__()
        self._scheduler = scheduler
        self._waiting = deque()

    def add(self, queue):
        """Call part(queue) later, because a method of the queue's limits may be the caller."""
        self._waiting.append(queue)
        self._scheduler.start(self)

    def step(self):
        for _ in range(min(PARTED_AT_ONCE, len(self._waiting))):
            part(self._waiting.popleft())
        return bool(self._waiting)

    def failed(self, error):
        LOG.error("deleted queues are given back later: %s", error)
        return bool(self._waiting)


def part(queue):
    """Break the reference cycle of a deleted queue and its limits."""
    # It would wait for a full collection.
    queue.limits = None


def _say_gone(whose, report):
    if report.gone:
        more = len(report.gone) - SAID_GONE
        LOG.error(
            "%s: %d message(s) are lost: %s%s gone since the last run stopped. If there is a copy, put it "
            "and its acks file back while no broker runs", whose, report.gone_count,
            ", ".join(report.gone[:SAID_GONE]),
            f" and {more} more are" if more > 0 else " is" if len(report.gone) == 1 else " are",
        )


def _own(vhost, name):
    return f"store {name!r} of vhost {vhost!r}"


def _whose(queue):
    return f"deleted queue {queue.name!r} in vhost {queue.vhost!r}"


def _import_for(arguments):
    if queue_type_of(arguments) == STREAM:
        with importing("a stream"):
            import gomq_py.broker.queues.stream_queue
            import gomq_py.storage.stores.stream_recovery  # noqa: F401
    elif group_of(arguments) is not None:
        with importing("a queue with message groups"):
            import gomq_py.broker.queues.group_queue
            import gomq_py.storage.stores.group_store  # noqa: F401
    elif MAX_PRIORITY in arguments or queue_type_of(arguments) == QUORUM:
        with importing("a queue with priorities"):
            import gomq_py.broker.queues.quorum
            import gomq_py.storage.stores.priority_store  # noqa: F401


def _call(function, *arguments):
    return function(*arguments)


def _nothing():
    """Do nothing: the default of on_consumer_timeout."""
