"""Records: the keys of a cluster in its coordinator (etcd), and the format of their values.

    cluster      the cluster's id: 32 hex digits
    leader       with a lease: {"node": id, "epoch": number, "address": "host:port"}
    isr          {"epoch": number, "members": {id: epoch of the member's last sync},
                  "positions": {id: position in that epoch that the member has noted in its folder}}
    nodes/<id>   {"name": text, "address": "host:port", "settings": {name: value as text}}
    secret       64 hex digits

The id of a node is 32 hex digits, too. An operator may write anything under these keys: a value that
``decode`` refuses counts as unknown, and does not prevent a start of the broker.
"""
import json
import re
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, TypeVar

CLUSTER, LEADER, IN_SYNC, NODES, SECRET = "cluster", "leader", "isr", "nodes/", "secret"
# As in the login (cluster.login): each election takes the next one, so no cluster comes near it.
MAX_EPOCH = 1 << 62
# A longer value is not ours; 64 members are 3 KiB.
MAX_OCTETS = 65536
MAX_MEMBERS = 1024
MAX_SETTINGS = 128
MAX_TEXT = 300
_ID = re.compile("[0-9a-f]{32}")
_SECRET = re.compile("[0-9a-f]{64}")
_PORTS = range(1, 65536)


class RecordError(ValueError):
    """A value in the coordinator is malformed. The text says how, for the log."""


class LeaderRecord(NamedTuple):
    """The value of the key ``leader``. ``address``: host and cluster port, as followers reach them."""

    node: str
    epoch: int
    address: str

    def encode(self) -> bytes:
        return _encode(self._asdict())

    @classmethod
    def decode(cls, value: bytes) -> "LeaderRecord":
        """Decode a stored value. Raises RecordError."""
        found = _decode(value, cls._fields)
        return cls(check_id(found["node"]), _number(found["epoch"], 1), _address(found["address"]))


class InSyncRecord(NamedTuple):
    """The value of the key ``isr``.

    ``members``: {node id: epoch of the leader whose state the node's folder has}. Epoch 0: the node that
    began the cluster, until it serves clients. ``positions``: {node id: position, in that epoch, that the
    node has noted in its folder}, without nodes whose position is 0.

    A folder with a lower epoch, or a lower position in the same epoch, was restored from an older copy.
    """

    epoch: int
    members: Mapping[str, int]
    positions: Mapping[str, int] = {}

    def encode(self) -> bytes:
        found = {"epoch": self.epoch, "members": dict(sorted(self.members.items()))}
        if self.positions:
            found["positions"] = dict(sorted(self.positions.items()))
        return _encode(found)

    @classmethod
    def decode(cls, value: bytes) -> "InSyncRecord":
        """Decode a stored value. Raises RecordError."""
        found = _decode(value, ("epoch", "members"), ("positions",))
        members, positions = found["members"], found.get("positions", {})
        if not isinstance(members, dict) or not 1 <= len(members) <= MAX_MEMBERS:
            raise RecordError(f"the members are no object of 1 to {MAX_MEMBERS} nodes")
        epoch = _number(found["epoch"], 1)
        checked = {check_id(node): _number(synced, 0) for node, synced in members.items()}
        if max(checked.values()) > epoch:
            raise RecordError(f"a member has an epoch above {epoch}, the set's own")
        if not isinstance(positions, dict) or not positions.keys() <= checked.keys():
            raise RecordError("the positions are no object of members")
        return cls(epoch, checked, {node: _number(position, 1) for node, position in positions.items()})

    def place(self, node: str) -> tuple[int, int]:
        """Return the least (epoch, position) that the member's folder must have."""
        return self.members[node], self.positions.get(node, 0)


