r"""Identity: the node, cluster and epoch that a data folder belongs to; the file ``.cluster``.

    SHA-256 of the next line in hex, "\n", and a JSON object:
    {"cluster": 32 hex digits, "node": 32 hex digits, "epoch": number, "promoted": text, "damaged": boolean,
     "position": number, "torn": boot id, "doubted": boot id, "unflushed": boot id}

The node's id never changes. Cluster and epoch change when a full sync is complete. The epoch also changes
when a follower is promoted or elected, or its leader continues in a higher epoch. A node with an empty folder
has NO_ID as its cluster. The file is about one node, so it is neither replicated nor part of a backup: the
argument ``files`` of the functions below has no replicators.

While the node runs, only an IdentityFile and the end of a full sync write the file.
"""
import json
import os
from typing import NamedTuple

from gevent.lock import Semaphore

from gomq_py.cluster.wire.messages import ID_OCTETS, NO_ID
from gomq_py.digests import sha256
from gomq_py.errors import ClusterError
from gomq_py.hub.threads import in_thread
from gomq_py.storage.disk import atomic_file
from gomq_py.storage.disk.data_dir import CLUSTER, boot_id, content_of


class Identity(NamedTuple):
    """Identity of a data folder. ``cluster_id``, ``node_id``: 16 bytes. ``epoch``: at least 1 in a cluster.

    ``promoted``: address of the leader that this node followed until it was promoted; the node leads even if
    its settings still name that leader. ``damaged``: this leader has found damage in its data, and no
    follower may sync from it. ``position``: position in the epoch up to which the folder has all changes;
    updated now and then, so that an older copy of the folder can be recognized.

    ``torn``, ``doubted`` and ``unflushed`` are each the id of a boot of the machine, or "". A new full sync
    clears them. ``torn``: a flush of this follower's copy failed during that boot. Until the machine boots
    again, files on the disk may differ from their cached content. A broker that starts on the folder would
    not repair this, because it trusts all that its leader had flushed. ``doubted``: a flush of this leader
    failed during that boot. ``unflushed``: confirms since that boot rely on received data that is not
    flushed, and that may be lost when the machine boots again.
    """
    cluster_id: bytes
    node_id: bytes
    epoch: int
    promoted: str = ""
    damaged: bool = False
    position: int = 0
    torn: str = ""
    doubted: str = ""
    unflushed: str = ""

    @property
    def is_whole(self):
        """Whether the folder certainly has all changes that this node has acknowledged."""
        boot = this_boot()
        return self.torn != boot and self.unflushed in ("", boot)

    @property
    def reads_as_on_disk(self):
        """Whether the files' cached content is also on the disk after a flush.

        False if a flush has failed since the machine's boot.
        """
        return this_boot() not in (self.torn, self.doubted)


def this_boot():
    return boot_id().decode("ascii", "replace").strip() or "unknown"


class IdentityFile:
    """The file ``.cluster`` of a running node's data folder ``root``. ``identity``: the file's content."""

    def __init__(self, files, root, identity):
        self.identity = identity
        self._files, self._root = files, root
        self._turn = Semaphore()

    def change(self, **fields):
        """Change the named fields of the Identity, flushed to disk. Raises OSError. May switch greenlets."""
        with self._turn:
            changed = self.identity._replace(**fields)
            if changed != self.identity:
                in_thread(write, self._files, self._root, changed)
                self.identity = changed

    def take(self, cluster_id, epoch, unflushed=""):
        """Write that this node leads in ``epoch``, flushed to disk. May switch greenlets.

        A folder of no cluster becomes a folder of ``cluster_id``. Raises OSError; ClusterError for a folder
        of another cluster or of a higher epoch.
        """
        found = self.identity
        if found.cluster_id not in (NO_ID, cluster_id):
            raise ClusterError(
                f"{self._root} belongs to cluster {found.cluster_id.hex()}, and this node was elected in "
                f"{cluster_id.hex()}")
        if found.epoch > epoch:
            raise ClusterError(
                f"{self._root} is of epoch {found.epoch}, and this node was elected for {epoch}")
        self.change(cluster_id=cluster_id, epoch=epoch, position=0, unflushed=unflushed)


