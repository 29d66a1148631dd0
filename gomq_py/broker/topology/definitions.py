"""Definitions: exports the broker's definitions as RabbitMQ's JSON, and imports them.

Imports files of this broker, RabbitMQ or LavinMQ, for the HTTP API and at boot (first_import). An import
deletes nothing. It replaces users, permissions, parameters and policies of the same name. Other existing
entities stay unchanged, and entries that differ from them are reported, as are unsupported ones.
"""
from base64 import b64decode, b64encode
from collections import Counter
from datetime import datetime
from types import NoneType

from gomq_py import __version__
from gomq_py.auth import passwords
from gomq_py.auth.users import TAGS
from gomq_py.broker.features.arguments import CLASSIC, QUORUM, TYPES, queue_type_of
from gomq_py.broker.names import RESERVED_PREFIX
from gomq_py.broker.policies.policy import POLICY, usable_definition, without_effect
from gomq_py.broker.policies.limits import check_limits
from gomq_py.build_info import RABBITMQ_VERSION
from gomq_py.errors import DefinitionsError, Refused
from gomq_py.global_names import NOT_IMPORTED
from gomq_py.hub.scheduler import SliceClock
from gomq_py.hub.turns import give_way, paced
from gomq_py.observability.log import logger
from gomq_py.observability.secrets import shown

LOG = logger("broker")

# RabbitMQ's prefix in JSON for octets that are not UTF-8.
_OCTETS = "Not UTF-8, base64 is: "
# The vhost of entries without a vhost.
_DEFAULT_VHOST = "/"
_NOT_TAKEN = object()
# RabbitMQ leaves these exchanges out, too.
_RESERVED_NOTE = f"names that begin with {RESERVED_PREFIX} are the broker's own"

_HASHES_BY_SIZE = {
    passwords.SALT_SIZE + 16: passwords.MD5, passwords.SALT_SIZE + 32: passwords.SHA256,
    passwords.SALT_SIZE + 64: passwords.SHA512,
}


# export

def exported(broker):
    """Return the definitions of the whole broker, as a dict ready for JSON."""
    return {key: value if isinstance(value, str) else list(value) for key, value in sections(broker)}


def sections(broker):
    """Yield the broker's definitions as (key, text or iterator of entries)."""
    vhosts = list(broker.vhosts.values())
    yield from header("cluster", original_cluster_name=broker.cluster_name).items()
    yield "users", map(_user, list(broker.users))
    yield (
        "vhosts", ({"name": vhost.name, **vhost.metadata(), "metadata": vhost.metadata()} for vhost in vhosts)
    )
    for key in ("permissions", "topic_permissions"):
        yield key, _rights(list(broker.users), key)
    yield "parameters", _of_all(vhosts, _parameters)
    yield (
        "global_parameters",
        ({"name": name, "value": value} for name, value in list(broker.parameters.global_.items()))
    )
    for key, entries in _OF_A_VHOST.items():
        if key != "parameters":
            yield key, _of_all(vhosts, entries)


def sections_of_vhost(vhost):
    """Yield one vhost's definitions as (key, text or iterator of entries), without the vhost's name."""
    yield from header("single_virtual_host", original_vhost_name=vhost.name).items()
    for key, entries in _OF_A_VHOST.items():
        yield key, map(_without_vhost, entries(vhost))


def _of_all(vhosts, entries):
    return (entry for vhost in vhosts for entry in entries(vhost))


def header(definition_format, **origin):
    """Return an export's first entries: the broker that wrote it, its version, the format, and ``origin``."""
    return {
        "rabbit_version": RABBITMQ_VERSION, "rabbitmq_version": RABBITMQ_VERSION, "product_name": "gomq-py",
        "product_version": __version__, "rabbitmq_definition_format": definition_format, **origin,
    }


def _without_vhost(entry):
    return {key: value for key, value in entry.items() if key != "vhost"}


def _user(user):
    return {
        "name": user.name, "password_hash": user.password_hash, "hashing_algorithm": user.hashing_algorithm,
        "tags": list(user.tags), "limits": dict(user.limits),
    }


def _rights(users, key):
    for user in users:
        for right in list(getattr(user, key).values()):
            yield {name: getattr(right, name) for name in _LISTS[key]}