class NodeRecord(NamedTuple):
    """The value of ``nodes/<id>``, for operators.

    ``settings``: the settings that should be equal on all nodes; empty if the node has written none.
    """

    name: str
    address: str
    settings: Mapping[str, str] = {}

    def encode(self) -> bytes:
        return _encode(self._asdict())

    @classmethod
    def decode(cls, value: bytes) -> "NodeRecord":
        """Decode a stored value. Raises RecordError."""
        found = _decode(value, ("name", "address"), ("settings",))
        name, settings = found["name"], found.get("settings", {})
        if not _is_text(name) or not name:
            raise RecordError(f"{_shown(name)} is no name of a node")
        if not isinstance(settings, dict) or len(settings) > MAX_SETTINGS:
            raise RecordError(f"the settings are no object of at most {MAX_SETTINGS}")
        for pair in settings.items():
            if not all(map(_is_text, pair)):
                raise RecordError(f"{_shown(pair)} is no setting with its value")
        return cls(name, _address(found["address"]), settings)


def decode_cluster(value: bytes) -> str:
    """Return the cluster's id. Raises RecordError."""
    return check_id(_text(value))


def decode_secret(value: bytes) -> bytes:
    """Return the secret's 32 bytes. Raises RecordError, whose text does not show the value."""
    text = _text(value)
    if not _SECRET.fullmatch(text):
        raise RecordError("the secret is not 64 hex digits")
    return bytes.fromhex(text)


class Kept(NamedTuple):
    """A stored value, with the revisions of its creation and of its last change.

    ``lease``: the value is deleted when this lease ends; 0 for none.
    """

    value: bytes
    create_revision: int
    mod_revision: int
    lease: int = 0


class View(NamedTuple):
    """All keys of a cluster at one revision. An absent key is None. ``nodes``: {node id: Kept}."""

    revision: int
    cluster: Kept | None = None
    leader: Kept | None = None
    in_sync: Kept | None = None
    nodes: Mapping[str, Kept] = {}
    secret: Kept | None = None


Record = TypeVar("Record")


def decoded(kept: Kept | None, decode: Callable[[bytes], Record]) -> Record | None:
    """Return the decoded value; None if it is absent or malformed."""
    if kept is None:
        return None
    try:
        return decode(kept.value)
    except RecordError:
        return None


def check_id(text: Any) -> str:
    """Return the text if it is the id of a node or cluster. Raises RecordError."""
    if not isinstance(text, str) or not _ID.fullmatch(text):
        raise RecordError(f"{_shown(text)} is not 32 hex digits")
    return text


# helpers


def _encode(found: Mapping[str, Any]) -> bytes:
    return json.dumps(found, separators=(",", ":")).encode()


def _decode(value: bytes, names: tuple[str, ...], optional: tuple[str, ...] = ()) -> dict[str, Any]:
    text = _text(value)
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):  # ValueError: also a number of thousands of digits
        raise RecordError(f"{_shown(text)} is not JSON") from None
    if not isinstance(found, dict) or not {*names} <= found.keys() <= {*names, *optional}:
        raise RecordError(f"{_shown(text)} is no object with exactly {', '.join(names)}")
    return found


def _text(value: bytes) -> str:
    if len(value) > MAX_OCTETS:
        raise RecordError(f"the value has {len(value)} bytes, more than {MAX_OCTETS}")
    try:
        return value.decode("ascii")
    except UnicodeDecodeError:
        raise RecordError("the value is not ASCII") from None


def _number(found: Any, least: int) -> int:
    """Return ``found`` if it is an epoch or a position of at least ``least``. Raises RecordError."""
    if type(found) is not int or not least <= found <= MAX_EPOCH:  # type(): True is an int
        raise RecordError(f"{_shown(found)} is no number from {least} on")
    return found


def _address(found: Any) -> str:
    if not isinstance(found, str) or len(found) > MAX_TEXT or not found.isprintable() or " " in found:
        raise RecordError(f"{_shown(found)} is no address")
    host, _, port = found.rpartition(":")
    if not host or not (port.isascii() and port.isdigit() and len(port) <= 5 and int(port) in _PORTS):
        raise RecordError(f"{_shown(found)} is no address of the form host:port")
    return found


def _is_text(found: Any) -> bool:
    return isinstance(found, str) and len(found) <= MAX_TEXT and found.isprintable()


def _shown(found: Any) -> str:
    text = repr(found)
    return text if len(text) <= 80 else text[:77] + "..."
