"""Imports go one way: the map of rooms, held against every import and cimport.

An import goes down or stays in its own room. A room that is not on the map does not exist yet;
whoever adds one draws it here first.
"""
import sys

import pytest

from tests.unit.source_tree import declarations, imports, module_name, sources

LEAVES = {
    "octets", "digests", "salted_hash", "errors", "content", "config", "observability", "storage.format",
    "storage.message", "build_info", "patterns", "late_imports", "global_names",
}
# The rooms of storage; "storage" are its leaves.
STORAGE = {
    "storage", "storage.disk", "storage.flush", "storage.segments", "storage.logs", "storage.stores",
}
GROUND = LEAVES | STORAGE | {"net", "hub"}
# The rooms of the core, each above those before it; "broker" are its leaves and its jobs.
MODEL = (
    "broker", "broker.features", "broker.topology_log", "broker.policies", "broker.routing.route",
    "broker.exchanges", "broker.routing", "broker.queues", "broker.transfer", "broker.signals",
    "broker.topology", "broker.verbs",
)
CORE = GROUND | {"auth", *MODEL}
# What a door sees: not the store. A message (storage.message) is the currency that all rooms trade in.
DOOR = CORE - STORAGE


def below(room):
    """The leaves and the rooms of the core that a room of it may import."""
    return LEAVES | {"hub", *MODEL[:MODEL.index(room)]}