def _parameters(vhost):
    for (component, name), value in list(vhost.parameters.items()):
        if component != POLICY:
            yield {"component": component, "name": name, "vhost": vhost.name, "value": value}


def _policies(vhost):
    """Yield a vhost's policies, even stored ones that would be refused now, so that none is lost."""
    in_use = vhost.policies.user.by_name
    for (component, name), value in list(vhost.parameters.items()):
        if component == POLICY and isinstance(value, dict):
            yield {
                "vhost": vhost.name, "name": name, **(in_use[name].as_value() if name in in_use else value)
            }


def _queues(vhost):
    for queue in list(vhost.queues.values()):
        if _is_definition(queue):
            yield {
                "name": queue.name, "vhost": vhost.name, "type": queue.type, "durable": bool(queue.durable),
                "auto_delete": bool(queue.auto_delete), "arguments": jsonable(queue.arguments),
            }


def _is_definition(queue):
    return queue.exclusive_owner is None and not queue.is_state


def _exchanges(vhost):
    for exchange in list(vhost.exchanges.values()):
        if not exchange.predeclared:
            yield {
                "name": exchange.name, "vhost": vhost.name, "type": exchange.type,
                "durable": exchange.durable, "auto_delete": exchange.auto_delete,
                "internal": exchange.internal, "arguments": jsonable(exchange.arguments),
            }


def _bindings(vhost):
    for exchange in list(vhost.exchanges.values()):
        for binding in list(exchange.bindings()):
            end = binding.destination
            if binding.destination_type == "queue" and (
                    vhost.queues.get(end.name) is not end or not _is_definition(end)):
                continue
            yield {
                "source": exchange.name, "vhost": vhost.name, "destination": binding.destination.name,
                "destination_type": binding.destination_type, "routing_key": binding.routing_key,
                "arguments": jsonable(binding.arguments),
            }


# name of a list of a vhost: its entries
_OF_A_VHOST = {
    "parameters": _parameters, "policies": _policies, "queues": _queues, "exchanges": _exchanges,
    "bindings": _bindings,
}


def jsonable(value):
    """Convert a field value for JSON: bytes to text or base64, timestamps to seconds, decimals to floats."""
    if isinstance(value, dict):
        return {key: jsonable(item) for key, item in value.items()}
    if isinstance(value, list):
        return [jsonable(item) for item in value]
    if isinstance(value, bytes):
        try:
            return value.decode()
        except ValueError:
            return _OCTETS + b64encode(value).decode()
    if isinstance(value, datetime):
        return int(value.timestamp())
    return value if value is None or isinstance(value, (str, bool, int, float)) else float(value)


def with_octets(value):
    """Convert texts in jsonable()'s base64 form back to bytes, in a value from JSON."""
    if isinstance(value, dict):
        return {key: with_octets(item) for key, item in value.items()}
    if isinstance(value, list):
        return [with_octets(item) for item in value]
    if isinstance(value, str) and value.startswith(_OCTETS):
        try:
            return b64decode(value[len(_OCTETS):], validate=True)
        except ValueError:
            return value
    return value


# import

class Report:
    """The result of an import. ``imported``: {name of a list in the file: count of entries}. ``changed``,
    ``ignored`` (unsupported) and ``refused`` are lists of texts for the operator, each about one entry.
    """

    def __init__(self):
        self.imported = Counter()
        self.changed = []
        self.ignored = []
        self.refused = []

    @property
    def problems(self):
        return [*self.refused, *self.ignored]

    def as_json(self):
        return {
            "imported": self.imported, "changed": self.changed, "ignored": self.ignored,
            "refused": self.refused, "problems": self.problems,
        }


