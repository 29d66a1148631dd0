"""Reads definitions from the logs in the data folder of a stopped broker. Never writes.

Reports unreadable parts. No other module of ctl knows how the broker stores definitions and users. This
module is slow to import, so commands import it when they run.
"""
import contextlib
import fcntl
import json
import os

from gomq_py.auth.users import SHAPES as USER_SHAPES
from gomq_py.broker.features.arguments import CLASSIC, queue_type_of
from gomq_py.broker.policies.policy import POLICY
from gomq_py.broker.topology.definitions import header, jsonable
from gomq_py.broker.topology.recovery import noting_deleted, replay, text
from gomq_py.broker.topology.vhost import metadata
from gomq_py.broker.topology_log import records
from gomq_py.global_names import INTERNAL
from gomq_py.mqtt.model.kinds import all_kinds
from gomq_py.storage.disk.data_dir import DEFINITIONS, LOCK, SCHEMA, SCHEMA_VERSIONS, USERS, queue_id
from gomq_py.storage.format.log import LogError, LogScan
from gomq_py.storage.logs.log_records import RecordError, read_record

_RIGHTS = ("configure", "write", "read")
_TOPIC_RIGHTS = ("write", "read")


class FolderError(Exception):
    """A data folder cannot be read. The error's text is one line for the operator."""


