"""VHost: names to exchanges and queues, and every rule about declaring and deleting them.

Above exchanges, queues and the log of definitions, below the doors. A verb checks everything first, then
writes the log, then changes the model, all without yielding; what it raises is what the peer is told, in
RabbitMQ's words. Permissions are the business of broker.verbs; waiting for the committer before an answer
about something durable leaves is the doors'. ``owner`` is any object that stands for a connection.
"""
from functools import partial

from gomq_py.broker import names
from gomq_py.broker.envelope import EXTRA_KEYS
from gomq_py.broker.exchanges.default import DefaultExchange
from gomq_py.broker.exchanges.delayed import DelayedExchange
from gomq_py.broker.exchanges.types import COMPARED_ARGUMENTS, check_exchange_arguments
from gomq_py.broker.features.arguments import (
    CLASSIC, QUEUE_TYPE, check_may_be_unnamed, check_queue_arguments, check_same_arguments, queue_type_of,
)
from gomq_py.broker.names import (
    RESERVED_PREFIX, TOPIC_EXCHANGE, check_length, check_not_reserved, cleaned, described, locked,
)
from gomq_py.broker.policies.vhost_limits import MAX_QUEUES
from gomq_py.broker.policies.vhost_policies import VHostPolicies
from gomq_py.broker.queues.queue import Queue
from gomq_py.broker.routing.route import Route
from gomq_py.broker.routing.routing import Routing, published
from gomq_py.broker.signals import events as events_
from gomq_py.broker.signals.events import Events
from gomq_py.broker.signals.totals import EXCHANGE_COUNTERS, Totals
from gomq_py.broker.tables import TableLimits
from gomq_py.broker.topology.binding import frozen
from gomq_py.broker.topology.bindings import Bindings
from gomq_py.broker.topology.own_stores import OwnStores
from gomq_py.broker.topology.steps import Steps
from gomq_py.broker.topology_log import records
from gomq_py.broker.values import difference, difference_in, same_argument
from gomq_py.errors import (
    AccessRefused, NotFound, OutOfResources, PreconditionFailed, Refused, ResourceLocked,
)
from gomq_py.hub.shutdown import Shutdown
from gomq_py.observability.log import logger
from gomq_py.storage.errors import StoreError

LOG = logger("broker")