# Room -> the rooms it may import besides itself. The longest name that fits a module is its room.
MAP = {
    # entry: build the parts, hand them to each other
    "__main__": {"cli", "late_imports"},
    "cli": LEAVES | {"launcher", ""},
    "launcher": CORE | {"cluster", "node", "reload", "state_dump", ""},
    "node": CORE | {
        "broker.broker", "amqp.server", "mqtt.server", "mqtt.model", "http", "doors", "mqtt.wire",
        "links", "shovel", "federation", "cluster",
    },
    "doors": {"config", "net", "observability"},
    "reload": {"config", "net", "observability", "hub"},
    "state_dump": {"observability", "hub", "amqp.server", "broker", "broker.policies"},
    "embedded": {"launcher", "config", "http", "hub", "client", ""},
    "testing": {"embedded", "testing.chaos", "observability", ""},
    "testing.chaos": DOOR | {"amqp.server", "mqtt.server", "mqtt.wire"},
    # doors: a peer speaks; we translate
    # "": the version, for server-properties
    "amqp.server": DOOR | {"connections", "amqp.wire", ""},
    # "": the version, for $SYS/broker/version
    "mqtt.server": DOOR | {"connections", "", "mqtt.wire", "mqtt.model"},
    "http": DOOR | {"mqtt.model", "mqtt.wire", "diagnosis", ""},
    # what the connection of every client has
    "connections": LEAVES | {"hub", "net", "auth", "broker.signals", "broker.verbs"},
    # what speaks to other brokers; doors and ctl are handed shovels and links by the node
    "shovel": LEAVES | {"hub", "auth", "client", "links", *MODEL},
    # amqp.wire: bindings made upstream by the thousand
    "federation": LEAVES | {"hub", "auth", "client", "links", "amqp.wire", *MODEL},
    # auth, broker's: the user that an end in this broker works as
    "links": LEAVES | {
        "hub", "net", "client", "broker.transfer", "amqp.wire", "auth", "broker.routing.route",
        "broker.policies", "",
    },
    # nodes of a cluster speak to each other; it copies files, and sees no broker
    "cluster": LEAVES | {
        "hub", "net", "storage", "storage.disk", "cluster.wire", "cluster.core", "cluster.etcd",
        "",  # the version, which nodes tell each other
    },
    "cluster.core": set(),
    # no part of the cluster but its core's words
    "cluster.etcd": LEAVES | {"hub", "net", "cluster.core"},
    # core: vhosts, exchanges, queues, policies
    "broker": LEAVES | {"hub"},
    "broker.features": {"broker", "content", "digests", "errors", "patterns"},
    "broker.topology_log": {"broker", "content", "storage.logs", "observability", "hub"},
    "broker.policies": below("broker.policies"),
    "broker.routing.route": below("broker.routing.route"),
    "broker.exchanges": below("broker.exchanges"),
    "broker.routing": below("broker.routing"),
    "broker.queues": below("broker.queues") | {"storage", "storage.stores"},
    "broker.transfer": below("broker.transfer") | {"storage", "storage.stores"},
    "broker.signals": below("broker.signals") | {"auth"},
    # "": the version, which exported definitions carry
    "broker.topology": below("broker.topology") | {
        "storage", "storage.disk", "storage.stores", "auth", "",
    },
    "broker.verbs": below("broker.verbs") | {"auth"},
    "broker.broker": CORE,
    # ground: who may, octets on disk, sockets
    "auth": LEAVES | {"storage.logs", "hub"},
    # the disk, what is flushed to it and when, pairs of files, logs of changes, what a queue calls
    "storage": set(),
    "storage.disk": {"digests", "observability", "storage", "storage.format"},
    "storage.flush": {"hub", "observability", "storage", "storage.disk"},
    "storage.segments": LEAVES | {"storage", "storage.disk"},
    "storage.logs": LEAVES | {"hub", "storage.disk"},
    "storage.stores": LEAVES | {"hub", "storage", "storage.disk", "storage.segments"},
    "net": LEAVES | {"hub"},
    # leaves
    "": {"purepython", "embedded"},
    "purepython": set(),
    "build_info": {""},
    "octets": set(),
    "amqp": set(),
    "amqp.wire": {"octets", "content", "errors"},
    "mqtt": set(),
    "mqtt.wire": {"octets", "content"},
    "cluster.wire": {"digests", "octets"},
    # makes kinds of queues, and so sees their stores
    "mqtt.model": LEAVES | {
        "hub", "storage", "storage.disk", "storage.stores", "mqtt.wire", *MODEL,
    },
    "content": {"octets", "errors"},
    "errors": set(),
    "config": {"salted_hash"},
    "salted_hash": {"digests"},
    "digests": set(),
    "global_names": set(),
    "late_imports": {"errors", "observability", ""},
    "observability": set(),
    "patterns": set(),
    # what the management door and ctl both say of a broker
    "diagnosis": {"global_names"},
    "hub": {"observability", "octets"},
    "storage.format": {"octets"},
    "storage.message": {"octets", "content"},
    # apart
    # "": the version, which it tells the broker
    "client": {"amqp.wire", "mqtt.wire", "content", "errors", "octets", ""},
    "perf": {"client", "amqp.wire", "mqtt.wire", "content", "octets", "build_info", ""},
    # "": the version
    "dispatcher": {"client", "content", "errors", "dispatcher.greenlets", "dispatcher.metrics", ""},
    "dispatcher.__main__": {"dispatcher"},
    "dispatcher.greenlets": set(),
    "dispatcher.metrics": set(),
    # "": the version
    "ctl": {
        "storage.format", "broker.features", "broker.policies", "global_names", "config", "salted_hash",
        "diagnosis", "ctl.fsck", "ctl.offline", "ctl.recover", "ctl.backup_folder", "observability", "",
    },
    # a follower that leaves
    "ctl.backup_folder": {
        "cluster", "cluster.wire", "storage", "storage.disk", "ctl.offline", "errors", "",
    },
    # mqtt.wire: how properties of MQTT are read
    "spark": {"client", "content", "errors", "storage.format", "mqtt.wire", ""},
    "pipeline": {"spark", "build_info", ""},
    "ctl.recover": {
        "storage.disk", "storage.logs", "storage.stores", "storage.format", "broker.features", "auth",
        "ctl.offline", "ctl.fsck", "content", "errors",
    },
    "ctl.fsck": {"storage.disk", "storage.stores", "storage.format", "ctl.offline"},
    # reads a folder with what wrote it
    "ctl.offline": {
        "storage.disk", "storage.logs", "storage.format", "auth", "mqtt.model", "global_names", *MODEL,
    },
}