class Importer:
    """Imports parsed JSON definitions into a broker or, if given, only into ``vhost`` (a VHost)."""

    def __init__(self, broker, vhost=None, by=None):
        """``by``: the user who imports (see Parameters.set)."""
        self._broker = broker
        self._by = by
        self._vhost = vhost
        self._report = Report()

    def run(self, definitions, keep=True):
        """Import all entries and return the Report. May switch greenlets. Malformed definitions raise
        DefinitionsError before any change. Raises OSError. ``keep=False``: empty the given lists, so that
        each entry is freed after its import. Freeing 100 000 queues and bindings at once takes 60 ms.
        """
        work = self._checked(definitions)[::-1]
        for entries in () if keep else filter(None, map(definitions.get, _LISTS)):
            entries.clear()
        clock = SliceClock()
        while work:
            key, entry = work.pop()
            try:
                if _IMPORTS[key](self, entry) is not _NOT_TAKEN:
                    self._report.imported[key] += 1
                    if self._vhost is None and "vhost" in _LISTS[key] and "vhost" not in entry:
                        self._changed(key, entry, f"names no vhost: taken into '{_DEFAULT_VHOST}'")
            except Refused as error:
                self._problem(key, entry, error.text)
            except ValueError as error:
                self._problem(key, entry, str(error))
            except Exception as error:  # a bug must not stop the other entries
                LOG.exception("definitions: %s", _line(key, entry, type(error).__name__))
                self._problem(key, entry, "a fault of the broker: see its log")
            if clock.is_over():
                give_way()
                clock.begin()
        for key in paced(definitions):
            if key not in _LISTS and key not in _HEADER_KEYS:
                self._report.ignored.append(f"{key}: a list that this broker does not know")
        return self._report

    def _checked(self, definitions):
        """Check the form of all entries. Returns [(name of the list, entry)], in order of import."""
        if not isinstance(definitions, dict):
            raise DefinitionsError("definitions should be an object")
        work = []
        for key, required in _LISTS.items():
            entries = definitions.get(key)
            if entries is None:
                continue
            if not isinstance(entries, list):
                raise DefinitionsError(f"{key} should be a list")
            if self._vhost is not None and key in _NOT_IN_A_VHOST:
                continue
            for entry in paced(entries):
                if self._is_in_bounds(key, entry):
                    self._check_entry(key, entry, required)
                    work.append((key, entry))
        return work

    def _is_in_bounds(self, key, entry):
        parts = entry.items() if isinstance(entry, dict) else [(key, entry)]
        try:
            for name, part in parts:
                self._broker.tables.check_json(name, part)
        except ValueError as error:
            names = {name: value for name, value in parts if name in _NAMES and isinstance(value, str)}
            self._problem(key, names, str(error))
            return False
        return True

    def _check_entry(self, key, entry, required):
        if not isinstance(entry, dict):
            raise DefinitionsError(f"{key} should hold objects, not {entry!r}")
        missing = [name for name in required if name not in entry and name != "vhost"]
        if missing:
            raise DefinitionsError(f"an entry of {key} lacks {', '.join(missing)}: {shown(entry)!r}")
        parts = [entry, entry["metadata"]] if isinstance(entry.get("metadata"), dict) else [entry]
        for part in parts:
            for name, value in part.items():
                if name in _TYPES and not _is_of(value, *_TYPES[name][0]):
                    raise DefinitionsError(f"{name} should be {_TYPES[name][1]} in {key}: {shown(entry)!r}")

    def _problem(self, key, entry, reason):
        self._report.refused.append(_line(key, entry, reason))

    def _changed(self, key, entry, reason):
        self._report.changed.append(_line(key, entry, reason))

    def _ignored(self, key, entry, reason):
        self._report.ignored.append(_line(key, entry, reason))

    def _vhost_of(self, entry):
        if self._vhost is not None:
            if self._vhost.is_gone:
                raise ValueError(f"vhost '{self._vhost.name}' was deleted meanwhile")
            return self._vhost
        name = entry.get("vhost", _DEFAULT_VHOST)
        vhost = self._broker.vhosts.get(name)
        if vhost is None:
            raise ValueError(f"no vhost '{name}'")
        return vhost

    # one verb per list

    def user(self, entry):
        tags = entry.get("tags") or []
        tags = [tag.strip() for tag in tags.split(",")] if isinstance(tags, str) else tags
        password_hash = entry.get("password_hash") or ""
        algorithm = entry.get("hashing_algorithm") or _algorithm_of(password_hash)
        tags = [tag for tag in tags if tag]
        password = entry.get("password") or None  # empty means no login by password, as over HTTP
        if password is not None:
            self._broker.logins.ask_ahead(entry["name"], password)
        limits = entry.get("limits") or {}
        check_limits(limits)  # before the user is changed: a refused entry must change nothing
        self._broker.users.set_user(
            entry["name"], password=password, password_hash=password_hash,
            hashing_algorithm=algorithm, tags=tags)
        if limits:
            self._broker.user_limits.replace(entry["name"], limits)
        unknown = [tag for tag in tags if tag not in TAGS]
        if unknown:
            self._ignored("users", entry, f"tags without a meaning here: {', '.join(unknown)}")

    def vhost(self, entry):
        metadata = entry.get("metadata") or {}
        tags = entry.get("tags") or metadata.get("tags") or []
        tags = [tag for tag in tags.split(",") if tag] if isinstance(tags, str) else tags
        # Give the importing user access, as PUT /api/vhosts does: shovels in the same file run with that
        # user's rights.
        vhost = self._broker.create_vhost(
            entry["name"], entry.get("description") or metadata.get("description") or "", tags,
            creator=self._by or None)
        if entry.get("protected_from_deletion") or metadata.get("protected_from_deletion"):
            self._broker.describe_vhost(vhost, protected_from_deletion=True)
        default = entry.get("default_queue_type") or metadata.get("default_queue_type")
        if default in (None, "undefined", vhost.default_queue_type):
            return
        if default not in TYPES:
            self._ignored(
                "vhosts", entry,
                f"default queue type {default}: queues without a type are {vhost.default_queue_type}",
            )
        elif vhost.default_queue_type != CLASSIC:
            self._ignored(
                "vhosts", entry, f"default queue type {default}: it is {vhost.default_queue_type} already"
            )
        else:
            self._broker.describe_vhost(vhost, default_queue_type=default)

    def permission(self, entry):
        self._broker.users.set_permission(
            *self._whose(entry), entry["configure"], entry["write"], entry["read"])

    def topic_permission(self, entry):
        self._broker.users.set_topic_permission(
            *self._whose(entry), entry["exchange"], entry["write"], entry["read"])

    def _whose(self, entry):
        if entry["user"] not in self._broker.users:
            raise ValueError(f"no user '{entry['user']}'")
        return entry["user"], self._vhost_of(entry).name

    def parameter(self, entry):
        component = entry["component"]
        self._broker.parameters.set(
            self._vhost_of(entry), component, entry["name"], entry["value"], self._by)
        for part, why in self._broker.parameters.idle_parts(component, entry["value"]).items():
            self._changed("parameters", entry, f"{part}: kept without effect: {why}")

    def global_parameter(self, entry):
        if entry["name"] in NOT_IMPORTED:
            self._ignored("global_parameters", entry, NOT_IMPORTED[entry["name"]])
            return _NOT_TAKEN
        self._broker.parameters.set_global(entry["name"], entry["value"])
        return None

    def policy(self, entry):
        definition, unknown = usable_definition(entry["definition"])
        if unknown and not definition:
            raise ValueError(f"{', '.join(unknown)} is not a recognised policy setting")
        if unknown:
            self._ignored("policies", entry, f"keys that this broker does not know: {', '.join(unknown)}")
        value = {"pattern": entry["pattern"], "definition": definition, "priority": entry.get("priority", 0),
                 "apply-to": entry.get("apply-to", "all")}
        idle = without_effect(definition) | self._broker.parameters.idle_parts(POLICY, value).keys()
        if idle:
            self._changed("policies", entry, f"kept without effect: {', '.join(sorted(idle))}")
        self._broker.parameters.set(self._vhost_of(entry), POLICY, entry["name"], value, self._by)

    def exchange(self, entry):
        if not entry["name"] or entry["name"].startswith(RESERVED_PREFIX):
            return _NOT_TAKEN  # every vhost has these
        vhost = self._vhost_of(entry)
        there = vhost.exchanges.get(entry["name"])
        if there is not None and there.predeclared:
            return _NOT_TAKEN
        vhost.declare_exchange(
            entry["name"], entry["type"], entry.get("durable", True), entry.get("auto_delete", False),
            entry.get("internal", False),
            with_octets(entry.get("arguments")))
        return None

    def queue(self, entry):
        if entry["name"].startswith(RESERVED_PREFIX):
            self._ignored("queues", entry, _RESERVED_NOTE)
            return _NOT_TAKEN
        if queue_type_of(entry.get("arguments") or {}) == QUORUM:
            self._changed(
                "queues", entry,
                "quorum: a durable queue of this node, with the delivery limit of quorum queues",
            )
        self._vhost_of(entry).declare_queue(
            entry["name"], entry.get("durable", True), False, entry.get("auto_delete", False),
            with_octets(entry.get("arguments")), by=self._by or None)
        return None

    def binding(self, entry):
        vhost = self._vhost_of(entry)
        if not entry["source"]:
            return _NOT_TAKEN  # bindings of the default exchange are implicit, though some files list them
        if (entry["destination_type"] == "queue" and entry["destination"].startswith(RESERVED_PREFIX)
                and entry["destination"] not in vhost.queues):
            self._ignored("bindings", entry, _RESERVED_NOTE)
            return _NOT_TAKEN
        bindings, to_exchange = vhost.bindings, entry["destination_type"] == "exchange"
        bind = bindings.bind_exchange if to_exchange else bindings.bind_queue
        bind(entry["destination"], entry["source"], entry["routing_key"], with_octets(entry.get("arguments")))
        return None


