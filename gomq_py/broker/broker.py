"""The Broker: holds a node's vhosts, users and parameters, and is the root of the model.

The node makes a Broker, which is empty until ``recover`` reads the data folder. The AMQP, MQTT and HTTP
servers get the Broker from the node. This module knows no sockets and no protocol frames.
"""
import os
from functools import partial
from uuid import NAMESPACE_DNS, uuid5

from gomq_py.auth import passwords
from gomq_py.auth.labels import check_description, check_tags
from gomq_py.auth.logins import make_logins
from gomq_py.auth.users import Users
from gomq_py.broker.features.arguments import CLASSIC, TYPES
from gomq_py.broker.names import check_length
from gomq_py.broker.policies import limits
from gomq_py.broker.policies.parameters import DELETED, OPERATOR, Notes, Parameters
from gomq_py.broker.policies.policy import OPERATOR_POLICY, POLICY
from gomq_py.broker.policies.vhost_policies import PolicyComponent
from gomq_py.broker.routing.route import ExchangeState
from gomq_py.broker.signals import audit_log, event_sources, events, log_exchange
from gomq_py.broker.signals.alarms import Alarms
from gomq_py.broker.signals.resource_watch import ResourceWatch
from gomq_py.broker.signals.totals import Totals
from gomq_py.broker.tables import TableLimits
from gomq_py.broker.topology import recovery
from gomq_py.broker.topology.kinds import Kinds
from gomq_py.broker.topology.queue_factory import QueueFactory
from gomq_py.broker.topology.steps import VHostDeletion
from gomq_py.broker.topology.vhost import VHost
from gomq_py.broker.topology_log import records
from gomq_py.broker.transfer.dead_letters import DeadLetters
from gomq_py.broker.verbs.access import Access
from gomq_py.errors import PreconditionFailed
from gomq_py.hub.shutdown import Shutdown
from gomq_py.observability.log import logger
from gomq_py.observability.quiet_log import QuietLog
from gomq_py.storage.disk.data_dir import DEFINITIONS, FOLLOWED, KILLED, USERS
from gomq_py.storage.logs.definition_log import DefinitionLog
from gomq_py.storage.segments.pool import SegmentPool
from gomq_py.storage.stores.unsealed import Unsealed

LOG = logger("broker")
EXPIRED = QuietLog(LOG, audit_log.LINES_S, most=audit_log.LINES_MAX)
DEFAULT_VHOST = "/"