# Room -> the libraries it may import; the standard library is everybody's.
# Leaves and clients live without gevent.
LIBRARIES = {
    "embedded": {"gevent", "greenlet"},
    "testing": {"pytest", "pika", "trustme"},
    "testing.chaos": {"gevent"},
    "__main__": {"gevent"},
    "launcher": {"gevent"},
    "state_dump": {"gevent", "greenlet"},
    "amqp.server": {"gevent", "greenlet"},
    "mqtt.server": {"gevent"},
    "connections": {"gevent"},
    "http": {"gevent", "flask", "werkzeug", "orjson", "prometheus_client", "wsproto", "h11"},
    "broker": {"gevent"},
    "broker.exchanges": {"cronsim"},
    **dict.fromkeys(("broker.queues", "broker.signals", "broker.topology", "broker.verbs"), {"gevent"}),
    "auth": {"gevent", "bcrypt", "jwt"},
    **dict.fromkeys(("storage.flush", "storage.segments"), {"gevent"}),
    "net": {"gevent", "greenlet", "wsproto"},
    "hub": {"gevent"},
    "links": {"gevent", "h11"},
    **dict.fromkeys(("shovel", "federation", "cluster"), {"gevent"}),
    "cluster.wire": {"lz4"},
    "cluster.etcd": {"gevent", "h11"},
    "octets": {"crc32c"},
    "ctl": {"click"},
    "ctl.backup_folder": {"gevent"},
    "dispatcher.__main__": {"gevent"},
    "dispatcher.greenlets": {"gevent"},
    "dispatcher.metrics": {"prometheus_client"},
    "spark": {"pyspark", "pyarrow"},
    "pipeline": {"pyspark", "pyarrow", "click"},
    "patterns": {"regex"},
}
# What a .pxd may cimport besides our own: C and the compiler itself.
C_LIBRARIES = {"cython", "libc", "cpython", "posix"}

PREFIX = "gomq_py"


def room_of(module):
    """The room on the map that a module of ours is in, or None."""
    name = module.removeprefix(PREFIX).lstrip(".")
    while name and name not in MAP:
        name = name.rpartition(".")[0]
    return name if name or module == PREFIX else None


def edges():
    """(importing module, imported module) over all sources and declarations."""
    for path in (*sources(), *declarations()):
        for target in sorted(imports(path)):
            yield path, target


def test_every_module_is_on_the_map():
    lost = [module_name(path) for path in sources() if room_of(module_name(path)) is None]

    assert lost == []


def test_imports_follow_the_map():
    wrong = []
    for path, target in edges():
        if target.split(".")[0] == PREFIX:
            here, there = room_of(module_name(path)), room_of(target)
            if there != here and there not in MAP[here]:
                wrong.append(f"{path.name} in {here!r} imports {target} in {there!r}")

    assert wrong == []


def test_libraries_stay_in_their_rooms():
    wrong = []
    for path, target in edges():
        library = target.split(".")[0]
        if library == PREFIX or library in sys.stdlib_module_names:
            continue
        allowed = C_LIBRARIES if path.suffix == ".pxd" else LIBRARIES.get(room_of(module_name(path)), set())
        if library not in allowed:
            wrong.append(f"{module_name(path)} imports {target}")

    assert wrong == []


def test_only_main_modules_patch_the_standard_library():
    patching = [
        module_name(path)
        for path, target in edges()
        if target == "gevent.monkey" or "monkey.patch" in path.read_text(encoding="utf-8")
    ]

    assert {name for name in patching if not name.endswith("__main__")} == set()


@pytest.mark.parametrize("module, room", [
    ("gomq_py", ""), ("gomq_py.testing.chaos", "testing.chaos"),
    ("gomq_py.amqp.server.channel", "amqp.server"),
    ("gomq_py.storage.format.record", "storage.format"), ("gomq_py.nowhere", None),
])
def test_room_is_the_longest_name_that_fits(module, room):
    assert room_of(module) == room
