"""Node: opens one data folder in this process, as leader or follower.

Creates the parts of a broker and passes them to each other.

- A *leader* has read the folder (``Broker.recover``) and serves it: broker, protocol servers, listeners.
- A *follower* keeps a copy of its leader's files in the folder (``cluster.follower``) and serves no client;
  its management listeners show its role. ``promote`` turns it into a leader.

The launcher and every other program that runs a broker use this module, the only one that knows all parts.
Never parses flags, never monkey-patches, handles no signals.
"""
import socket
from collections.abc import Callable
from typing import Any

from gomq_py.amqp.server.server import AMQPServer
from gomq_py.broker.broker import Broker
from gomq_py.config.settings import Settings
from gomq_py.content import forms
from gomq_py.doors import AMQP, HTTP, HTTPS, MQTT, PROTOCOLS, SIDE_DOORS, Doors, is_wanted
from gomq_py.errors import ClusterError, DefinitionsError
from gomq_py.federation.supervisor import Federation
from gomq_py.hub.context import Hub
from gomq_py.hub.scheduler import SliceClock
from gomq_py.hub.shutdown import Shutdown
from gomq_py.links.local import Connector
from gomq_py.mqtt.model.kinds import all_kinds
from gomq_py.mqtt.model.session_kind import EXTRA
from gomq_py.mqtt.wire import crossing
from gomq_py.observability.log import logger
from gomq_py.shovel.definition import DefinitionError
from gomq_py.shovel.supervisor import Shovels
from gomq_py.storage.disk.data_dir import DataDir
from gomq_py.storage.disk.files import Files
from gomq_py.storage.disk.replication import Replicator
from gomq_py.storage.flush.durability import Durability
from gomq_py.storage.flush.group_commit import GroupCommit

LOG = logger("boot")

# MQTT publishes are readable as AMQP properties everywhere.
forms.register(crossing.MQTTForm())
LEADER, FOLLOWER = "leader", "follower"
# The parts of a node and the method that closes each, in this order.
_ENDS = (
    ("shovels", "close"), ("federation", "stop"), ("doors", "close"), ("_forwarder", "close"),
    ("_management", "close"), ("_backup", "close"),
    ("hub", "take_leave"), ("broker", "close"), ("_committer", "stop"), ("_membership", "close"),
    ("hub", "close"),
)