class Broker:
    """The vhosts, users and parameters that a node serves.

        vhosts            {name: VHost}
        users             the accounts and their permissions
        logins            checks credentials
        user_limits       the UserLimits: limits of each user's connections and channels
        scheduler         the event loop's, which runs background jobs
        tables            the TableLimits: limits of the depth and length of tables
        durability        calls back when changes are safe; answers about durable entities wait for that
        events            the Events, to which the protocol servers report events
        alarms            the Alarms, which all connections hear of
        resource_watch    raises and lifts the alarms, once the node has started it
    """

    def __init__(self, data_dir, files, durability, settings, hub, kinds=None):
        """Make an empty model; the data folder is first touched by ``recover``.

        ``data_dir``: the DataDir. ``files``: the Files, through which all files are written. ``durability``:
        the Durability. ``hub``: the Hub (event loop) that the broker runs in. ``kinds``: the Kinds of queues
        and exchanges; None: the built-in ones. Raises BackendError if the settings' login backends are
        unusable.
        """
        self.durability = durability
        committer = durability.disk
        self.settings = settings
        self._hub = hub
        self.scheduler, timers = hub.scheduler, hub.timers
        self.events = events.Events(self.scheduler)
        self.vhosts = {}
        self.tables = TableLimits(settings.max_table_depth, settings.max_table_entries, settings.frame_max)
        self.leaving = {}  # name: the VHostDeletion in progress
        self.totals = Totals()  # sums of deleted vhosts
        self._data_dir = data_dir
        self._files = files
        self._pool = None
        self.dead_letters = DeadLetters(self.vhosts, durability, self.scheduler, timers)
        self.moves = set()  # operators' moves in progress
        self._factory = QueueFactory(
            data_dir, files, durability, self.scheduler, settings.segment_size, self.dead_letters, timers,
            self._queue_expired, Kinds() if kinds is None else kinds)
        self._factory.consumer_timeout_ms = settings.consumer_timeout
        self._factory.exchange_defaults = {
            "consistent_hash_algorithm": settings.default_consistent_hash_algorithm,
            "max_topic_words": settings.max_topic_words}
        only_local = (settings.default_user,) if settings.default_user_only_loopback else ()
        self.users = Users(
            files, data_dir.users_path, committer, self.scheduler, ExchangeState, only_local,
            data_dir.logs_left.get(USERS), partial(data_dir.note_log, USERS))
        self._factory.may_write = self._may_write
        self.logins = make_logins(self.users, settings, ExchangeState)
        self.user_limits = limits.UserLimits(self.users)
        self.alarms = Alarms()
        self.alarms.subscribe(event_sources.AlarmEvents(self.events))
        self.alarms.subscribe(hub.clients.alarmed)
        self.resource_watch = ResourceWatch(self.alarms, settings, data_dir.path)
        hub.at_close(self.resource_watch.stop)
        self._log = DefinitionLog(
            files, data_dir.definitions_path, committer, self.scheduler, "definitions", records.SHAPES,
            settings.max_deleted_definitions, left=data_dir.logs_left.get(DEFINITIONS),
            note=partial(data_dir.note_log, DEFINITIONS))
        self.parameters = Parameters(self._log, self.tables)
        self.users.rights_watchers.append(self._disown_if_deleted)
        self.notes = Notes(self._log)
        self.parameters.register(POLICY, PolicyComponent(users=self.users))
        self.parameters.register(OPERATOR_POLICY, PolicyComponent(operator=True))
        self.parameters.register(limits.COMPONENT, limits.LimitsComponent())
        self._log_exchange = None

    def recover(self):
        """Load the data folder; at the first boot make the first vhost and users. Called once; blocks. Raises
        DataDirError, LogError, OSError, StoreError. After an error the event loop and all opened files are
        closed, which may switch greenlets, and the Broker is unusable.
        """
        try:
            self._recover()
        except BaseException:
            self._hub.close()  # before anything switches: no timer or job may act on half a model
            try:
                self.close()
            except Exception:  # the reason for the failed boot matters more
                LOG.exception("closing what a boot that failed has opened failed, too")
            raise

    def _recover(self):
        self._data_dir.check_logs()
        self._open_pool()
        self.users.open()
        self._log.open()
        self._replay()
        if self._pool.boot.unsealed is not None:
            self._pool.boot.unsealed.seal()
        self._pool.listed = {}
        self._pool.boot.end()
        self._pool.last_end = KILLED  # a queue that is reopened in this run may have unfinished work
        self._make_defaults()
        self._data_dir.note_logs({DEFINITIONS: self._log.on_disk, USERS: self.users.on_disk})
        self._disown_of_deleted()
        for component, handler in self._factory.kinds.components.items():
            self.parameters.register(component, handler, self.vhosts.values())
        audit_log.AuditLog(self.events)
        self.users.on_change = event_sources.UserEvents(self.events, self.users)
        self.parameters.on_change = event_sources.ParameterEvents(self.events)
        if self.settings.event_exchange:
            self.events.start(self.vhosts)
        if self.settings.log_exchange and DEFAULT_VHOST in self.vhosts:
            self._log_exchange = log_exchange.LogExchange(self.vhosts[DEFAULT_VHOST], self.scheduler)

    def damage(self):
        """Return (number of damaged messages found in this run, paths of the files with quarantined data)."""
        notes = self._pool.damage
        kept = [path for path in sorted(notes.kept_paths) if os.path.lexists(path)]
        return notes.records, kept + self._data_dir.kept_paths()

    def damage_count(self):
        """Count the damaged messages found in this run and the logs that lack records. Returns the sum."""
        lacks_users = any(damage.promised for damage in self.users.damage)
        return self._pool.damage.records + self._log.lacks_records + lacks_users

    @property
    def cluster_name(self):
        """The cluster's name, as set by an operator or else as stored in the data folder."""
        given = self.parameters.global_.get("cluster_name")
        return given if isinstance(given, str) and given else self._data_dir.cluster_name

    @property
    def cluster_id(self):
        """The cluster's id: a UUID of the name in the data folder, even if an operator has set another."""
        return f"rabbitmq-cluster-id-{uuid5(NAMESPACE_DNS, self._data_dir.cluster_name)}"

    def describe_pool(self):
        return self._pool.describe()

    def close(self):
        """Flush and close everything, even after failures. Raises the first error. May switch greenlets."""
        shutdown = Shutdown()
        shutdown.do(self.resource_watch.stop)
        shutdown.do(self.events.stop)
        if self._log_exchange is not None:
            shutdown.do(self._log_exchange.close)
        self._finish_moves(shutdown)
        for vhost in list(self.vhosts.values()):
            shutdown.do(vhost.close)
        for deletion in list(self.leaving.values()):
            shutdown.do(deletion.finish)
        shutdown.do(self._wait_for_disk)
        shutdown.do(self._factory.close)
        shutdown.do(self._log.close)
        shutdown.do(self.users.close)
        if self._pool is not None:
            self._pool.boot.end()
            shutdown.do(self._pool.close)
        shutdown.do(self._list_segments)
        shutdown.raise_failure()

    def _list_segments(self):
        levels = [
            level for vhost in self.vhosts.values() for store in vhost.durable_stores()
            for level in store.browsed()]
        listed = ((level.folder, level.listed()) for level in levels)
        self._data_dir.list_segments({folder: entry for folder, entry in listed if entry is not None})

    def _finish_moves(self, shutdown):
        """End all transfers and wait for the disk, so no message is in two queues. May switch greenlets."""
        for move in list(self.moves):
            shutdown.do(move.close)
        for vhost in self.vhosts.values():
            shutdown.do(vhost.hold_back)
        shutdown.do(self._factory.redistributions.close)
        shutdown.do(self.dead_letters.close)
        shutdown.do(self._wait_for_disk)
        shutdown.do(self.durability.close)

    def _wait_for_disk(self):
        try:
            self.durability.disk.wait()
        except Exception as error:
            LOG.error("the last sync failed: %s", error)

    def on_consumer_timeout(self, callback):
        """Set the one ``callback()``, called whenever a queue's consumer timeout has changed."""
        self._factory.on_consumer_timeout = callback

    # vhosts

    def create_vhost(self, name, description="", tags=(), creator=None):
        """Create a vhost, or return the existing one. Raises OSError, PreconditionFailed.

        ``creator``: the name of a user who gets all rights in the vhost. If a deleted vhost of this name
        still has contents, they are removed first, which blocks. Call ``wait_until_gone`` beforehand to avoid
        that.
        """
        if name in self.vhosts:
            return self.vhosts[name]
        if name in self.leaving:
            self.leaving[name].finish()
        check_length("vhost", name)
        check_description(description)
        check_tags(tags)
        for user in list(self.users):
            # a crash may have left rights in a deleted vhost of this name
            self.users.forget_vhost(name, user.name)
        vhost = self._add_vhost(name, description, tags)
        if creator is not None:
            self.users.set_permission(creator, name, ".*", ".*", ".*")
        return vhost

    def _add_vhost(self, name, description="", tags=()):
        vhost = self._new_vhost(name, description, tags)
        self._log.append(records.vhost_created(vhost))
        self.vhosts[name] = vhost
        self.events.emit("vhost.created", events.vhost_created, vhost)
        return vhost

    def describe_vhost(
        self, vhost, description=None, tags=None, default_queue_type=None, protected_from_deletion=None
    ):
        """Change a vhost's metadata; None leaves a value unchanged. Raises OSError, PreconditionFailed, and
        ValueError for an unknown queue type.
        """
        check_description(description or "")
        check_tags(tags or ())
        if default_queue_type is not None and default_queue_type not in TYPES:
            raise ValueError(f"default_queue_type must be one of {', '.join(sorted(TYPES))}")
        before = vhost.description, vhost.tags, vhost.default_queue_type, vhost.protected_from_deletion
        wanted = (
            description, None if tags is None else list(tags), default_queue_type, protected_from_deletion
        )
        after = tuple(old if new is None else new for old, new in zip(before, wanted))
        if after == before:
            return
        vhost.description, vhost.tags, vhost.default_queue_type, vhost.protected_from_deletion = after
        try:
            self._log.append(records.vhost_created(vhost))
        except (OSError, ValueError):
            vhost.description, vhost.tags, vhost.default_queue_type, vhost.protected_from_deletion = before
            raise
        self.events.emit("vhost.updated", events.vhost_updated, vhost)

    def delete_vhost(self, name, connections=()):
        """Delete a vhost. Returns the VHost, or None for an unknown name. Clients no longer find the vhost; a
        background job removes its contents. ``connections``: those of the vhost's clients; the job closes
        them. Raises OSError, and PreconditionFailed for a protected vhost.
        """
        vhost = self.vhosts.get(name)
        if vhost is None:
            return None
        self.check_may_be_deleted(vhost)
        self._log.append(records.vhost_deleted(name))
        del self.vhosts[name]
        deletion = self.leaving[name] = VHostDeletion(
            vhost, connections, self.users, self.events, partial(self._vhost_gone, vhost)
        )
        if deletion.step():
            self.scheduler.start(deletion)
        return vhost

    @staticmethod
    def check_may_be_deleted(vhost):
        """Raise PreconditionFailed if an operator has protected the vhost from deletion."""
        if vhost.protected_from_deletion:
            raise PreconditionFailed(
                f"Refusing to delete virtual host '{vhost.name}' because it is protected from deletion"
            )

    def wait_until_gone(self, name):
        """Wait until all contents of a deleted vhost of this name are removed. May switch greenlets."""
        while name in self.leaving:
            self.leaving[name].wait()

    def _vhost_gone(self, vhost):
        counts = self.leaving.pop(vhost.name).counts
        self.totals.add_totals(vhost.totals)
        self.events.emit("vhost.deleted", events.vhost_deleted, vhost, *counts)

    def _queue_expired(self, queue):
        vhost = self.vhosts.get(queue.vhost)
        if vhost is not None and vhost.queues.get(queue.name) is queue:
            named = queue.name, queue.vhost
            EXPIRED.info(
                named, "queue %r in vhost %r expired: unused for %d ms", *named,
                queue.limits.settings.expires_ms)
            vhost.delete_queue(queue.name, owner=queue.exclusive_owner)

    # boot

    def _open_pool(self):
        data_dir = self._data_dir
        self._pool = self._factory.pool = SegmentPool(
            data_dir.pool_folder, self._files, self.durability.disk, self.settings.segment_size,
            start_timer=self._hub.timers.start)
        self._pool.last_end = data_dir.last_end
        self._pool.listed = data_dir.listed
        if data_dir.last_end == FOLLOWED and self.durability.disk.enabled and Unsealed.is_possible():
            self._pool.boot.unsealed = Unsealed(self._files, data_dir.path)

    def _replay(self):
        left_out = []
        deleted = {}  # names of vhosts whose last record is their deletion
        named = set()
        found = recovery.noting_deleted(self._log.replay(), deleted, named)
        descriptions, global_parameters = recovery.replay(
            found, lambda: self._log.is_damaged, left_out.append
        )
        self._log.say_damage("Check queues, exchanges and bindings")
        for name, description in descriptions.items():
            record = description.record
            vhost = self.vhosts[name] = self._new_vhost(name, record["description"], record["tags"])
            kind = record.get("default_queue_type")  # logs of earlier versions have no type
            vhost.default_queue_type = kind if kind in TYPES else CLASSIC
            vhost.protected_from_deletion = bool(record.get("protected"))
            left_out += recovery.restore(vhost, description, self.parameters)
        left_out += recovery.restore_global_parameters(self.parameters, global_parameters)
        self._log.leave_out(left_out)
        # missing records may include the re-creation of a vhost
        if not (left_out or self._log.lacks_records):
            self.users.forget_vhosts(deleted.keys() - self.vhosts.keys())
        lost_a_folder = any(record["op"] not in ("bind", "unbind") for record in left_out)
        self._factory.remove_orphans(named, log_is_damaged=self._log.is_damaged or lost_a_folder)
        self._log.compact_when_long(
            partial(recovery.snapshot, self.vhosts, self.parameters, self._being_removed))

    def _being_removed(self):
        """Return the ids (incarnations) of deleted entities whose folders may still exist."""
        leaving = [deletion.vhost.incarnations() for deletion in self.leaving.values()]
        return self._factory.removing.union(*leaving)

    def _may_write(self, user, vhost, exchange):
        found = self.users.get(user)
        return found is not None and Access(found, vhost).may_write(exchange)

    def _disown_if_deleted(self, user):
        """Reapply the policies that a user has set, because the user's rights have changed. If the user was
        deleted, first remove the user's name as the setter of parameters.
        """
        concerned = [vhost for vhost in self.vhosts.values() if vhost.policies.are_set_by(user.name)]
        if self.users.get(user.name) is not user:
            self._disown(user.name)
        for vhost in concerned:
            vhost.policies.changed()

    def _disown_of_deleted(self):
        """At boot, remove deleted users as setters of parameters. A crash may have left them there."""
        setters = {by for vhost in self.vhosts.values() for by in vhost.set_by.values()}
        for name in setters - {OPERATOR, DELETED}:
            if self.users.get(name) is None:
                self._disown(name)

    def _disown(self, name):
        try:
            self.parameters.disown(self.vhosts.values(), name)
        except OSError as error:
            LOG.error(
                "what user %r has set is not kept as set by nobody: %s; it is tried again at the next boot",
                name, error)

    def _new_vhost(self, name, description, tags):
        vhost = VHost(name, self._factory, self._log, description, tags, self.events)
        vhost.tables = self.tables
        if name == DEFAULT_VHOST and self.settings.event_exchange:
            vhost.predeclare(events.NAME, "topic", internal=True)
        if name == DEFAULT_VHOST and self.settings.log_exchange:
            vhost.predeclare(log_exchange.NAME, "topic", internal=True)
        return vhost

    def _make_defaults(self):
        """Make the vhost / if there is no vhost and, at the first boot, the first users with all rights."""
        # A damaged or emptied users' file gets no new user: ``guest`` with its known password must not come
        # back.
        is_first = self.users.is_new
        if self._log.is_new:
            vhost = self.vhosts[DEFAULT_VHOST] = self._new_vhost(DEFAULT_VHOST, "", ())
            self._log.begin([records.vhost_created(vhost)])
        elif not self.vhosts:
            self._add_vhost(DEFAULT_VHOST)
        if is_first:
            self.users.begin([
                (
                    name, passwords.check_hash(password_hash, algorithm), algorithm, ("administrator",),
                    list(self.vhosts),
                )
                for name, password_hash, algorithm in self._first_users()])
        self._data_dir.keep_cluster_name(is_first)

    def _first_users(self):
        """Return [(name, password hash, hash algorithm)] of the configured first users or default user."""
        settings = self.settings
        if settings.first_users:
            return [
                (name, password_hash, passwords.BCRYPT)
                for name, password_hash in settings.first_users.items()
            ]
        if not settings.default_user:
            return []
        return [
            (
                settings.default_user, settings.default_password_hash or passwords.hash_password("guest"),
                passwords.SHA256,
            )
        ]