class VHost(Routing):
    """One virtual host. ``exchanges`` and ``queues`` by name are read by everybody and changed here only.

    ``factory`` makes and removes queues (broker.topology.queue_factory), ``log`` keeps what is durable
    (storage.logs.definition_log), ``events`` (broker.events) hears what comes and goes. ``tracing``: the
    firehose is on (broker.tracing). ``tables``: how deep and how long arguments may be (broker.tables).
    ``kinds``: of exchanges and queues (broker.topology.kinds); ``extras``: what those who registered some
    keep of this vhost, each under its own name. ``topic_exchange``: name of the exchange that addresses of
    topics lead to (broker.names), which there need not be.
    """

    def __init__(self, name, factory, log, description="", tags=(), events=None):
        self._events = events or Events(None)
        self.bindings = Bindings(self, self._events)
        super().__init__(self.bindings.to)
        self.name = name
        self.description = description
        self.tags = list(tags)
        self.default_queue_type = CLASSIC  # of queues that are declared without one
        self.protected_from_deletion = False
        # destinations by name that are no queues, reached through the default exchange: direct reply-to
        self.sinks = {}
        self.tracing = False
        self.tables = TableLimits()
        self.kinds = factory.kinds
        self.extras = {}
        self.topic_exchange = TOPIC_EXCHANGE
        self.blocked_publishes = set()  # their messages have not reached all its queues
        self._is_gone = False  # deleted: what is still done in it is not kept
        self._factory = factory
        self._log = log
        self._tracing_watchers = {}
        self._exclusive = {}  # owner: {queue: None}
        self._restarting = set()
        self.parameters = {}  # (component, name): value, see broker.parameters
        self.waiting = set()  # those of them that nobody acted on when they were set
        self.set_by = {}  # (component, name): who set it, see there; of those that nobody is known of nothing
        self.notes = {}  # (room, name): value, see broker.policies.notes
        self.limits = {}
        self.totals = Totals()
        self.stores = OwnStores(self, factory, self.record)
        self.policies = VHostPolicies(
            self, factory.scheduler, factory.configure, factory.when_safe, self.kinds.left_out,
            self.kinds.policies_looked_at)
        self.default_exchange = DefaultExchange(name, self.queues, self.sinks)
        self.exchanges[""] = self.default_exchange
        for predeclared, type_, internal in self.kinds.predeclared:
            self.predeclare(predeclared, type_, internal)
        self.kinds.vhost_made(self)

    def __repr__(self):
        return f"<VHost {self.name!r}: {len(self.exchanges)} exchanges, {len(self.queues)} queues>"

    def predeclare(self, name, type_, internal=False):
        """An exchange that is there in every run, and so is no part of the log."""
        if name not in self.exchanges:
            kind = self.kinds.exchange_type(type_)
            exchange = kind(name, self.name, durable=True, internal=internal)
            exchange.predeclared = True
            self.add_exchange(exchange)

    def metadata(self):
        """What is said about it, as RabbitMQ calls and groups that."""
        return metadata(
            self.description, list(self.tags), self.default_queue_type, self.protected_from_deletion
        )

    # tracing

    def set_tracing(self, tracing):
        """Switch the firehose on or off; it is off after a restart, as in RabbitMQ."""
        if self.tracing != bool(tracing):
            self.tracing = bool(tracing)
            for watcher, changed in list(self._tracing_watchers.items()):
                changed(watcher)

    def watch_tracing(self, watcher, changed):
        """Call ``changed(watcher)`` when tracing is switched on or off, until the watcher says otherwise
        (None): each has a function of its class, and no method of its own is kept.
        """
        if changed is None:
            self._tracing_watchers.pop(watcher, None)
        else:
            self._tracing_watchers[watcher] = changed

    # looking up

    def exchange(self, name):
        """The exchange of this name. Raises NotFound."""
        exchange = self.exchanges.get(cleaned(name))
        if exchange is None:
            raise NotFound(f"no {described('exchange', cleaned(name), self.name)}")
        return exchange

    def queue(self, name, owner=None):
        """The queue of this name, for somebody who may use it.

        Raises NotFound, also where it is closed; ResourceLocked.
        """
        queue = self.queues.get(cleaned(name))
        if queue is None:
            raise NotFound(f"no {described('queue', cleaned(name), self.name)}")
        self.check_access(queue, owner)
        self._check_open(queue)
        return queue

    def _check_open(self, queue):
        """Refuse a queue whose store had a fault, as RabbitMQ refuses one whose process has stopped: it would
        seem empty.

        Raises NotFound.
        """
        if queue.closed:
            raise NotFound(
                f"{described('queue', queue.name, self.name)} is closed after a fault of its store: see the "
                "broker's log, then restart it"
            )

    def check_access(self, queue, owner):
        """Refuse an exclusive queue to everybody but its owner. Raises ResourceLocked."""
        if queue.exclusive_owner is not None and queue.exclusive_owner is not owner:
            raise ResourceLocked(locked(queue, self.name))

    # exchanges

    def declare_exchange(self, name, type_, durable=False, auto_delete=False, internal=False, arguments=None):
        """exchange.declare that is not passive: the exchange, made if it was not there.

        Raises AccessRefused, UnknownType, PreconditionFailed.
        """
        kind = self.kinds.declarable_exchange_type(type_)
        name = cleaned(name)
        self.check_not_default(name)
        durable, auto_delete, internal, arguments = (
            bool(durable), bool(auto_delete), bool(internal), arguments or {}
        )
        entity = described("exchange", name, self.name)
        existing = self.exchanges.get(name)
        if existing is not None:
            properties = (
                ("type", type_), ("durable", durable), ("auto_delete", auto_delete), ("internal", internal)
            )
            _check_same(existing, properties, entity)
            for key in COMPARED_ARGUMENTS:
                if not same_argument(arguments, existing.arguments, key):
                    raise PreconditionFailed(difference_in(key, entity, arguments, existing.arguments))
            return existing
        check_not_reserved("exchange", name, self.kinds.reserved_prefixes)
        check_length("exchange", name)
        check_exchange_arguments(kind, entity, arguments)
        self.tables.check_table(f"arguments of {entity}", arguments)
        exchange = self.make_exchange(kind, name, durable, auto_delete, internal, arguments)
        if exchange.durable:
            try:
                self.record(self.exchange_record(exchange))
            except Refused:
                self._remove_delayed_store(exchange)
                raise
        self.add_exchange(exchange)
        self._events.emit("exchange.created", events_.exchange_created, exchange)
        return exchange

    def make_exchange(self, kind, name, durable, auto_delete, internal, arguments, incarnation=None):
        """An exchange of this class, with a store if it is a delayed one; not in place yet.

        For this class and recovery.
        """
        exchange = kind(name, self.name, durable, auto_delete, internal, arguments)
        if isinstance(exchange, DelayedExchange):
            self._factory.give_delayed_store(
                exchange, self._late_route, self._route_late, self.routes_changed, incarnation)
        return exchange

    def exchange_record(self, exchange):
        """What the log keeps of an exchange."""
        is_delayed = isinstance(exchange, DelayedExchange)
        incarnation = self._factory.incarnation_of(exchange.delayed_store) if is_delayed else b""
        return records.exchange_declared(exchange, incarnation)

    def _remove_delayed_store(self, exchange):
        if isinstance(exchange, DelayedExchange):
            self._factory.remove_delayed_store(exchange)

    def again(self, destinations):
        """What takes messages now for the destinations of an earlier route: queues that are gone do not,
        others may have been restarted.
        """
        found = [self.queues.get(each.name) if isinstance(each, Queue) else each for each in destinations]
        return [destination for destination in found if destination is not None]

    def _late_route(self, exchange, routing_key):
        """A Route for delayed messages that are due, or None where each has to be looked at."""
        ways = self.route_by_delay(exchange, routing_key)
        return None if ways is None else Route(ways[0], exchange.state)

    def _route_late(self, exchange, message, headers, pending):
        """Route a delayed message that is due; ``pending``: the destinations it has yet to reach, or None for
        all.

        Returns those whose stores cannot take it now.
        """
        if pending is not None:
            return published(message, self.again(pending))
        values = headers.get(EXTRA_KEYS)
        keys = [key for key in values if isinstance(key, str)] if isinstance(values, list) else ()
        destinations = self.route_message(exchange, message, headers, keys)
        exchange.state.publish_out += len(destinations)
        return published(message, destinations)

    def delete_exchange(self, name, if_unused=False):
        """exchange.delete; of a missing one too.

        Returns the exchange that went, or None. Raises AccessRefused, PreconditionFailed.
        """
        name = cleaned(name)
        self.check_not_default(name)
        entity = described("exchange", name, self.name)
        exchange = self.exchanges.get(name)
        if name.startswith(RESERVED_PREFIX) or exchange is not None and exchange.predeclared:
            raise AccessRefused(f"deletion of system {entity} not allowed")
        if exchange is None:
            return None
        if if_unused and exchange.binding_count:
            raise PreconditionFailed(f"{entity} in use")
        self._drop_exchange(exchange)
        return exchange

    @staticmethod
    def check_not_default(name):
        """Refuse topology methods on the default exchange. Raises AccessRefused."""
        if not name:
            raise AccessRefused("operation not permitted on the default exchange")

    # queues

    def declare_queue(
        self, name, durable=False, exclusive=False, auto_delete=False, arguments=None, owner=None,
        server_named=False,
    ):
        """queue.declare that is not passive: (queue, whether it was made).

        An empty name asks for a generated one; ``server_named``: so was this.

        An exclusive queue is never durable, whatever was asked, as in RabbitMQ. Raises AccessRefused,
        NotFound, PreconditionFailed, ResourceLocked.
        """
        name = cleaned(name)
        unnamed = server_named or not name
        durable, auto_delete, arguments = bool(durable) and not exclusive, bool(auto_delete), arguments or {}
        if unnamed:
            check_may_be_unnamed(arguments)
            name = name or names.server_named()
        else:
            check_not_reserved("queue", name)  # of one that is there, too, as in RabbitMQ
            check_length("queue", name)
        entity = described("queue", name, self.name)
        existing = self.queues.get(name)
        if self.default_queue_type != CLASSIC and not unnamed:
            arguments = self._with_default_type(existing, durable and not auto_delete, arguments)
        if existing is not None:
            if existing.exclusive_owner is not (owner if exclusive else None):
                raise ResourceLocked(locked(existing, self.name))
            _check_same(existing, (("durable", durable), ("auto_delete", auto_delete)), entity)
            check_same_arguments(entity, arguments, existing.arguments)
            self._check_open(existing)
            if existing.limits is not None:
                existing.limits.used()
            self.totals.queue_declared += 1
            return existing, False
        if not unnamed:
            check_not_reserved("queue", name, self.kinds.reserved_prefixes)
        self._check_room(name)  # before the arguments, as in RabbitMQ
        check_queue_arguments(entity, durable, exclusive, auto_delete, arguments)
        self.tables.check_table(f"arguments of {entity}", arguments)
        return self.create_queue(name, durable, auto_delete, arguments, owner if exclusive else None), True

    def create_queue(self, name, durable, auto_delete, arguments, owner=None):
        """A new queue of any kind, for those who know that they may have it: neither its name nor its
        arguments are checked. ``owner``: of an exclusive one.

        Raises PreconditionFailed, OutOfResources.
        """
        assert name not in self.queues, name
        self._check_room(name)
        queue = self._factory.create(self.name, name, durable, auto_delete, owner, arguments)
        if durable:
            try:
                self.record(records.queue_declared(queue, self._factory.incarnation_of(queue)))
            except Refused:
                self._factory.remove(queue, "cannot be recorded")
                raise
        self._add_queue(queue)
        self.totals.queue_declared += 1
        self.totals.queue_created += 1
        self._events.emit("queue.created", events_.queue_created, queue)
        return queue

    def _check_room(self, name):
        """The vhost's limit lets one more queue in. Raises PreconditionFailed."""
        limit = self.limits.get(MAX_QUEUES)
        if limit is not None and len(self.queues) >= limit:
            raise PreconditionFailed(
                f"cannot declare queue '{name}': queue limit in vhost '{self.name}' ({limit}) is reached"
            )

    def _with_default_type(self, existing, may_be_another, arguments):
        """Arguments of a declare, with a type where they name none: that of the queue which is there, or the
        vhost's if the queue may have it.
        """
        if QUEUE_TYPE in arguments:
            return arguments
        kind = (
            self.default_queue_type if existing is None and may_be_another else existing
            and existing.arguments.get(QUEUE_TYPE)
        )
        return {**arguments, QUEUE_TYPE: kind} if kind else arguments

    def delete_queue(self, name, if_unused=False, if_empty=False, owner=None):
        """queue.delete; of a missing one too.

        Returns how many messages were ready. Raises PreconditionFailed, ResourceLocked.
        """
        queue = self.queues.get(cleaned(name))
        if queue is None:
            return 0
        self.check_access(queue, owner)
        entity = described("queue", queue.name, self.name)
        # What waits for files would be in it already if the disk were faster.
        if if_empty and (queue.ready_count or any(one.is_for(queue) for one in self.blocked_publishes)):
            raise PreconditionFailed(f"{entity} not empty")
        if if_unused and queue.consumer_count:
            raise PreconditionFailed(f"{entity} in use")
        return self._drop_queue(queue)

    def pause_queue(self, queue, paused):
        """Deliver nothing of a queue until it is resumed, over a restart too if it is durable.

        Raises OutOfResources.
        """
        before, queue.paused = queue.paused, paused
        if queue.durable and bool(before) != bool(paused):
            try:
                self.record(records.queue_declared(queue, self._factory.incarnation_of(queue)))
            except OutOfResources:
                queue.paused = before
                raise
        queue.wake()

    def redefine_queue(self, queue, arguments):
        """Give a queue other arguments of the same kind; the settings that they make are in force at once.

        Returns whether they are others, which is recorded where the queue is durable. Raises OutOfResources,
        PreconditionFailed; then nothing has changed.
        """
        before = queue.arguments
        if frozen(arguments) == frozen(before):
            return False
        assert queue_type_of(arguments) == queue.type, arguments
        queue.redefine(arguments)
        if queue.durable:
            try:
                self.record(records.queue_declared(queue, self._factory.incarnation_of(queue)))
            except Refused:
                queue.redefine(before)
                raise
        self.policies.configure_queue(queue)
        return True

    def restart_queue(self, queue):
        """Open a queue again that a fault of its store has closed; what its files hold is ready.

        It is another object, with the same bindings.

        Deliveries that are unacked still belong to the closed one: settling them changes nothing. Until it is
        open, clients are told that it is closed. Raises PreconditionFailed where it is not closed, or cannot
        be opened; NotFound if it is deleted meanwhile. May switch.
        """
        entity = described("queue", queue.name, self.name)
        if not queue.closed:
            raise PreconditionFailed(f"{entity} is not closed")
        if queue in self._restarting:
            raise PreconditionFailed(f"{entity} is being opened already")
        self._restarting.add(queue)
        try:
            again = self._factory.reopen(queue, lambda: self.queues.get(queue.name) is queue)
        except (StoreError, OSError) as error:
            LOG.error("%s cannot be opened again: %s", entity, error)
            raise PreconditionFailed(f"{entity} could not be opened again: see the log") from error
        finally:
            self._restarting.discard(queue)
        if again is None:
            raise NotFound(f"no {entity}")
        self._replace_queue(queue, again)

    def _replace_queue(self, queue, again):
        """The other object for the same queue, with its bindings."""
        again.paused = queue.paused
        self.forget_tee(queue)
        queue.on_unused = None
        if queue.exclusive_owner is not None:
            self._exclusive[queue.exclusive_owner].pop(queue, None)
        self._add_queue(again)
        self.bindings.move(queue, again)

    def release_owner(self, owner):
        """A connection is gone: delete its exclusive queues, in slices where they are very many; until then
        they are locked.

        Returns how many.
        """
        queues = list(self._exclusive.get(owner, ()))
        count = len(queues)
        queues.reverse()

        def drop_one():
            queue = queues.pop()
            if self.queues.get(queue.name) is queue:  # it may have gone by itself
                self._drop_queue(queue)
            return bool(queues)

        if queues:
            self.in_slices(drop_one, "deleting exclusive queues")
        return count

    def owns_queues(self, owner):
        """Whether a connection has exclusive queues here."""
        return owner in self._exclusive

    # changing the model

    def in_slices(self, step, name, before_rest=None):
        """Call ``step()`` until it returns False: for some milliseconds of the processor's time at once, the
        rest as a job that goes on whatever one step raises.

        ``before_rest()`` is called where there is a rest.
        """
        steps = Steps(name, step, self._events)
        if steps.some():
            if before_rest is not None:
                before_rest()
            self._factory.scheduler.start(steps)

    def record(self, record):
        """Write a durable change before it is made.

        Raises OutOfResources or PreconditionFailed (on the channel); then nothing may change.
        """
        if self._is_gone:
            return
        try:
            self._log.append(record)
        except ValueError as error:
            raise PreconditionFailed(
                f"cannot keep arguments in the definitions of vhost '{self.name}': {error}"
            ) from error
        except OSError as error:
            raise OutOfResources(
                f"cannot write the definitions of vhost '{self.name}': {error.strerror}"
            ) from error

    def add_exchange(self, exchange):
        """Put a checked exchange into place; for this class and recovery."""
        exchange.set_defaults(self._factory.exchange_defaults)
        self.needs_properties |= exchange.needs_properties
        self.exchanges[exchange.name] = exchange
        self.policies.configure_exchange(exchange)
        self.alternate_changed(exchange.name)
        self.kinds.exchange_added(self, exchange)

    def _drop_exchange(self, exchange):
        if exchange.durable:
            self.record(records.exchange_deleted(exchange))
        del self.exchanges[exchange.name]
        self.totals.add(exchange.state, EXCHANGE_COUNTERS)
        self._remove_delayed_store(exchange)
        self.forget_alternate(exchange)
        self.forget_onward(exchange)
        self.forget_tee(exchange)
        exchange.state.revision += 1
        self.alternate_changed(exchange.name)
        self.bindings.remove_to(exchange)
        self.bindings.remove_from(exchange)
        self._events.emit("exchange.deleted", events_.exchange_deleted, exchange)

    def _add_queue(self, queue):
        self.queues[queue.name] = queue
        self.policies.configure_queue(queue)
        queue.on_unused = self._queue_unused
        if queue.exclusive_owner is not None:
            self._exclusive.setdefault(queue.exclusive_owner, {})[queue] = None
        self.default_exchange.state.revision += 1
        self.tee_changed(queue.name)
        queue.on_added(self)

    def _drop_queue(self, queue):
        if queue.durable:
            self.record(records.queue_deleted(queue))
        count, target_of = queue.ready_count, queue.redistribution()
        del self.queues[queue.name]
        self.totals.add_queue(queue)
        self._disown(queue)
        self.default_exchange.state.revision += 1
        self.forget_tee(queue)
        self.tee_changed(queue.name)
        queue.on_unused = None
        self.bindings.remove_to(queue)
        reason = f"{described('queue', queue.name, self.name)} deleted"
        self._factory.remove(queue, reason, target_of)
        self._events.emit("queue.deleted", events_.queue_deleted, queue)
        queue.on_deleted(reason)
        return count

    def _disown(self, queue):
        """A queue is gone: its connection has one less."""
        owned = self._exclusive.get(queue.exclusive_owner)
        if owned is not None:
            owned.pop(queue, None)
            if not owned:
                del self._exclusive[queue.exclusive_owner]

    def recover_queue(self, name, auto_delete, arguments, incarnation, paused=False):
        """Put a durable queue of an earlier run back into place; for recovery at boot. Blocks."""
        queue = self._factory.create(self.name, name, True, auto_delete, None, arguments, incarnation)
        queue.paused = paused
        self._add_queue(queue)

    @property
    def scheduler(self):
        """The hub's, for those who keep something of this vhost."""
        return self._factory.scheduler

    @property
    def timers(self):
        """Likewise."""
        return self._factory.timers

    @property
    def when_safe(self):
        """As storage.flush.durability's, likewise."""
        return self._factory.when_safe

    @property
    def has_acknowledgers(self):
        """As storage.flush.durability's, likewise."""
        return self._factory.has_acknowledgers

    def incarnation_of(self, queue):
        """The random number that tells a durable queue from earlier ones of its name."""
        return self._factory.incarnation_of(queue)

    def hold_back(self):
        """The broker stops: what is delayed goes on at the next boot."""
        for exchange in self.exchanges.values():
            if isinstance(exchange, DelayedExchange):
                exchange.delayed_store.hold_back()

    def close(self):
        """The broker stops: close every queue, keeping what is durable.

        One that cannot be closed keeps no other one open; the first failure is raised at the end.
        """
        shutdown = Shutdown()
        for queue in list(self.queues.values()):
            queue.on_unused = None
            shutdown.do(queue.close, "broker stops")
        for exchange in list(self.exchanges.values()):
            if isinstance(exchange, DelayedExchange):
                shutdown.do(exchange.delayed_store.close)
        self.stores.close(shutdown)
        shutdown.raise_failure()

    def durable_stores(self):
        """The stores of durable queues and delayed exchanges, where there is one, and its own. A generator.
        """
        delayed = [exchange for exchange in self.exchanges.values() if isinstance(exchange, DelayedExchange)]
        for queue in [*self.queues.values(), *(exchange.delayed_store for exchange in delayed)]:
            if queue.durable and queue.store is not None:
                yield queue.store
        yield from self.stores.opened()

    def incarnations(self):
        """Those of everything in it that has a folder. A generator."""
        delayed = [exchange for exchange in self.exchanges.values() if isinstance(exchange, DelayedExchange)]
        for queue in [*self.queues.values(), *(exchange.delayed_store for exchange in delayed)]:
            if queue.durable:
                yield self._factory.incarnation_of(queue)
        yield from self.stores.incarnations()

    @property
    def is_gone(self):
        """Whether it was deleted: what is still done in it by those who hold it is not kept."""
        return self._is_gone

    def departures(self):
        """The vhost was deleted, and the log says so.

        Returns a generator of functions that let go of its queues and exchanges, one each.
        """
        self._is_gone = True
        return self._departures()

    def _departures(self):
        while self.queues:
            yield self._let_go_of_a_queue
        while self.exchanges:
            yield self._let_go_of_an_exchange
        while self.stores.names():
            yield self.stores.remove_one
        yield partial(self.kinds.vhost_gone, self)
        self.bindings.clear()

    def _let_go_of_a_queue(self):
        _, queue = self.queues.popitem()
        queue.on_unused = None
        self.totals.add_queue(queue)
        self._disown(queue)
        self.bindings.forget(queue)
        reason = f"vhost '{self.name}' deleted"
        self._factory.remove(queue, reason)
        queue.on_deleted(reason)

    def _let_go_of_an_exchange(self):
        _, exchange = self.exchanges.popitem()
        self.forget_onward(exchange)
        exchange.state.revision += 1
        self.totals.add(exchange.state, EXCHANGE_COUNTERS)
        self._remove_delayed_store(exchange)

    def delete_if_unused(self, sources):
        """Auto-delete: an exchange goes when its last binding has gone (never before it had one)."""
        for source in sources:
            if source.auto_delete and not source.binding_count and self.exchanges.get(source.name) is source:
                self._drop_exchange(source)

    def _queue_unused(self, queue):
        """The last consumer of a queue has gone."""
        if queue.auto_delete and self.queues.get(queue.name) is queue:
            self._drop_queue(queue)


def metadata(description, tags, default_queue_type, is_protected):
    """What is said about a vhost, as RabbitMQ calls and groups that: of the protection only that there is
    one.
    """
    facts = {"description": description, "tags": tags, "default_queue_type": default_queue_type}
    return {**facts, "protected_from_deletion": True} if is_protected else facts


def _check_same(entity_there, properties, entity):
    for key, received in properties:
        current = getattr(entity_there, key)
        if received != current:
            raise PreconditionFailed(difference(key, entity, received, current))