def read(root):
    """Return the Identity of a data folder, or None if it has none. Blocks.

    Raises OSError; ClusterError if the file ``.cluster`` is damaged.
    """
    path = os.path.join(root, CLUSTER)
    try:
        with open(path, "rb") as file:
            digest, _, content = file.read(4096).partition(b"\n")
    except FileNotFoundError:
        return None
    try:
        if sha256(content).hexdigest().encode() != digest:
            raise ValueError
        found = json.loads(content)
        cluster_id, node_id = bytes.fromhex(found["cluster"]), bytes.fromhex(found["node"])
        identity = Identity(
            cluster_id, node_id, found["epoch"], found["promoted"], found["damaged"],
            *(found.get(name, default) for name, default in Identity._field_defaults.items()
              if name not in ("promoted", "damaged")))
        lengths = {len(identity.cluster_id), len(identity.node_id)}
        types = [type(value) for value in identity[2:]]
        if lengths != {ID_OCTETS} or types != [int, str, bool, int, str, str, str] or identity.epoch < 0:
            raise ValueError
    except (ValueError, KeyError, TypeError):
        raise ClusterError(
            f"{path} is damaged, so nobody knows to which cluster the data folder belongs. Remove it to make "
            "this node the leader of a new cluster; for a follower empty the folder") from None
    return identity


def write(files, root, identity):
    """Replace the file ``.cluster``, flushed to disk. Blocks. Raises OSError."""
    content = json.dumps({
        "cluster": identity.cluster_id.hex(), "node": identity.node_id.hex(), "epoch": identity.epoch,
        **dict(zip(Identity._fields[3:], identity[3:], strict=True)),
    }).encode()
    line = sha256(content).hexdigest().encode() + b"\n" + content
    atomic_file.replace(files, os.path.join(root, CLUSTER), line)


def check_content(root, is_promoted):
    """Check that a data folder has content for a leader to serve. The folder is not open yet. Blocks.

    Raises ClusterError if a folder of a cluster, or of a promoted follower, is empty. Raises OSError.
    """
    # An empty folder that belongs to a cluster would empty its followers.
    found = read(root)
    if found is None or content_of(root):
        return
    if is_promoted:
        raise ClusterError("nothing has been copied to this follower yet, so there is nothing to lead")
    if found.cluster_id != NO_ID:
        raise ClusterError(
            f"{root} is empty, but belongs to a cluster: as a leader it would empty its followers. Restore "
            f"its content, promote a follower, or remove {CLUSTER} in it to begin a new cluster")


def of_leader(files, root, promoted=""):
    """Return the Identity of a node that will lead, written if it has changed. Blocks.

    A node without a cluster begins one. ``promoted``: address of the leader that the node has followed, or
    "". Raises ClusterError, OSError.
    """
    # A new epoch begins with a promotion, so that the former leader never wins against it.
    found = read(root)
    if found is None:
        wanted = Identity(os.urandom(ID_OCTETS), os.urandom(ID_OCTETS), 1)
    elif found.cluster_id == NO_ID:
        wanted = Identity(os.urandom(ID_OCTETS), found.node_id, 1)
    else:
        wanted = found._replace(epoch=found.epoch + 1, promoted=promoted) if promoted else found
    if wanted != found:
        write(files, root, wanted)
    return wanted


def of_member(files, root):
    """Return the Identity of a node in a cluster that elects its leader. Writes a changed Identity. Blocks.

    A folder without an Identity gets one that has a node id, but no cluster yet. Raises ClusterError,
    OSError.
    """
    found = read(root)
    wanted = Identity(NO_ID, os.urandom(ID_OCTETS), 0) if found is None else found._replace(promoted="")
    if wanted != found:
        write(files, root, wanted)
    return wanted


def of_follower(files, root):
    """Return the Identity of a node that will follow, written if it has changed. Blocks.

    Raises OSError; ClusterError if the folder has content but belongs to no cluster.
    """
    found = read(root)
    if found is None or found.cluster_id == NO_ID:
        content = content_of(root)
        if content:
            raise ClusterError(
                f"{root} holds {content[0]!r} and belongs to no cluster: a follower needs an empty folder, "
                "or one of its leader's cluster")
    wanted = Identity(NO_ID, os.urandom(ID_OCTETS), 0) if found is None else found._replace(promoted="")
    if wanted != found:
        write(files, root, wanted)
    return wanted
