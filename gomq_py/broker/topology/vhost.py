"""VHost: keeps a vhost's exchanges and queues by name, with every rule about declaring and deleting them.

broker.verbs checks permissions and calls the VHost. A method checks everything first, then writes the
definitions log, then changes the model. Only restart_queue() may switch greenlets. Error texts are
RabbitMQ's. Callers answer about a durable entity once the log is on disk. ``owner``: a client's connection.
"""
from functools import partial

from gomq_py.broker import names
from gomq_py.broker.envelope import EXTRA_KEYS
from gomq_py.broker.exchanges.direct import DefaultExchange
from gomq_py.broker.exchanges.types import COMPARED_ARGUMENTS, check_exchange_arguments
from gomq_py.broker.features.arguments import (
    CLASSIC, QUEUE_TYPE, check_may_be_unnamed, check_queue_arguments, check_same_arguments, queue_type_of,
)
from gomq_py.broker.names import (
    RESERVED_PREFIX, TOPIC_EXCHANGE, check_length, check_not_reserved, cleaned, described, locked,
)
from gomq_py.broker.policies.limits import MAX_QUEUES
from gomq_py.broker.policies.vhost_policies import VHostPolicies
from gomq_py.broker.queues.queue import Queue
from gomq_py.broker.routing.route import Route
from gomq_py.broker.routing.routing import Routing, discard_from, published
from gomq_py.broker.signals import events as events_
from gomq_py.broker.signals.events import Events
from gomq_py.broker.signals.totals import EXCHANGE_COUNTERS, Totals
from gomq_py.broker.tables import TableLimits
from gomq_py.broker.topology.bindings import frozen
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
    """One virtual host. Only its methods change ``exchanges`` and ``queues``, which map names to objects.

        factory           makes and removes queues (broker.topology.queue_factory)
        log               the definitions log
        tracing           True while messages are copied to amq.rabbitmq.trace (RabbitMQ's firehose)
        tables            limits for the sizes of argument tables
        kinds             the broker's register of exchange and queue types
        extras            {name of a package: state that it keeps in the vhost}
        topic_exchange    name of the exchange for MQTT topics, which may not exist
    """

    def __init__(self, name, factory, log, description="", tags=(), events=None):
        self._events = events or Events(None)
        self.bindings = Bindings(self, self._events)
        super().__init__(self.bindings.to)
        self.name = name
        self.description = description
        self.tags = list(tags)
        self.default_queue_type = CLASSIC  # type of queues declared without a type
        self.protected_from_deletion = False
        # destinations that are no queues, such as direct reply-to, by their names in the default exchange
        self.sinks = {}
        self.tracing = False
        self.tables = TableLimits()
        self.kinds = factory.kinds
        self.extras = {}
        self.topic_exchange = TOPIC_EXCHANGE
        self.blocked_publishes = set()  # BlockedPublishes: some of their queues lack the message
        self.is_gone = False  # deleted: later changes are not kept
        self._factory = factory
        self._log = log
        self._tracing_watchers = {}
        self._exclusive = {}  # owner: {queue: None}
        self._restarting = set()
        self.parameters = {}  # (component, name): value (broker.policies.parameters)
        self.waiting = set()  # keys of parameters that had no owner when they were set
        self.set_by = {}  # (component, name): the setter, if known
        self.notes = {}  # (room, name): value (broker.policies.parameters)
        self.limits, self.totals = {}, Totals()
        self.stores = OwnStores(self, factory)
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
        """Make a durable exchange, unless it exists. It is not logged, because every run makes it."""
        if name not in self.exchanges:
            kind = self.kinds.exchange_type(type_)
            exchange = kind(name, self.name, durable=True, internal=internal)
            exchange.predeclared = True
            self.add_exchange(exchange)

    def metadata(self):
        """Return the vhost's description, tags, default queue type and protection with RabbitMQ's keys."""
        return metadata(
            self.description, list(self.tags), self.default_queue_type, self.protected_from_deletion
        )

    # tracing

    def set_tracing(self, tracing):
        """Switch the tracing of messages on or off. It is off after a restart, as in RabbitMQ."""
        if self.tracing != bool(tracing):
            self.tracing = bool(tracing)
            for watcher, changed in list(self._tracing_watchers.items()):
                changed(watcher)
            self._events.emit("vhost.updated", events_.vhost_updated, self)

    def watch_tracing(self, watcher, changed):
        """Call ``changed(watcher)`` whenever tracing is switched on or off. None as ``changed`` ends this."""
        # ``changed`` is a plain function, so that no bound method is kept for each watcher.
        if changed is None:
            self._tracing_watchers.pop(watcher, None)
        else:
            self._tracing_watchers[watcher] = changed

    # looking up

    def exchange(self, name):
        """Return the exchange of this name. Raises NotFound."""
        exchange = self.exchanges.get(cleaned(name))
        if exchange is None:
            raise NotFound(f"no {described('exchange', cleaned(name), self.name)}")
        return exchange

    def queue(self, name, owner=None):
        """Return the open queue of this name. Raises NotFound; ResourceLocked for another owner's queue."""
        queue = self.queues.get(cleaned(name))
        if queue is None:
            raise NotFound(f"no {described('queue', cleaned(name), self.name)}")
        self.check_access(queue, owner)
        self._check_open(queue)
        return queue

    def _check_open(self, queue):
        """Raise NotFound for a queue that a fault of its store has closed."""
        # It would seem empty. RabbitMQ raises the same for a queue whose process has stopped.
        if queue.closed:
            raise NotFound(
                f"{described('queue', queue.name, self.name)} is closed after a fault of its store: see the "
                "broker's log, then restart it"
            )

    def check_access(self, queue, owner):
        """Raise ResourceLocked if the queue is exclusive to another owner than ``owner``."""
        if queue.exclusive_owner is not None and queue.exclusive_owner is not owner:
            raise ResourceLocked(locked(queue, self.name))

    # exchanges

    def declare_exchange(self, name, type_, durable=False, auto_delete=False, internal=False, arguments=None):
        """Do an exchange.declare (not passive). Returns the new or existing exchange. Raises AccessRefused,
        UnknownType, PreconditionFailed, OutOfResources.
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
                ("type", type_), ("durable", durable), ("auto_delete", auto_delete), ("internal", internal))
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
        """Make an exchange of class ``kind``, with a store if it delays, but do not add it to the vhost."""
        exchange = kind(name, self.name, durable, auto_delete, internal, arguments)
        if exchange.delays:
            self._factory.give_delayed_store(
                exchange, self._late_route, self._route_late, self.routes_changed, incarnation)
        return exchange

    def exchange_record(self, exchange):
        incarnation = self.incarnation_of(exchange.delayed_store) if exchange.delays else b""
        return records.exchange_declared(exchange, incarnation)

    def queue_record(self, queue):
        return records.queue_declared(queue, self.incarnation_of(queue))

    def _remove_delayed_store(self, exchange):
        if exchange.delays:
            self._factory.remove_delayed_store(exchange)

    def again(self, destinations):
        """Return the destinations; each queue is replaced by the present queue of its name, or left out."""
        found = [self.queues.get(each.name) if isinstance(each, Queue) else each for each in destinations]
        return [destination for destination in found if destination is not None]

    def _late_route(self, exchange, routing_key):
        """Return a Route for due messages of a delayed exchange; None if routing needs their headers."""
        ways = self.route_by_delay(exchange, routing_key)
        return None if ways is None else Route(ways[0], exchange.state)

    def _route_late(self, exchange, message, headers, pending):
        """Publish a due message of a delayed exchange to the destinations ``pending``; None: route the
        message first. Returns the list of destinations whose stores cannot take the message now.
        """
        if pending is not None:
            return published(message, self.again(pending))
        values = headers.get(EXTRA_KEYS)
        keys = [key for key in values if isinstance(key, str)] if isinstance(values, list) else ()
        destinations = self.route_message(exchange, message, headers, keys)
        exchange.state.publish_out += len(destinations)
        return published(message, destinations)

    def delete_exchange(self, name, if_unused=False):
        """Do an exchange.delete. Returns the deleted exchange, or None if there was no such exchange. Raises
        AccessRefused, PreconditionFailed, OutOfResources.
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
        """Raise AccessRefused if ``name`` is empty, which is the default exchange's name."""
        if not name:
            raise AccessRefused("operation not permitted on the default exchange")

    # queues

    def declare_queue(
        self, name, durable=False, exclusive=False, auto_delete=False, arguments=None, owner=None,
        server_named=False, by=None,
    ):
        """Do a queue.declare (not passive), for the user named ``by``. Returns (queue, True if it is new).

        For an empty name a name is generated. ``server_named``: True if the caller has generated the name.
        An exclusive queue is never durable, as in RabbitMQ. Raises AccessRefused, NotFound, OutOfResources,
        PreconditionFailed, ResourceLocked, UnknownType.
        """
        name = cleaned(name)
        unnamed = server_named or not name
        durable, auto_delete, arguments = bool(durable) and not exclusive, bool(auto_delete), arguments or {}
        if unnamed:
            check_may_be_unnamed(arguments)
            name = name or names.server_named()
        else:
            check_not_reserved("queue", name)  # also for an existing queue, as in RabbitMQ
            check_length("queue", name)
        entity, existing = described("queue", name, self.name), self.queues.get(name)
        if self.default_queue_type != CLASSIC and not unnamed:
            arguments = self._with_default_type(existing, durable and not auto_delete, arguments)
        arguments = self.policies.with_group(existing, name, arguments)
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
        owner = owner if exclusive else None
        return self.create_queue(name, durable, auto_delete, arguments, owner, by), True

    def create_queue(self, name, durable, auto_delete, arguments, owner=None, by=None):
        """Make a queue of any type, without checks of its name and arguments. Returns the queue. ``owner``:
        the connection to which the queue is exclusive, or None. Raises PreconditionFailed, OutOfResources,
        UnknownType. The queue's files are made with its first message.
        """
        assert name not in self.queues, name
        self._check_room(name)
        queue = self._factory.create(self.name, name, durable, auto_delete, owner, arguments)
        queue.declared_by = by
        if durable:
            try:
                self.record(self.queue_record(queue))
            except Refused:
                self._factory.remove(queue, "cannot be recorded")
                raise
        self._add_queue(queue)
        self.totals.queue_declared += 1
        self.totals.queue_created += 1
        self._events.emit("queue.created", events_.queue_created, queue)
        return queue

    def _check_room(self, name):
        limit = self.limits.get(MAX_QUEUES)
        if limit is not None and len(self.queues) >= limit:
            raise PreconditionFailed(
                f"cannot declare queue '{name}': queue limit in vhost '{self.name}' ({limit}) is reached")

    def _with_default_type(self, existing, may_be_another, arguments):
        if QUEUE_TYPE in arguments:
            return arguments
        kind = (
            self.default_queue_type if existing is None and may_be_another else existing
            and existing.arguments.get(QUEUE_TYPE)
        )
        return {**arguments, QUEUE_TYPE: kind} if kind else arguments

    def delete_queue(self, name, if_unused=False, if_empty=False, owner=None):
        """Do a queue.delete. Returns the count of ready messages, 0 for a missing queue. Raises
        PreconditionFailed, ResourceLocked, OutOfResources.
        """
        queue = self.queues.get(cleaned(name))
        if queue is None:
            return 0
        self.check_access(queue, owner)
        entity = described("queue", queue.name, self.name)
        # a blocked publish would be in the queue already if the disk were faster
        if if_empty and (queue.ready_count or any(one.is_for(queue) for one in self.blocked_publishes)):
            raise PreconditionFailed(f"{entity} not empty")
        if if_unused and queue.consumer_count:
            raise PreconditionFailed(f"{entity} in use")
        return self._drop_queue(queue)

    def pause_queue(self, queue, paused):
        """Pause or resume deliveries. A durable queue stays paused after a restart. Raises OutOfResources."""
        before, queue.paused = queue.paused, paused
        if queue.durable and bool(before) != bool(paused):
            try:
                self.record(self.queue_record(queue))
            except OutOfResources:
                queue.paused = before
                raise
        queue.wake()

    def redefine_queue(self, queue, arguments):
        """Give a queue new arguments of the same queue type. Returns True if they have changed. Raises
        OutOfResources or PreconditionFailed, without any change.
        """
        before = queue.arguments
        if frozen(arguments) == frozen(before):
            return False
        assert queue_type_of(arguments) == queue.type, arguments
        queue.redefine(arguments)
        if queue.durable:
            try:
                self.record(self.queue_record(queue))
            except Refused:
                queue.redefine(before)
                raise
        self.policies.configure_queue(queue)
        return True

    def restart_queue(self, queue):
        """Reopen a queue that a fault of its store has closed. All messages in its files become ready. A new
        Queue object with the same bindings replaces the old one. Raises PreconditionFailed if the queue is
        not closed or cannot be opened, NotFound if the queue is deleted first. May switch greenlets.
        """
        # Settling deliveries of the closed object has no effect any more. Until the queue is open, clients
        # get NotFound.
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
        again.paused = queue.paused
        self.forget_tee(queue)
        queue.on_unused = None
        self._disown(queue)
        self._add_queue(again)
        self.bindings.move(queue, again)

    def release_owner(self, owner):
        """Delete the exclusive queues of a closed connection, in slices if there are many. Returns their
        count. A queue stays locked until it is deleted.
        """
        queues = list(self._exclusive.get(owner, ()))
        count = len(queues)
        queues.reverse()

        def drop_one():
            queue = queues.pop()
            if self.queues.get(queue.name) is queue:  # unless it was deleted meanwhile
                self._drop_queue(queue)
            return bool(queues)

        if queues:
            self.in_slices(drop_one, "deleting exclusive queues")
        return count

    # changes of the model

    def in_slices(self, step, name, before_rest=None):
        """Call ``step()`` until it returns False, in slices of some milliseconds. The first slice runs now,
        the others as a job, which goes on after errors. ``before_rest()`` is called before that job starts.
        """
        steps = Steps(name, step, self._events)
        if steps.some():
            if before_rest is not None:
                before_rest()
            self.scheduler.start(steps)

    def record(self, record):
        """Write a record to the definitions log, unless the vhost is deleted. The caller then makes the
        recorded change. After OutOfResources or PreconditionFailed the caller must change nothing.
        """
        if self.is_gone:
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
        """Add an exchange to the vhost, without checks."""
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
        self._events.emit("exchange.deleted", events_.entity_deleted, exchange)

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
        self._events.emit("queue.deleted", events_.entity_deleted, queue)
        queue.on_deleted(reason)
        return count

    def _disown(self, queue):
        discard_from(self._exclusive, queue.exclusive_owner, queue)

    def recover_queue(self, name, auto_delete, arguments, incarnation, paused=False, by=None):
        """Open a durable queue of an earlier run and add it to the vhost, at boot. Blocks."""
        queue = self._factory.create(self.name, name, True, auto_delete, None, arguments, incarnation)
        queue.paused, queue.declared_by = paused, by
        self._add_queue(queue)

    # for rooms with state in this vhost

    @property
    def scheduler(self):
        return self._factory.scheduler

    @property
    def timers(self):
        return self._factory.timers

    @property
    def durability(self):
        return self._factory.durability

    @property
    def when_safe(self):
        return self._factory.when_safe

    def incarnation_of(self, queue):
        return self._factory.incarnation_of(queue)

    # closing and deleting

    def _delayed_stores(self):
        return [exchange.delayed_store for exchange in self.exchanges.values() if exchange.delays]

    def hold_back(self):
        """Release no more delayed messages, because the broker stops. They stay stored for the next run."""
        for store in self._delayed_stores():
            store.hold_back()

    def close(self):
        """Close all queues and stores at the broker's stop, even if some fail. Raises the first failure."""
        shutdown = Shutdown()
        for queue in list(self.queues.values()):
            queue.on_unused = None
            shutdown.do(queue.close, "broker stops")
        for store in self._delayed_stores():
            shutdown.do(store.close)
        self.stores.close(shutdown)
        shutdown.raise_failure()

    def durable_stores(self):
        """Yield all open durable stores: of queues, of delayed exchanges, and the vhost's own stores."""
        for queue in [*self.queues.values(), *self._delayed_stores()]:
            if queue.durable and queue.store is not None:
                yield queue.store
        yield from self.stores.opened()

    def incarnations(self):
        """Yield the folder ids of all durable queues, delayed exchanges and own stores."""
        for queue in [*self.queues.values(), *self._delayed_stores()]:
            if queue.durable:
                yield self.incarnation_of(queue)
        yield from self.stores.incarnations()

    def departures(self):
        """Mark the vhost as deleted. Returns a generator of functions, each of which removes one entity."""
        self.is_gone = True
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
        """Delete the auto-delete exchanges among ``sources`` that have no binding left."""
        for source in sources:
            if source.auto_delete and not source.binding_count and self.exchanges.get(source.name) is source:
                self._drop_exchange(source)

    def _queue_unused(self, queue):
        if queue.auto_delete and self.queues.get(queue.name) is queue:
            self._drop_queue(queue)


def metadata(description, tags, default_queue_type, is_protected):
    """Return a vhost's metadata with RabbitMQ's keys. The protection is included only if it is on."""
    facts = {"description": description, "tags": tags, "default_queue_type": default_queue_type}
    return {**facts, "protected_from_deletion": True} if is_protected else facts


def _check_same(entity_there, properties, entity):
    for key, received in properties:
        current = getattr(entity_there, key)
        if received != current:
            raise PreconditionFailed(difference(key, entity, received, current))