class Node:
    """One data folder and what serves it. ``role``: LEADER or FOLLOWER while the folder is open, otherwise
    None.

    A leader has ``broker``, ``hub``, ``amqp``, ``doors`` (listeners), ``durability``, ``connector`` (of
    shovels and federation) and, once MQTT is used, ``mqtt``. A follower has ``hub`` and ``doors``. Otherwise
    these attributes are None.
    """

    def __init__(self, settings: Settings, replicators: tuple[Replicator, ...] = ()):
        """``replicators``: are told every change of a leader's files, besides those of a cluster."""
        self.settings = settings
        self.role: str | None = None
        self.broker: Any = None
        self.hub: Any = None
        self.amqp: Any = None
        self.mqtt: Any = None
        self.doors: Any = None
        self.durability: Any = None
        self.connector: Any = None
        self.shovels: Any = None
        self.federation: Any = None
        self._open_shovel: Any = None
        self._management: Any = None
        self._committer: Any = None
        self._membership: Any = None
        self._backup: Any = None
        self._forwarder: Any = None  # passes a follower's clients on
        if settings.clustering or settings.cluster or settings.cluster_leader:
            self._membership = _membership(settings)
            replicators = (*replicators, *self._membership.replicators)
        self._unserved: list[tuple[str, Any]] = []  # listening sockets that a follower keeps for promote
        self._files = Files(replicators)
        self._data_dir = DataDir(settings.data_dir, self._files, lock=settings.data_dir_lock)

    def lead(self) -> None:
        """Become leader: open the data folder and recover its content. Opens no listener. Blocks. May switch
        greenlets.

        Raises BackendError, ClusterError, DataDirError, DefinitionsError, LogError, OSError, StoreError; the
        caller must then call ``close``.
        """
        settings = self.settings
        if self._membership is not None:
            self._membership.check_content(self._data_dir.path)
        self._data_dir.open()
        broker: Broker  # made below; a node that closes has no self.broker, and followers may still log in
        if self._membership is not None:
            self._membership.lead(
                self._data_dir.path, self._files.register, lambda: broker.damage_count())
        self._committer = GroupCommit(
            self._files, enabled=settings.sync, slow_s=settings.slow_sync_warning, slice_clock=SliceClock)
        self.durability = Durability(self._committer)
        if self._membership is not None:
            self._membership.guard(self.durability)
        self.hub = self.hub or Hub(settings)
        kinds = all_kinds(settings.mqtt_exchange)
        broker = Broker(self._data_dir, self._files, self.durability, settings, self.hub, kinds)
        federation = Federation(kinds)
        broker.recover()
        self.broker = broker
        self.amqp = AMQPServer(broker, settings, self.hub)
        self.connector = Connector(settings, self.amqp.local.connect)
        self._take_over_shovels()
        federation.open(broker, self.hub, self.connector)
        self.federation = federation
        if settings.load_definitions:
            # imported here: most brokers need no import
            from gomq_py.broker.topology.first_import import import_once
            import_once(broker, settings.load_definitions)
        broker.resource_watch.start()
        self.role = LEADER

    def follow(self) -> None:
        """Become follower: lock the data folder for the leader that writes into it. If the settings name no
        leader and no elected cluster, another object of this process writes into it. Raises ClusterError,
        DataDirError, OSError.
        """
        self._data_dir.follow()
        if self.settings.cluster_leader or self.settings.clustering:
            self._membership.follow(self._data_dir.path)
        self.role = FOLLOWER

    def open_follower_doors(
            self, promote: Callable[[], None], deposed: Callable[[str], None] = lambda reason: None,
            inherited: Any = ()) -> None:
        """Open a follower's management listeners, and begin to follow. May switch greenlets.

        ``promote()`` is called when an operator requests a promotion, or the node is elected.
        ``deposed(reason)`` is called when the elected node no longer leads and must start again.
        ``inherited``: see ``open_doors``. Raises BindError, OSError.
        """
        # imported here: a leader needs none of it
        from gomq_py.http.follower import FollowerManagement
        self.hub = Hub(self.settings)
        forwarder = self._forwarder = self._membership.forwarder(self.hub)
        handlers, forward, http = {}, None, None
        served = set(SIDE_DOORS)
        if forwarder is not None:
            forward, http = forwarder.handler, forwarder.until_end
            protocols = [name for name in PROTOCOLS if is_wanted(name, self.settings, inherited)]
            handlers = {name: (forward(name), forwarder.gate(name), False) for name in protocols}
            served = {name for name, _ in inherited}
        management = FollowerManagement(
            self.settings, self.cluster_figures, self.why_not_promote, promote, http, self.change_cluster)
        self._unserved = list(inherited)
        doors = [(name, listening.dup()) for name, listening in inherited if name in served]
        self.doors = Doors(
            self.settings, handlers, management.door, self.hub.slow_turns, doors, forward)
        self.doors.open()
        self._membership.start(promote, deposed)

    def promote(self, inherited: Any = ()) -> None:
        """Make a follower the leader, and open its listeners. All changes received from the leader are
        flushed first. Blocks. May switch greenlets.

        ``inherited``: see ``open_doors``. Raises the errors of ``lead`` and ``open_doors``; after an error
        the caller calls ``close``.
        """
        assert self.role == FOLLOWER, self.role
        if self._membership is not None:
            self._membership.end_following(self._files.register)
        if self.doors is not None:
            self.doors.close()
            self.doors = None
        if self._forwarder is not None:
            self._forwarder.close()
            self._forwarder = None
        self.lead()
        unserved, self._unserved = self._unserved, []
        self.open_doors((*inherited, *unserved))

    def why_not_promote(self, is_forced: bool) -> str:
        """Return why this node must not be promoted now, or "". ``is_forced``: ignore an unfinished sync."""
        return self._membership.why_not_promote(is_forced)

    def change_cluster(self, what: str, node: str = "") -> None:
        """Carry out an operator's request: "accept_damage", "adopt", "force_leader", "transfer_leadership" or
        "forget_node".

        ``node``: a node's name, address or id: for "transfer_leadership" the next leader, "" for any; for
        "forget_node" the node to forget. Raises OSError, and ClusterError if the request is impossible now.
        May switch greenlets.
        """
        if self._membership is not None:
            self._membership.change(what, node)
        elif what != "accept_damage":
            raise ClusterError("this broker is in no cluster")

    def backup(self) -> Any:
        """Return the cluster.backup.Backup of this leader. The first call makes it."""
        if self._backup is None:
            # imported here: most runs have no backup, and need no part of a cluster
            from gomq_py.cluster.backup import Backup
            self._backup = Backup(
                self._data_dir.path, self._files, self._data_dir.cluster_name, self.durability.wait)
        return self._backup

    def must_follow(self) -> bool:
        """Return True if the node begins as a follower: always in a cluster that elects its leader, and if
        the settings name a leader, unless this node was promoted in its place. Blocks. May switch greenlets.
        Raises ClusterError, OSError.
        """
        settings = self.settings
        return bool(settings.clustering or settings.cluster_leader) and self._membership.must_follow(
            self._data_dir.path)

    def cluster_figures(self) -> dict[str, Any]:
        """Return the answer to /api/cluster: the node's role and, for a leader, its followers' states."""
        figures: dict[str, Any] = {"role": self.role or LEADER, "node": f"gomq@{socket.gethostname()}"}
        if self._membership is None:
            return figures | {"replicates": False, "followers": []}
        return figures | self._membership.figures()

    def open_doors(self, inherited: Any = ()) -> None:
        """Open a leader's listeners. ``inherited``: (name, socket) pairs of sockets that listen already.
        Raises BindError, ClusterError, OSError. May switch greenlets.
        """
        if self._membership is not None:  # first: a fault of it must cost no client its connection
            self._membership.open(self.hub, self.broker, self._find_listener)
        handlers = {AMQP: (*self._serving(AMQP), True)}
        if is_wanted(MQTT, self.settings, inherited):
            handlers[MQTT] = (*self._serving(MQTT), True)
        self.doors = Doors(
            self.settings, handlers, self._make_side_door, self.hub.slow_turns, list(inherited))
        self.doors.open()
        if self.mqtt is None and self._has_wills_to_publish():
            self._serving(MQTT)
        self.shovels.start()
        self.federation.start()
        if self._membership is not None:
            self._membership.opened()

    def _find_listener(self, name: str) -> Any:
        return None if self.doors is None else self.doors.find(name)

    def _take_over_shovels(self) -> None:
        shovels = Shovels(self.broker, self.hub, self._shovel_link, self.connector.check)
        try:
            shovels.take_over(self.settings.shovels)
        except DefinitionError as error:
            raise DefinitionsError(str(error)) from error
        self.shovels = shovels

    def _shovel_link(self, *arguments: Any) -> Any:
        """Return a new link that runs one shovel. Raises ValueError."""
        if self._open_shovel is None:
            # imported here: a broker without shovels needs no client
            from gomq_py.shovel.ends import Opener
            self._open_shovel = Opener(self.hub, self.connector, self._cluster_name)
        return self._open_shovel(*arguments)

    def _cluster_name(self) -> str:
        return self.broker.cluster_name

    def _has_wills_to_publish(self) -> bool:
        """Return True if MQTT is served over WebSockets, and an earlier run left wills to publish."""
        # The MQTT server publishes them, so it must then be created at boot, not for its first client.
        is_open = self.settings.mqtt_websocket and any(
            listener.protocol in (HTTP, HTTPS) for listener in self.listeners)
        return is_open and any(vhost.extras[EXTRA].wills.count for vhost in self.broker.vhosts.values())

    @property
    def listeners(self) -> list[Any]:
        """The open listeners, with ``protocol``, ``address`` and ``port``."""
        listeners = self.doors.listeners if self.doors is not None else []
        return listeners if self._membership is None else [*listeners, *self._membership.listeners]

    def drain(self) -> None:
        """Wait a few seconds, before a leader ends, for its followers to catch up. May switch greenlets."""
        if self._membership is not None:
            self._membership.drain()

    def close(self, before_lock: Callable[[], None] | None = None) -> None:
        """Close the listeners, connections and broker; then call ``before_lock()`` and unlock the data
        folder.

        May be called twice. After an error the remaining parts are closed as well, and the first error is
        raised at the end. May switch greenlets.
        """
        ended = self.broker is not None  # a failed boot left the state incomplete
        committer = self._committer
        shutdown = Shutdown()
        held = [(getattr(self, name), end) for name, end in _ENDS]
        self.broker = self.hub = self.amqp = self.mqtt = self.doors = self.durability = None
        self.connector = self.shovels = self.federation = self._management = self._committer = None
        self._open_shovel = self._membership = self._forwarder = self._backup = None
        for room, end in held:
            if room is not None:
                shutdown.do(getattr(room, end))
        if before_lock is not None:
            shutdown.do(before_lock)
        for _, listening in self._unserved:
            listening.close()
        in_order = ended and not shutdown.has_failed and committer is not None and not committer.has_failed
        shutdown.do(self._data_dir.close, in_order=in_order)
        self.role = None
        shutdown.raise_failure()

    def _serving(self, protocol: str) -> tuple[Callable[..., Any], Any]:
        """Return (function that serves a socket, admission gate) for ``protocol``, AMQP or MQTT."""
        if protocol == AMQP:
            return self.amqp.handle, self.amqp.gate
        if self.mqtt is None:
            # imported here: a broker without MQTT needs no MQTT server
            from gomq_py.mqtt.server.server import MQTTServer
            self.mqtt = MQTTServer(self.broker, self.settings, self.hub)
        return self.mqtt.handle, self.mqtt.gate

    def _make_side_door(self, protocol: str, listening: Any, tls: Any) -> Any:
        if self._management is None:
            # imported here: a broker without management needs no Flask
            from gomq_py.http.door import Management
            self._management = Management(
                self.broker, self.hub, self.settings, lambda: self.listeners, self._serving,
                self.doors, self.shovels, self.federation, self.cluster_figures,
                self.change_cluster, self.backup)
        return self._management.door(protocol, listening, tls)


def _membership(settings: Settings) -> Any:
    # imported here: most brokers have no followers
    if settings.clustering:
        from gomq_py.cluster.elected import ElectedMembership
        return ElectedMembership(settings)
    from gomq_py.cluster.membership import Membership
    return Membership(settings)
