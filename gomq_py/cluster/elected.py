"""Elected membership: a node's part in a cluster that elects its leader (``enabled`` of [clustering]).

Used by ``node``, in place of ``membership``. The node begins as a follower. The coordination reads from etcd
which node leads, and calls the Member defined here.
"""
import contextlib
import os
from collections.abc import Callable
from functools import partial
from typing import Any

import gevent
from gevent import socket
from gevent.event import Event

from gomq_py.cluster import administration, shared_settings
from gomq_py.cluster import identity as identities
from gomq_py.cluster.acknowledger import Acknowledger
from gomq_py.cluster.boot_keepalives import BootKeepalives
from gomq_py.cluster.coordination import RETRY_S, Coordination
from gomq_py.cluster.core.overrides import NotPossible, adopt, force_leader
from gomq_py.cluster.core.promises import Promises
from gomq_py.cluster.core.records import SECRET, RecordError, decode_secret
from gomq_py.cluster.core.transactions import (
    CREATE, Compare, CoordinatorError, Put, Transaction, Unanswered,
)
from gomq_py.cluster.disk_watch import DiskWatch
from gomq_py.cluster.folder_damage import FolderDamage, why_no_sync
from gomq_py.cluster.follower import Follower
from gomq_py.cluster.identity import IdentityFile, this_boot
from gomq_py.cluster.leader import Leader
from gomq_py.cluster.leadership import Leadership, boot_time_s
from gomq_py.cluster.member import Folder
from gomq_py.cluster.membership import address_of, follower_context, leader_tls, read_secret, shown
from gomq_py.cluster.publisher_holds import PublisherHolds
from gomq_py.cluster.refusals import Refusals
from gomq_py.cluster.stream import EventStream
from gomq_py.cluster.wire.messages import NO_ID
from gomq_py.config.settings import Settings
from gomq_py.errors import ClusterError
from gomq_py.hub.threads import in_thread
from gomq_py.net.listener import bind_tcp, format_address
from gomq_py.observability.log import logger
from gomq_py.storage.disk.data_dir import CLUSTER, content_of
from gomq_py.storage.disk.open_file import CAN_FLUSH_FILE_SYSTEMS
from gomq_py.storage.disk.plain_files import PlainFiles
from gomq_py.storage.disk.replication import Replicator

LOG = logger("cluster")
# Part of lease_ttl that one call of etcd may take, TIMEOUT_S at most: two keepalives may fail.
CALL_PART = 0.36
# What an operator can do where this leader's folder is damaged, see folder_damage.
TRANSFER = "let another node lead (transfer_leadership; cluster_force_leader if none is in sync)"
# Reason of a leader that finds damage at its boot and resigns.
HANDS_OVER = "damage was found in this data folder, and another member of the in-sync set may be sound"