def _line(key, entry, reason):
    name = repr(entry.get("name", entry.get("user")))
    if key == "bindings":
        name = (
            f"from {entry.get('source')!r} to {entry.get('destination')!r} with {entry.get('routing_key')!r}"
        )
    where = f" in vhost {entry['vhost']!r}" if "vhost" in entry else ""
    return f"{key}: {name}{where}: {reason}"


def _algorithm_of(password_hash):
    """Guess the algorithm of a password hash by its size: RabbitMQ's files before 3.6 do not name it."""
    if passwords.is_costly(password_hash):
        return passwords.BCRYPT
    try:
        return _HASHES_BY_SIZE.get(len(b64decode(password_hash, validate=True)), passwords.SHA256)
    except ValueError:
        return passwords.SHA256


def _is_of(value, *types):
    return isinstance(value, types) and (
        not isinstance(value, list) or all(isinstance(item, str) for item in value))


# field: (types, description), in entries of all lists.
_TYPES = {
    **dict.fromkeys(
        (
            "name", "vhost", "user", "source", "destination", "routing_key", "component", "configure",
            "write", "read", "exchange", "type", "destination_type", "pattern", "apply-to",
        ), ((str,), "a text"),
    ),
    **dict.fromkeys(
        ("password", "password_hash", "hashing_algorithm", "description", "default_queue_type"),
        ((str, NoneType), "a text"),
    ),
    **dict.fromkeys(
        ("durable", "auto_delete", "internal", "protected_from_deletion"), ((bool,), "true or false")
    ),
    **dict.fromkeys(("arguments", "definition"), ((dict,), "an object")),
    "metadata": ((dict, NoneType), "an object"),
    "tags": ((str, list, NoneType), "a text or a list of texts"),
}

