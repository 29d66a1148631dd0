"""Membership: a node's part in replication without elections, according to the settings of [clustering].

Used by ``node``. A leader with ``replicate`` has a stream of its changes and serves followers. A node with
``follow`` keeps a copy of its leader's data folder until it is promoted.
"""
import os
import socket
from collections.abc import Callable
from functools import partial
from typing import Any

import gevent

from gomq_py.cluster import identity as identities
from gomq_py.cluster.folder_damage import FolderDamage, why_no_sync
from gomq_py.cluster.identity import Identity, IdentityFile
from gomq_py.cluster.wire.messages import NO_ID
from gomq_py.config.kinds import SECRET_OCTETS
from gomq_py.config.settings import Settings
from gomq_py.errors import ClusterError
from gomq_py.observability.log import logger
from gomq_py.storage.disk import swap
from gomq_py.storage.disk.plain_files import PlainFiles
from gomq_py.storage.disk.replication import Replicator

LOG = logger("cluster")
# A former leader that is there answers in less time.
ANSWER_S = 3.0
# A longer file is no secret: somebody has named a wrong file.
LONGEST_SECRET = 4096
# What an operator can do where the leader's folder is damaged, see folder_damage. A sync that has met the
# damage stays begun at the follower.
PROMOTE = "promote the follower ('gomq-py-ctl promote', with --force where it has begun a sync)"