class ElectedMembership:
    """A node's membership in an elected cluster; one object per Node.

    ``connect()`` makes a Coordinator. Default: a client of the etcd that the settings name.
    """

    def __init__(self, settings: Settings, connect: Callable[[], Any] | None = None):
        self._settings = settings
        self._files = PlainFiles()  # of this node's own file, and of a follower: nobody is told
        self._root = os.path.abspath(settings.data_dir)
        self._stream = EventStream(self._root)
        self._promises = Promises()
        self._acknowledger = Acknowledger(
            self._promises, self._stream.want, counts_received=not settings.sync)
        self._disk = DiskWatch()
        self._connect = connect or partial(_client_of_etcd, settings)
        self._coordinator: Any = None
        self._keepalives: Any = None
        self._file: Any = None  # IdentityFile
        self._secret = b""
        self._beginning: Any = None  # greenlet
        self._coordination: Coordination | None = None
        self._follower: Any = None
        self._serving: Leadership | None = None  # while followers are served
        self._was_empty = False  # before the first sync, whose files come before it is noted
        self._is_first = False  # the cluster's doors have not been open yet
        self._register: Any = None
        self._damage: Any = None  # a leader's FolderDamage
        self._reason = "etcd was not asked yet"
        self._leader_address: tuple[str, int] | None = None
        self._forwarder: Any = None
        self._refusals = Refusals(self._leader_is_gone)
        self._callbacks: Any = None  # of start()

    @property
    def replicators(self) -> tuple[Replicator, ...]:
        """The replicators that get the changes of the node's files."""
        return (self._stream,)

    # a follower

    def must_follow(self, root: str) -> bool:
        """Return True: the node always begins as a follower."""
        return True

    def follow(self, root: str) -> None:
        """Read the folder's identity, and check the settings. Blocks.

        Raises BindError if the cluster port is not free; ClusterError, OSError, TLSError.
        """
        settings = self._settings
        advertised(settings)  # both raise their errors before the node has started
        leader_tls(settings)
        # a port that is taken would end the node whenever it is elected; a follower must not hold it, because
        # others take a leader for gone whose address refuses them
        bind_tcp(settings.clustering_bind, settings.clustering_port, 1).close()
        if settings.cluster_secret_file or settings.cluster_password:
            self._secret = read_secret(settings)
        self._file = IdentityFile(
            self._files, self._root, identities.of_member(self._files, self._root))
        self._coordinator = self._connect()

    def start(self, on_elected: Callable[[], None], on_deposed: Callable[[str], None]) -> None:
        """Start the greenlet that follows, and takes part in elections.

        ``on_elected()`` makes the node a leader. ``on_deposed(reason)`` restarts it as a follower. Both must
        return at once.
        """
        self._callbacks = on_elected, on_deposed
        self._beginning = gevent.spawn(self._begin)
        self._beginning.name = "cluster: begins"

    def _begin(self) -> None:
        secret_in_etcd = b""
        if not self._secret:
            self._secret = self._forwarder.secret = self._secret_of_cluster()
            secret_in_etcd = self._secret.hex().encode()
        settings, identity = self._settings, self._file.identity
        self._follower = Follower(
            self._files, self._root, self._secret, "", 0, socket.gethostname(), self._file,
            follower_context(settings), refused=self._refusals.refused)
        self._follower.start()
        self._coordination = Coordination(
            self._coordinator, self, identity.node_id.hex(), socket.gethostname(), advertised(settings),
            self._promises, float(settings.lease_ttl), float(settings.ack_timeout), settings.min_isr,
            settings=shared_settings.told(settings), secret=secret_in_etcd)
        self._coordination.start()

    def _secret_of_cluster(self) -> bytes:
        """Return the secret in etcd; write one if it is missing. Waits for etcd. May switch greenlets."""
        while True:
            try:
                kept = self._coordinator.read().secret
                if kept is None:
                    kept = self._coordinator.transact(Transaction(
                        (Compare(SECRET, CREATE, 0),), (Put(SECRET, os.urandom(32).hex().encode()),)
                    )).view.secret
                return decode_secret(kept.value)
            except (CoordinatorError, Unanswered) as error:
                reason = f"etcd: {error}"
            except RecordError as error:
                reason = f"etcd: `secret` cannot be read: {error}"
            if reason != self._reason:
                LOG.warning("%s", reason)
                self._reason = reason
            gevent.sleep(RETRY_S)

    def forwarder(self, hub: Any) -> Any:
        """Return a Forwarder for this follower, on the event loop ``hub``."""
        # imported here: a leader has none
        from gomq_py.cluster.forwarding import Forwarder
        self._forwarder = Forwarder(
            hub, self._secret, socket.gethostname(), lambda: self._leader_address,
            lambda: self._file.identity,
            follower_context(self._settings), self._refusals.refused)
        return self._forwarder

    def why_not_promote(self, is_forced: bool) -> str:
        """Return the reason why a follower cannot be promoted by hand: this cluster elects its leader."""
        return "the nodes of this cluster elect their leader: see transfer_leadership, cluster_force_leader"

    def end_following(self, register: Any) -> None:
        """Stop the Follower; all received changes are then on disk. Raises OSError. May switch greenlets.

        ``register`` keeps the former leader's file ids, so that other followers can resume with this node.
        """
        follower, self._follower = self._follower, None
        if follower is not None:
            failure = follower.stop()
            if failure is not None:
                raise OSError(f"the last changes of the leader could not be kept: {failure}") from failure
            former = follower.former_run
            if former is not None:
                ids = {os.path.join(self._root, path): file_id for file_id, path in former.paths.items()}
                register.go_on(ids, former.position)
                self._stream.succeed(former, self._file.identity.epoch)

    # the coordination's Member (cluster.member)

    @property
    def folder(self) -> Folder:
        identity = self._file.identity
        cluster = "" if identity.cluster_id == NO_ID else identity.cluster_id.hex()
        is_whole = identity.is_whole and (self._follower is None or self._follower.damage is None)
        is_copy = self._follower is not None and self._follower.is_copy
        return Folder(cluster, identity.epoch, is_whole, identity.damaged, is_copy, identity.position)

    @property
    def hears_leader(self) -> bool:
        return self._follower is not None and self._follower.hears_leader

    def hangs(self) -> bool:
        return self._disk.hangs()

    def follow_leader(self, address: str) -> str:
        if self._follower is None:
            return "this node is about to lead"
        if self.folder.cluster == "" and not self._was_empty:
            content = in_thread(content_of, self._root)
            if content:
                return (
                    f"{self._root} holds {content[0]!r} and belongs to no cluster: a node that joins one "
                    "needs an empty folder")
            self._was_empty = True
        self._set_leader(address_of(address))
        self._follower.follow(self._leader_address)
        return ""

    def settle(self) -> bool:
        if self._follower is None:
            return True
        self._set_leader(None)
        self._follower.follow(None)
        failure = self._follower.flush()
        if failure is not None:
            LOG.error("this node is not to lead: what it has received is not all on its disk: %s", failure)
        return failure is None

    def take(self, cluster: str, epoch: int) -> None:
        self._file.take(bytes.fromhex(cluster), epoch, "" if self._settings.sync else this_boot())

    def note(self, position: int) -> None:
        self._file.change(position=position, doubted=self._doubted())

    def _doubted(self) -> str:
        return this_boot() if self._disk.has_failed else self._file.identity.doubted

    def elected(self, leadership: Leadership, is_first: bool) -> None:
        self._is_first = is_first
        coordination = self._coordination
        assert coordination is not None
        self._keepalives = BootKeepalives(
            self._connect, coordination.lease_id, float(self._settings.lease_ttl), boot_time_s)
        on_elected, _ = self._callbacks
        on_elected()

    def lead_on(self, epoch: int) -> None:
        if self._serving is not None:
            self._serving.leader.lead_on(epoch)

    def end_links(self) -> None:
        if self._serving is not None:
            self._serving.close()

    def deposed(self, reason: str) -> None:
        self._reason = reason
        _, on_deposed = self._callbacks
        on_deposed(reason)

    # a leader

    def check_content(self, root: str) -> None:
        """Check that a leader may serve the folder's content. Blocks. Raises ClusterError, OSError."""
        if not self._is_first:
            identities.check_content(root, False)

    def lead(self, root: str, register: Any, damage_count: Callable[[], int]) -> None:
        """Remember the opened folder's register. ``damage_count()``: number of damages found in this run."""
        self._register = register
        self._damage = FolderDamage(self._file, damage_count)

    def guard(self, durability: Any) -> None:
        """Make the Durability wait for the in-sync followers, too. Watch the flushes of the local disk."""
        durability.add(self._acknowledger)
        self._disk.watch_flushes(durability.disk)

    def open(self, hub: Any, broker: Any, find_listener: Callable[[str], Any]) -> None:
        """Listen for followers, and wait until clients may connect. May switch greenlets.

        ``find_listener``: see cluster.leader.Leader. Raises BindError, OSError.
        """
        settings, coordination, identity = self._settings, self._coordination, self._file.identity
        assert coordination is not None and coordination.leadership is not None
        coordination.kept_alive(self._keepalives.lease, *self._keepalives.kept)
        leader = Leader(
            self._secret, identity.cluster_id, identity.epoch, self._stream, self._register, self._root,
            settings.clustering_bind, settings.clustering_port, leader_tls(settings),
            self._why_no_sync, self._acknowledger, find_listener, self._found_damage)
        leader.open()
        self._disk.watch_probe(broker.resource_watch)
        self._serving = serving = coordination.leadership
        serving.serve(hub.gate, broker.alarms, leader, PublisherHolds(
            broker.alarms, leader, self._stream, lambda: serving.in_sync.required, settings.max_lag_bytes))
        if self._why_no_sync() and not identity.damaged and serving.has_others:
            Event().wait()  # until the node is closed
        serving.start()
        serving.opened.wait()

    def opened(self) -> None:
        """End the boot keepalives, as all listeners are open: the event loop sends them from now on."""
        # The hub has not turned much until now.
        self._keepalives.stop()
        if self._coordination is not None:
            self._coordination.kept_alive(self._keepalives.lease, *self._keepalives.kept)

    def drain(self) -> None:
        """Before a shutdown, wait until every in-sync node has all changes, then let one of them lead.

        Does not wait if no other node is in sync, or if this node is not leading. May switch greenlets.
        """
        if self._serving is not None and self._coordination is not None:
            with contextlib.suppress(ClusterError):
                self._serving.check_transfer()
                if not self._serving.drain():
                    self._coordination.hand_over()

    def change(self, what: str, node: str = "") -> None:
        """Carry out an operator's request. Raises ClusterError, OSError. May switch greenlets.

        "accept_damage": let followers sync again, although damage was found. "adopt", "force_leader": see
        core.overrides. "transfer_leadership": let ``node`` lead; if empty, any other in-sync node.
        "forget_node": see administration.forget; ``node``: the other's name, address or id.
        """
        if what == "accept_damage":
            if self._serving is None:  # this folder is a copy, whose .cluster the follower writes
                raise ClusterError("this node does not lead: ask the leader")
            self._damage.accept()
        elif self._coordination is None:
            raise ClusterError(f"not now: {self._reason}")
        elif what == "transfer_leadership":
            self._transfer(self._coordination, node)
        elif what == "forget_node":
            connected = [] if self._serving is None else list(self._serving.leader.progress)
            administration.forget(
                self._coordinator, self._coordination, self._file.identity.node_id.hex(), node,
                connected)
        else:
            try:
                self._coordination.override({"adopt": adopt, "force_leader": force_leader}[what])
            except NotPossible as error:
                raise ClusterError(str(error)) from error
            except (CoordinatorError, Unanswered) as error:
                raise ClusterError(f"etcd: {error}") from error

    def _transfer(self, coordination: Coordination, named: str) -> None:
        if self._serving is None:
            raise ClusterError("this node does not lead: ask the leader")
        self._serving.check_transfer()
        chosen = named and administration.successor(coordination, self._file.identity.node_id.hex(), named)
        lacking = self._serving.drain()
        if lacking:
            raise ClusterError(f"nodes in sync do not have everything yet: {', '.join(sorted(lacking))}")
        if chosen:
            self._serving.leader.hang_up(chosen)
        greenlet = gevent.spawn(
            coordination.resign, "an operator has asked for another leader", bool(chosen))
        greenlet.name = "cluster: resigns"

    def _found_damage(self, what: str) -> bool:
        """Let another in-sync node lead, because ``what`` is damaged. Raises OSError. May switch greenlets.

        Returns whether the running sync must end: not if an operator has accepted the damage.
        """
        # A follower's copy may be sound.
        if self._damage.is_accepted:
            return False
        try:
            self._damage.found(what)
        finally:
            self._hand_over()
        return True

    def _hand_over(self) -> None:
        # Damage was found here.
        if self._coordination is not None and self._serving is not None and self._serving.has_others:
            gevent.spawn(self._coordination.resign, HANDS_OVER).name = "cluster: resigns"

    def _why_no_sync(self) -> str:
        """Return the reason why no follower may sync from this leader, or "". May switch greenlets.

        After new damage, lets another node lead. Raises OSError.
        """
        was_damaged = self._file.identity.damaged
        self._damage.note()
        if self._file.identity.damaged and not was_damaged:
            self._hand_over()
        return why_no_sync(self._file.identity, TRANSFER)

    # both

    @property
    def listeners(self) -> list[Any]:
        """The listener for followers, in a list that may be empty."""
        return [] if self._serving is None else [self._serving.leader.listener]

    def figures(self) -> dict[str, Any]:
        """Return the answer to /api/cluster, without the node's name and role."""
        coordination = self._coordination
        figures: dict[str, Any] = {"elects": True}
        if self._file is not None:
            folder, node_id = self.folder, self._file.identity.node_id
            figures |= {
                "node_id": node_id.hex(), "cluster": folder.cluster, "epoch": folder.epoch,
                "damaged": folder.is_damaged}
        figures |= {"state": "waiting", "lag_bytes": 0, "lag_seconds": 0.0}
        if coordination is None:
            error = self._reason.removeprefix("etcd: ")
            return figures | {"reason": self._reason, "etcd_error": error, "followers": []}
        serving = self._serving
        own = {} if self._follower is None else shown(self._follower.status._asdict(), address="leader")
        followers = [] if serving is None else [
            shown(follower._asdict(), node_id="node") for follower in serving.leader.followers]
        figures |= administration.figures(coordination, figures["node_id"], own, followers)
        if hasattr(self._coordinator, "call_seconds"):  # a test's coordinator may measure nothing
            figures["etcd_calls"] = administration.calls(self._coordinator)
        if own:
            return figures | own
        figures |= {
            "state": "leading", "replicates": True, "position": self._stream.position, "followers": followers,
            "fenced": True, "promises": 0}
        return figures if serving is None else figures | {
            "fenced": serving.is_fenced, "promises": len(self._promises)}

    def close(self) -> None:
        """Stop serving or following, and let another node lead. May be called again. May switch greenlets."""
        if self._beginning is not None:
            self._beginning.kill()
        if self._keepalives is not None:
            self._keepalives.stop()
        self._refusals.close()
        serving, self._serving = self._serving, None
        if serving is not None:
            serving.close()
        if self._coordination is not None:
            self._coordination.stop()
        if self._follower is not None:
            self._follower.stop()
            self._follower = None
        if self._coordinator is not None:
            self._coordinator.close()
        if self._file is not None:
            self._note_end()

    def _note_end(self) -> None:
        """Note an orderly shutdown in ``.cluster``. With --no-sync, flush all files before."""
        unflushed = self._file.identity.unflushed
        try:
            if unflushed == this_boot() and CAN_FLUSH_FILE_SYSTEMS:
                in_thread(self._flush_all)
                unflushed = ""
            self._file.change(doubted=self._doubted(), unflushed=unflushed)
        except OSError as error:
            LOG.error("the end of this run cannot be noted in %s: %s", CLUSTER, error)

    def _flush_all(self) -> None:
        folder = self._files.open_folder(self._root)
        try:
            self._files.sync_all(folder)
        finally:
            self._files.close(folder)

    def _set_leader(self, address: tuple[str, int] | None) -> None:
        if address != self._leader_address:
            self._leader_address = address
            self._forwarder.leader_changed()

    def _leader_is_gone(self, address: tuple[str, int]) -> None:
        if self._coordination is not None:
            gevent.spawn(self._coordination.is_gone, format_address(address)).name = "cluster: no leader"


def _client_of_etcd(settings: Settings) -> Any:
    # imported here: tests have other coordinators
    from gomq_py.cluster.etcd.client import TIMEOUT_S, of_settings
    return of_settings(settings, min(TIMEOUT_S, CALL_PART * settings.lease_ttl))


def advertised(settings: Settings) -> str:
    """Return the address "host:port" at which others reach this node's cluster port. Raises ClusterError."""
    given = settings.advertised_uri.rpartition("://")[2].rstrip("/")
    if not given:
        if not settings.clustering_port:
            raise ClusterError("`port` of [clustering] is 0: set `advertised_uri`, or a port others know")
        return f"{socket.gethostname()}:{settings.clustering_port}"
    host, _, port = given.rpartition(":")
    if not host or not port.isdecimal() or not 0 < int(port) < 65536:
        raise ClusterError(f"advertised_uri of [clustering] is {given!r}, and is to be host:port")
    return given