# Fields that identify an entry of a list.
_NAMES = frozenset(("name", "user", "vhost", "source", "destination", "routing_key"))

# list: required keys of its entries; in order of import
_LISTS = {
    "vhosts": ("name",),
    "users": ("name",),
    "permissions": ("user", "vhost", "configure", "write", "read"),
    "topic_permissions": ("user", "vhost", "exchange", "write", "read"),
    "parameters": ("vhost", "component", "name", "value"),
    "global_parameters": ("name", "value"),
    "policies": ("vhost", "name", "pattern", "definition"),
    "exchanges": ("vhost", "name", "type"),
    "queues": ("vhost", "name"),
    "bindings": ("vhost", "source", "destination", "destination_type", "routing_key"),
}
# Keys of a file besides the lists: they describe the broker that wrote it.
_HEADER_KEYS = frozenset((
    "rabbit_version", "rabbitmq_version", "product_name", "product_version", "rabbitmq_definition_format",
    "original_cluster_name", "original_vhost_name", "explanation", "lavinmq_version", "description",
    "metadata", "default_queue_type", "limits",
))
_NOT_IN_A_VHOST = frozenset(("vhosts", "users", "permissions", "topic_permissions", "global_parameters"))
_IMPORTS = {
    "vhosts": Importer.vhost, "users": Importer.user, "permissions": Importer.permission,
    "parameters": Importer.parameter, "topic_permissions": Importer.topic_permission,
    "global_parameters": Importer.global_parameter, "policies": Importer.policy,
    "exchanges": Importer.exchange, "queues": Importer.queue, "bindings": Importer.binding,
}