@contextlib.contextmanager
def held_folder(root):
    """Context manager: locks a data folder against a broker. Raises FolderError if it is none, or in use."""
    if not os.path.isdir(root):
        raise FolderError(f"{root} is not a folder")
    try:
        fd = os.open(os.path.join(root, LOCK), os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        fd = None  # a copy, or its broker runs without locks
    except OSError as error:
        raise FolderError(f"{root} cannot be read: {error.strerror}") from None
    try:
        if fd is not None:
            _lock(root, fd)
        _check_schema(root)
        yield
    finally:
        if fd is not None:
            os.close(fd)


def _lock(root, fd):
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        holder = os.pread(fd, 300, 0).decode("utf-8", "replace").strip() or "another process"
        raise FolderError(f"{root} is in use by {holder}: stop the broker, or take a copy") from None


def _check_schema(root):
    try:
        with open(os.path.join(root, SCHEMA), encoding="ascii", errors="replace") as file:
            found = file.read(100).strip()
    except OSError as error:
        raise FolderError(f"{root} is not a gomq-py data folder: {SCHEMA}: {error.strerror}") from None
    if found not in SCHEMA_VERSIONS:
        raise FolderError(
            f"{root} has schema version {found!r}, this gomq-py-ctl knows {' and '.join(SCHEMA_VERSIONS)}")


class Definitions:
    """The definitions in a data folder. ``problems``: lines about unreadable parts. ``kinds``: a
    broker.topology.kinds.Kinds, by default of all kinds. Raises FolderError if a log cannot be read at all.
    """

    def __init__(self, root, kinds=None):
        self.problems = []
        self._kinds = all_kinds() if kinds is None else kinds
        self._named = set()
        found = noting_deleted(self._records(root, DEFINITIONS, records.SHAPES), {}, self._named)
        self._vhosts, self._global = replay(found, lambda: bool(self.problems))
        self._users = _Users()
        for record in self._records(root, USERS, USER_SHAPES):
            self._users.apply(record)

    def _records(self, root, name, shapes):
        path = os.path.join(root, name)
        try:
            with open(path, "rb") as file:
                scan = LogScan(path, file.read())
            for payload in scan:
                try:
                    yield read_record(payload, shapes)
                except RecordError as error:
                    self.problems.append(f"{path}: a record is left out: {error}")
        except OSError as error:
            raise FolderError(f"{path} cannot be read: {error.strerror}") from None
        except LogError as error:
            raise FolderError(str(error)) from None
        self.problems.extend(
            f"{path}: bytes {damage.start} to {damage.end} are lost: {damage.reason}"
            for damage in scan.damage)

    def _each(self, what):
        """Yield (vhost's name, key, value) of each item of ``what``, such as "queues", in every vhost."""
        for vhost, description in self._vhosts.items():
            for item in getattr(description, what).items():
                yield (vhost, *item)

    def stream_folders(self):
        return {
            f"{queue_id(vhost, name)}.{record['incarnation'][:8].hex()}"
            for vhost, name, record in self._each("queues")
            if record["arguments"].get("x-queue-type") == "stream"
        }

    def folders(self):
        """Return two sets about folders below queues/: (names of folders in use, ids of deleted folders). An
        id is the part of a folder's name after the first dot.
        """
        owned = {
            (vhost, prefix + name): record["incarnation"]
            for what, prefix in (("queues", ""), ("exchanges", "amq.delayed-"), ("stores", ""))
            for vhost, name, record in self._each(what) if record.get("incarnation")
        }
        deleted = self._named.difference(owned.values())
        return (
            {f"{queue_id(*key)}.{incarnation[:8].hex()}" for key, incarnation in owned.items()},
            {incarnation[:8].hex() for incarnation in deleted},
        )

    def exported(self):
        """Return definitions as ``broker.topology.definitions.exported`` does, without transient entities."""
        parameters = [
            (vhost, *key, json.loads(record["value"])) for vhost, key, record in self._each("parameters")
        ]
        return {
            **header("cluster"), **self._users.exported(),
            "vhosts": [_vhost(name, description.record) for name, description in self._vhosts.items()],
            "parameters": [{"component": component, "name": name, "vhost": vhost, "value": value}
                           for vhost, component, name, value in parameters if component != POLICY],
            "global_parameters": [
                {"name": name, "value": json.loads(value)} for name, value in self._global.items()
                if name not in INTERNAL
            ],
            "policies": [
                {"vhost": vhost, "name": name, **value}
                for vhost, component, name, value in parameters if component == POLICY
            ],
            "queues": [
                {
                    "name": name, "vhost": vhost, "type": queue_type_of(record["arguments"]), "durable": True,
                    "auto_delete": record["auto_delete"], "arguments": jsonable(record["arguments"]),
                }
                for vhost, name, record in self._each("queues")
                if not self._kinds.is_state(record["arguments"])],
            "exchanges": [
                {
                    "name": name, "vhost": vhost, "type": record["type"], "durable": True,
                    "auto_delete": record["auto_delete"], "internal": record["internal"],
                    "arguments": jsonable(record["arguments"]),
                }
                for vhost, name, record in self._each("exchanges")],
            "bindings": [
                {
                    "source": text(record["source"]), "vhost": vhost,
                    "destination": text(record["destination"]), "destination_type": record["to"],
                    "routing_key": text(record["key"]), "arguments": jsonable(record["arguments"]),
                }
                for vhost, _, record in self._each("bindings") if not self._is_to_state(vhost, record)],
        }

    def _is_to_state(self, vhost, binding):
        queue = self._vhosts[vhost].queues.get(text(binding["destination"]))
        return binding["to"] == "queue" and queue is not None and self._kinds.is_state(queue["arguments"])


def names_in_log(path):
    """Return all names in a log of definitions: ({(vhost, queue)}, {vhost}). Raises OSError, LogError."""
    names, vhosts = set(), set()
    with open(path, "rb") as file:
        scan = LogScan(path, file.read())
    for payload in scan:
        with contextlib.suppress(RecordError):
            record = read_record(payload, records.SHAPES)
            if record["op"] == "vhost":
                vhosts.add(text(record["name"]))
            elif "vhost" in record and "name" in record:
                vhost, name = text(record["vhost"]), text(record["name"])
                names.update(((vhost, name), (vhost, f"amq.delayed-{name}")))
    return names, vhosts


def _vhost(name, record):
    kind = record.get("default_queue_type") or CLASSIC  # logs of earlier versions have none
    facts = metadata(
        record["description"], [text(tag) for tag in record["tags"]], kind, record.get("protected"))
    return {"name": name, **facts, "metadata": facts}


class _Users:
    def __init__(self):
        self._users = {}

    def apply(self, record):
        op = record["op"]
        if op == "user":
            self._put(record)
        elif op == "user-delete":
            self._users.pop(text(record["name"]), None)
        elif text(record.get("user")) in self._users:
            self._apply_right(op, self._users[text(record["user"])], record)

    def _put(self, record):
        user = self._users.setdefault(text(record["name"]), {"permissions": {}, "topics": {}, "limits": {}})
        user.update(
            password_hash=record["hash"], hashing_algorithm=record["algorithm"],
            tags=[text(tag) for tag in record["tags"]],
        )
        for vhost in record.get("grants") or ():
            user["permissions"][text(vhost)] = dict.fromkeys(_RIGHTS, ".*")

    @staticmethod
    def _apply_right(op, user, record):
        if op == "limits":
            user["limits"] = record["limits"]
        elif op.startswith("permission"):
            user["permissions"].pop(text(record["vhost"]), None)
            if op == "permission":
                user["permissions"][text(record["vhost"])] = {key: record[key] for key in _RIGHTS}
        elif op.startswith("topic-permission"):
            where = text(record["vhost"]), text(record["exchange"])
            user["topics"].pop(where, None)
            if op == "topic-permission":
                user["topics"][where] = {key: record[key] for key in _TOPIC_RIGHTS}

    def exported(self):
        users = self._users.items()
        return {
            "users": [
                {
                    "name": name,
                    **{key: user[key] for key in ("password_hash", "hashing_algorithm", "tags", "limits")},
                } for name, user in users
            ],
            "permissions": [
                {"user": name, "vhost": vhost, **right} for name, user in users
                for vhost, right in user["permissions"].items()
            ],
            "topic_permissions": [
                {"user": name, "vhost": vhost, "exchange": exchange, **right} for name, user in users
                for (vhost, exchange), right in user["topics"].items()
            ],
        }