class Membership:
    """One node's part in replication. ``replicators``: get the changes of a leader's files."""

    def __init__(self, settings: Settings):
        self._settings = settings
        self._files = PlainFiles()  # of this node's own file, and of a follower: nobody is told
        self._root = ""
        self._file: IdentityFile | None = None  # None: this node neither leads others nor follows
        self._register: Any = None
        self._stream: Any = None
        self._leader: Any = None
        self._follower: Any = None
        self._followed = ""
        self._damage: FolderDamage | None = None  # once this node leads
        if settings.cluster:
            # imported here: a node that only follows has no stream
            from gomq_py.cluster.stream import EventStream
            self._stream = EventStream(os.path.abspath(settings.data_dir))
        self.replicators: tuple[Replicator, ...] = () if self._stream is None else (self._stream,)

    # a follower

    def must_follow(self, root: str) -> bool:
        """Return whether this node must follow ``cluster_leader``. Blocks. May switch greenlets.

        Raises ClusterError, OSError.
        """
        # Not if it followed this leader and was promoted, unless that one was promoted since.
        found = identities.read(root)
        leader = self._settings.cluster_leader
        if found is None or found.promoted != leader:
            return True
        if swap.has_begun(root):  # what was read is of the former content
            return True
        if self._has_later_epoch(found):
            LOG.info("%s leads again, in a later epoch: this node follows it, though it was promoted", leader)
            return True
        LOG.warning(
            "this node leads, because it was promoted when it followed %s: remove `follow` from its "
            "configuration; to make it a follower again, empty its data folder", leader)
        return False

    def _has_later_epoch(self, found: Identity) -> bool:
        """Return whether ``cluster_leader`` leads the same cluster in a later epoch, as proved by a login.

        Also True without proof if the leader names a later epoch and refuses this node, for example because
        of damage in the leader's folder. If two nodes might lead, this one follows. May switch greenlets.
        """
        from gomq_py.cluster.follower import FAULTS
        from gomq_py.cluster.link import Link
        from gomq_py.cluster.login import FollowerLogin
        login = FollowerLogin(
            read_secret(self._settings), found.node_id, found.cluster_id, found.epoch, NO_ID, 0,
            socket.gethostname())
        try:
            with gevent.Timeout(ANSWER_S, OSError("no answer")):
                link = Link(self._address(), follower_context(self._settings))
                try:
                    link.send_now(login.hello())
                    while not login.done:
                        link.send_now(login.feed(link.next_frame()))
                finally:
                    link.end()
        except FAULTS:
            return login.refused_in > found.epoch
        return login.epoch > found.epoch

    def _address(self) -> tuple[str, int]:
        return address_of(self._settings.cluster_leader)

    def follow(self, root: str) -> None:
        """Make the Follower of the leader named in the settings; ``start`` starts it. Blocks.

        Raises ClusterError, OSError, TLSError.
        """
        from gomq_py.cluster.follower import Follower
        leader_tls(self._settings)  # raises its error now, not when this node is promoted
        self._file = IdentityFile(self._files, root, identities.of_follower(self._files, root))
        self._follower = Follower(
            self._files, root, read_secret(self._settings), *self._address(), socket.gethostname(),
            self._file, follower_context(self._settings))

    def forwarder(self, hub: Any) -> None:
        """Return None: a client that connects to a warm copy has the wrong address, and is not passed on."""

    def start(self, on_elected: Callable[[], None], on_deposed: Callable[[str], None]) -> None:
        """Begin to follow. The callbacks are not used, because there is no election."""
        self._follower.start()

    def why_not_promote(self, is_forced: bool) -> str:
        """Return the reason why this follower must not be promoted now, or ""."""
        follower = self._follower
        if not follower.is_whole:
            return "nothing has been copied to this follower yet, so there is nothing to lead"
        if follower.is_syncing and not is_forced:
            return (
                "a sync is under way, and what this follower has is older: wait until it is streaming, or "
                "take the older state with --force")
        if not follower.identity.is_whole and not is_forced:
            return (
                "a flush has failed, so this follower may read what is not on its disk: wait until it has "
                "synced, or take what it reads with --force")
        return ""

    def end_following(self, register: Any) -> None:
        """Stop the Follower, if any. May switch greenlets.

        All received changes are then on disk, or OSError is raised. Other followers will need a full sync
        from this node.
        """
        follower, self._follower = self._follower, None
        if follower is not None:
            self._followed = self._settings.cluster_leader
            failure = follower.stop()
            if failure is not None:
                raise OSError(f"the last changes of the leader could not be kept: {failure}") from failure

    # a leader

    def check_content(self, root: str) -> None:
        """Check that this node may lead with the content of ``root``, a data folder not open yet. Blocks.

        Raises ClusterError, OSError.
        """
        identities.check_content(root, bool(self._followed))

    def lead(self, root: str, register: Any, damage_count: Callable[[], int]) -> None:
        """Write a leader's Identity for the folder, if this node serves followers or was promoted.

        Blocks. ``damage_count()``: number of damages found in this run. Raises ClusterError, OSError.
        """
        self._root, self._register = root, register
        if self._stream is not None or self._followed:
            self._file = IdentityFile(
                self._files, root, identities.of_leader(self._files, root, self._followed))
            self._damage = FolderDamage(self._file, damage_count)

    def guard(self, durability: Any) -> None:
        """Do nothing: confirms do not wait for followers."""

    def open(self, hub: Any, broker: Any, find_listener: Callable[[str], Any]) -> None:
        """Serve followers, if the settings say so. May switch greenlets.

        ``find_listener``: see cluster.leader.Leader. Raises BindError, ClusterError, OSError.
        """
        if self._stream is None:
            return
        from gomq_py.cluster.leader import Leader
        assert self._file is not None
        settings, identity = self._settings, self._file.identity
        leader = Leader(
            read_secret(settings), identity.cluster_id, identity.epoch, self._stream, self._register,
            self._root, settings.clustering_bind, settings.clustering_port, leader_tls(settings),
            self._why_no_sync, find_listener=find_listener, found_damage=self._found_damage)
        leader.open()
        self._leader = leader

    def opened(self) -> None:
        """Do nothing: there is no election."""

    def change(self, what: str, node: str = "") -> None:
        """Carry out an operator's request. Raises ClusterError, OSError. May switch greenlets.

        "accept_damage": let followers sync again, although damage was found.
        """
        if what != "accept_damage":
            raise ClusterError("the nodes of this cluster elect no leader: see promote")
        if self._damage is not None:
            self._damage.accept()

    def _why_no_sync(self) -> str:
        """Return the reason why no follower may sync from this leader, or "". May switch greenlets.

        Raises OSError.
        """
        assert self._damage is not None and self._file is not None
        self._damage.note()
        return why_no_sync(self._file.identity, PROMOTE)

    def _found_damage(self, what: str) -> bool:
        """Note that ``what`` is damaged, and refuse all syncs. Raises OSError. May switch greenlets.

        Returns whether the running sync must end: not if an operator has accepted the damage.
        """
        assert self._damage is not None
        if self._damage.is_accepted:
            return False
        self._damage.found(what)
        return True

    # both

    @property
    def listeners(self) -> list[Any]:
        """The listener for followers, in a list that may be empty."""
        return [] if self._leader is None else [self._leader.listener]

    def figures(self) -> dict[str, Any]:
        """Return the answer to /api/cluster, without the node's name."""
        figures: dict[str, Any] = {}
        if self._file is not None:
            identity = self._file.identity
            figures = {"cluster": identity.cluster_id.hex(), "epoch": identity.epoch}
        if self._follower is not None:
            return figures | shown(self._follower.status._asdict(), address="leader")
        if self._stream is None:
            return figures | {"replicates": False, "followers": []}
        figures["damaged"] = self._file is not None and self._file.identity.damaged
        followers = [] if self._leader is None else [
            shown(follower._asdict(), node_id="node") for follower in self._leader.followers]
        return figures | {"replicates": True, "position": self._stream.position, "followers": followers}

    def drain(self) -> None:
        """Do nothing: a shutdown does not wait for followers."""

    def close(self) -> None:
        """Stop serving or following. May be called again. May switch greenlets."""
        leader, self._leader = self._leader, None
        if leader is not None:
            leader.close()
        if self._follower is not None:
            self._follower.stop()
            self._follower = None


def address_of(text: str) -> tuple[str, int]:
    """Parse "host:port" into (host, port)."""
    host, _, port = text.rpartition(":")
    return host.strip("[]"), int(port)


def leader_tls(settings: Settings) -> Callable[[Any], Any] | None:
    """Return a function that makes an accepted socket a TLS socket; None without a certificate.

    Raises TLSError.
    """
    if not settings.cluster_tls_cert:
        return None
    # imported here: a node without certificate needs no TLS library
    from gomq_py.net.tls import TLSOptions, server_context
    context = server_context(TLSOptions(
        settings.cluster_tls_cert, settings.cluster_tls_key, authorities=settings.cluster_tls_ca_cert,
        verify_peer=bool(settings.cluster_tls_ca_cert)))
    return partial(context.wrap_socket, server_side=True)


def follower_context(settings: Settings) -> Any:
    """Return the SSL context of a follower; None without ``cluster_tls_ca_cert``. Raises TLSError."""
    if not settings.cluster_tls_ca_cert:
        return None
    # imported here: a node without certificate needs no TLS library
    from gomq_py.net.tls import client_context
    return client_context(
        settings.cluster_tls_ca_cert, settings.cluster_tls_cert, settings.cluster_tls_key)


def shown(figures: dict[str, Any], **names: str) -> dict[str, Any]:
    """Return ``figures`` as the HTTP API names them: "_octets" becomes "_bytes", "_s" becomes "_seconds".

    ``names``: {name: other name} for single figures.
    """
    endings = (("_octets", "_bytes"), ("_s", "_seconds"))
    shown = {}
    for name, value in figures.items():
        for ending, other in endings:
            if name.endswith(ending):
                name = name.removesuffix(ending) + other
        shown[names.get(name, name)] = round(value, 3) if isinstance(value, float) else value
    return shown


def read_secret(settings: Settings) -> bytes:
    """Return the secret that leader and followers share. Raises ClusterError. Blocks."""
    path = settings.cluster_secret_file
    if not path:
        return settings.cluster_password.encode()
    try:
        with open(path, "rb") as file:
            secret = file.read(LONGEST_SECRET + 1)
    except OSError as error:
        raise ClusterError(f"cannot read secret_file {path}: {error.strerror or error}") from error
    if not SECRET_OCTETS <= len(secret.strip()) or len(secret) > LONGEST_SECRET:
        raise ClusterError(
            f"secret_file {os.path.abspath(path)} must hold a secret of {SECRET_OCTETS} to {LONGEST_SECRET} "
            "bytes")
    return secret.strip()
