"""House rules that a machine can hold: sizes, docstrings, dead modules, slots, names, sleeps,
and a tree that speaks of itself alone.
"""
import ast
import re

import pytest

from gomq_py import build_info
from tests.unit.source_tree import (
    PACKAGE, ROOT, declarations, imports, module_name, sources, tracked_files, tree,
)

# The most that a module, class or function has. "code lines" are those of a function without its docstring,
# comments and blank lines. Of modules with a .pxd beside them, each is one to know.
LIMITS = {"lines": 500, "code lines": 45, "attributes": 25, "methods": 40, "compiled modules": 0}
# What is over its limit today. A figure may only fall, and its row falls with it.
FIGURES = {
    "compiled modules": 65,
    "methods auth.users:Users": 42,
    "methods broker.queues.queue:Queue": 67,
    "methods broker.topology.vhost:VHost": 53,
    "methods client.channel:Channel": 49,
    "methods storage.disk.files:Files": 65,
    "methods storage.segments.pool:SegmentPool": 53,
    "methods storage.segments.segment:Segment": 48,
    "methods storage.stores.group_store:GroupStore": 50,
    "methods storage.stores.message_store:MessageStore": 52,
    "methods storage.stores.segment_log:SegmentLog": 57,
    "methods storage.stores.stream_store:StreamStore": 45,
    "attributes broker.queues.queue:Queue": 32,
    "attributes broker.topology.vhost:VHost": 30,
    "attributes connections.connection:ClientConnection": 29,
    "attributes client.link:Link": 26,
    "attributes links.link:Link": 39,
    "attributes links.relay:Relay": 28,
    "attributes mqtt.wire.frames:PacketWalk": 31,
    "attributes net.stream:Stream": 31,
    "attributes net.websocket:WebSocket": 26,
    "attributes storage.segments.pool:SegmentPool": 27,
    "attributes storage.segments.segment:Segment": 39,
    "code lines amqp.server.fast_lane:FastLane.process": 64,
    "lines amqp.server.connection": 533,
    "lines amqp.server.fast_lane": 544,
    "lines auth.users": 594,
    "lines broker.queues.queue": 668,
    "lines broker.topology.definitions": 525,
    "lines broker.topology.vhost": 632,
    "lines broker.transfer.dead_letters": 652,
    "lines config.settings": 605,
    "lines content.fields": 541,
    "lines links.relay": 538,
    "lines mqtt.wire.crossing": 615,
    "lines mqtt.wire.packets": 539,
    "lines perf.walk": 559,
    "lines storage.disk.data_dir": 607,
    "lines storage.disk.files": 647,
    "lines storage.format.record": 624,
    "lines storage.segments.pool": 674,
    "lines storage.segments.segment": 576,
    "lines storage.stores.group_store": 584,
    "lines storage.stores.message_store": 662,
    "lines storage.stores.segment_log": 666,
}
COLUMNS = 110  # two files stand side by side
# Files with literals that are tables, or that cannot be broken.
WIDE = (
    "tests/asan.py",
    "tests/clients/conftest.py",
    "tests/conformance/conftest.py",
    "tests/durability/test_sick_queue.py",
    "tests/e2e/test_dispatcher.py",
    "tests/e2e/test_tls.py",
    "tests/embedding/test_surroundings.py",
    "tests/harness/test_numbers.py",
    "tests/management/test_depth.py",
    "tests/management/test_rabbitmq_metrics.py",
    "tests/management/test_shapes.py",
    "tests/spark/test_cluster.py",
    "tests/support/octets_in_c.py",
    "tests/support/wire_encoding.py",
    "tests/unit/dispatcher/test_tasks.py",
    "tests/unit/mqtt/wire/test_properties.py",
    "tests/unit/pipeline/test_failures.py",
    "tests/unit/storage/format/test_head.py",
    "tests/unit/test_tidy.py",
)
# Modules that nothing imports -> who calls them.
ENTRY_POINTS = {
    "gomq_py.__main__": "console script gomq-py",
    "gomq_py.perf.__main__": "console script gomq-py-perf",
    "gomq_py.ctl.__main__": "console script gomq-py-ctl",
    "gomq_py.dispatcher.__main__": "console script gomq-py-worker",
    "gomq_py.pipeline.__main__": "console script gomq-py-pipeline",
    "gomq_py.embedded": "gomq_py.Broker",
    "gomq_py.cluster.follower": "the node, once it has the role",
    "gomq_py.cluster.leader": "the node, once it has the role",
    "gomq_py.cluster.stream": "the node, once it has the role",
    "gomq_py.mqtt.model.kinds": (
        "the node, once it has MQTT's door; the other modules of mqtt.model are below it"
    ),
    "gomq_py.testing.child": "python -c, started by gomq_py.testing.brokers",
    "gomq_py.testing.plugin": "pytest plugin",
}
VAGUE_NAMES = {"msg", "rk", "ch", "cfg", "mgr", "utils"}
TEST_FILES = tuple(
    path for path in tracked_files() if path.suffix == ".py" and path.is_relative_to(ROOT / "tests")
)
# The only test module that may sleep: it is what the others wait with.
WAITING = ROOT / "tests" / "support" / "waiting.py"
# tests/unit modules without a module of the package behind them.
ABOUT_THE_TREE = {
    "test_check.py", "test_docs.py", "test_layering.py", "test_requirements.py", "test_site.py", "test_tidy.py",
    "test_typed.py", "test_waiting.py", "test_where.py",
}


def functions(module):
    """(qualified name, node) of every function and method of a syntax tree, nested ones too."""

    def walk(node, prefix):
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
                yield prefix + child.name, child
            if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                yield from walk(child, f"{prefix}{child.name}.")

    return walk(module, "")


def code_lines(node, lines):
    """Lines of a function without its docstring, comments and blank lines."""
    first = node.body[0]
    begin = first.end_lineno + 1 if ast.get_docstring(node) is not None else first.lineno
    body = lines[begin - 1:node.end_lineno]
    return sum(1 for line in body if line.strip() and not line.strip().startswith("#"))


def attributes(node):
    """Names of a class's attributes: its ``__slots__`` or, without any, what its methods set."""
    slotted = set()
    for statement in node.body:
        if isinstance(statement, ast.Assign) and "__slots__" in map(ast.unparse, statement.targets):
            slotted.update(
                name for part in ast.walk(statement.value) if isinstance(part, ast.Constant)
                for name in str(part.value).split())
    return slotted - {"__dict__", "__weakref__"} or {
        part.attr for part in ast.walk(node)
        if isinstance(part, ast.Attribute) and isinstance(part.ctx, ast.Store)
        and isinstance(part.value, ast.Name) and part.value.id == "self"
    }


def figures():
    """{"kind name": figure} of the whole house."""
    found = {"compiled modules": len(build_info.hot_modules())}
    for path in sources():
        name, lines = module_name(path).removeprefix("gomq_py."), path.read_text(encoding="utf-8").splitlines()
        found[f"lines {name}"] = len(lines)
        for function, node in functions(tree(path)):
            found[f"code lines {name}:{function}"] = code_lines(node, lines)
        for node in ast.walk(tree(path)):
            if isinstance(node, ast.ClassDef):
                found[f"attributes {name}:{node.name}"] = len(attributes(node))
                found[f"methods {name}:{node.name}"] = sum(
                    isinstance(part, ast.FunctionDef | ast.AsyncFunctionDef) for part in node.body)
    return found


def limit(row):
    """The limit of a row's kind."""
    return LIMITS[row if row in LIMITS else row.rsplit(" ", 1)[0]]


def test_figures_of_the_house_only_fall():
    found = {row: figure for row, figure in figures().items() if figure > limit(row)}

    grown = {row: figure for row, figure in found.items() if figure > FIGURES.get(row, limit(row))}
    fallen = {row: found.get(row, "gone") for row, figure in FIGURES.items() if found.get(row, 0) < figure}
    assert grown == {}, "more than FIGURES or LIMITS allow"
    assert fallen == {}, "lower these rows of FIGURES, or delete those that are gone"


def test_lines_are_short_enough_for_two_files_side_by_side():
    long = []
    for path in tracked_files():
        name = path.relative_to(ROOT).as_posix()
        if (
            path.suffix in {".py", ".pxd"} and name.startswith(("gomq_py/", "tests/", "load/"))
            and name not in WIDE
        ):
            lines = path.read_text(encoding="utf-8").splitlines()
            long += [f"{name}:{number}" for number, line in enumerate(lines, start=1) if len(line) > COLUMNS]

    assert long == []


@pytest.mark.parametrize("folder", ["gomq_py", "tests"])
def test_every_module_says_what_it_is_for(folder):
    paths = [path for path in tracked_files() if path.suffix == ".py" and path.is_relative_to(ROOT / folder)]
    if folder == "tests":  # a folder of tests explains itself by its name
        paths = [path for path in paths if path.name != "__init__.py"]

    assert [str(path.relative_to(ROOT)) for path in paths if not ast.get_docstring(tree(path))] == []


def test_public_classes_and_functions_have_docstrings():
    """A function of one statement says it all in its name; methods are left to judgement."""
    bare = []
    for path in sources():
        for node in tree(path).body:
            public = isinstance(node, ast.ClassDef | ast.FunctionDef) and not node.name.startswith("_")
            if (
                public and not ast.get_docstring(node)
                and not (isinstance(node, ast.FunctionDef) and len(node.body) == 1)
            ):
                bare.append(f"{module_name(path)}.{node.name}")

    assert bare == []


def test_no_module_is_dead():
    imported = {target for path in (*sources(), *declarations()) for target in imports(path)}
    modules = {module_name(path) for path in sources() if path.name != "__init__.py"}

    assert sorted(modules - imported - ENTRY_POINTS.keys()) == []


def test_packages_are_marked_for_cimport_where_they_hold_compiled_modules():
    unmarked = []
    for name in build_info.hot_modules():
        folder = PACKAGE.joinpath(*name.split(".")[1:-1])
        while folder != PACKAGE.parent:
            if not (folder / "__init__.pxd").exists():
                unmarked.append(str(folder))
            folder = folder.parent

    assert sorted(set(unmarked)) == []


_CLASS = re.compile(
    r"^cdef class (\w+)(?:\([\w.]+\))?:[^\n]*\n((?:[ \t]+[^\n]*\n|[ \t]*\n|#[^\n]*\n)*)", re.MULTILINE
)
_ATTRIBUTE = re.compile(r"^[ \t]+cdef (?:public |readonly )?(?!inline\b)[^(\n]+$", re.MULTILINE)
_TYPE_WORDS = {"unsigned", "long", "int", "char", "short", "const", "signed"}


def declared_attributes(text):
    """{class: attribute names} of a .pxd."""
    classes = {}
    for name, body in _CLASS.findall(text):
        names = set()
        for line in _ATTRIBUTE.findall(body):
            line = re.sub(r"\[[^\]]*\]", "", line.split("#")[0]).strip().removeprefix("cdef ")
            line = line.removeprefix("public ").removeprefix("readonly ")
            first, *rest = line.split(",")
            names.update(part.strip().split()[-1].lstrip("*") for part in (first, *rest) if part.strip())
        classes[name] = names
    return classes


def slots(class_node):
    """The strings of a class's ``__slots__``, or None."""
    for node in class_node.body:
        if (
            isinstance(node, ast.Assign)
            and any(isinstance(target, ast.Name) and target.id == "__slots__" for target in node.targets)
        ):
            value = ast.literal_eval(node.value)
            return {value} if isinstance(value, str) else set(value)
    return None


def test_slots_and_declarations_name_the_same_attributes():
    """An attribute missing on one side works in one twin only."""
    different = []
    for path in declarations():
        source = path.with_suffix(".py")
        if not source.exists():
            continue
        classes = {node.name: node for node in tree(source).body if isinstance(node, ast.ClassDef)}
        for name, declared in declared_attributes(path.read_text(encoding="utf-8") + "\n").items():
            if name not in classes:
                different.append(f"{path.name}: {name} is not in {source.name}")
            elif (slotted := slots(classes[name])) is None:
                different.append(f"{source.name}: {name} has no __slots__")
            elif slotted - {"__weakref__", "__dict__"} != declared - {"__weakref__", "__dict__"}:
                different.append(f"{source.name}: {name}: {sorted(slotted ^ declared)} on one side only")

    assert different == []


def test_hot_modules_do_not_import_cython():
    assert [
        module_name(path)
        for path in sources() if any(name.split(".")[0].lower() == "cython" for name in imports(path))
    ] == []


def test_names_are_spelled_out():
    vague = set()
    for path in sources():
        for node in ast.walk(tree(path)):
            name = (
                node.arg if isinstance(node, ast.arg) else node.id
                if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store) else None
            )
            if name in VAGUE_NAMES:
                vague.add(f"{module_name(path)}:{node.lineno}: {name}")

    assert vague == set()


def test_no_fault_is_swallowed():
    """``except Exception: pass`` and its like."""
    swallowed = []
    for path in sources():
        for node in ast.walk(tree(path)):
            if not isinstance(node, ast.ExceptHandler):
                continue
            broad = (
                node.type is None or isinstance(node.type, ast.Name) and node.type.id.endswith("Exception")
            )
            if broad and all(isinstance(statement, ast.Pass | ast.Continue) for statement in node.body):
                swallowed.append(f"{module_name(path)}:{node.lineno}")

    assert swallowed == []


def test_work_in_threads_begins_in_one_place():
    """gomq_py.hub.threads: gevent prints what is raised in a thread, with the arguments of the call."""
    elsewhere = []
    for path in sources():
        for node in ast.walk(tree(path)):
            if not (
                isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)
                and node.func.attr in _BEGINS_WORK
            ):
                continue
            receiver = ast.unparse(node.func.value).lower()
            if "thread" in receiver and module_name(path) not in ("gomq_py.hub.threads", "gomq_py.client"):
                elsewhere.append(f"{module_name(path)}:{node.lineno}")

    assert elsewhere == []


_BEGINS_WORK = {
    "spawn", "apply", "apply_async", "apply_cb", "map", "map_async", "imap", "imap_unordered", "submit"
}


def test_nothing_gives_way_without_a_poll_of_the_loop():
    """hub.turns.give_way() and its Turns do: of gevent.sleep(0) and gevent.idle() the loop
    runs 50 in a row before it looks at a socket, which held others up for a tenth of a second.
    """
    idle = [
        f"{module_name(path)}:{node.lineno}" for path in sources() for node in ast.walk(tree(path))
        if isinstance(node, ast.Call) and _gives_way_in_vain(node)
    ]

    assert idle == []


def _gives_way_in_vain(call):
    named = [ast.unparse(call.func), *(ast.unparse(one) for one in call.args)]
    return any(
        name == "gevent.idle" or name in ("gevent.sleep", "sleep")
        and all(one == "0" or one == "0.0" for one in named[at + 1:])
        for at, name in enumerate(named)
    )


@pytest.mark.parametrize("text", ["gevent.sleep(0)", "gevent.sleep()", "do(gevent.sleep, 0)", "gevent.idle()"])
def test_giving_way_in_vain_is_seen(text):
    assert _gives_way_in_vain(ast.parse(text).body[0].value)


def test_todos_have_an_issue():
    loose = []
    for path in (*sources(), *declarations()):
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
            if re.search(r"\b(TODO|FIXME|XXX)\b", line) and not re.search(r"#\d+|issue \d+", line):
                loose.append(f"{path.name}:{number}")

    assert loose == []


def test_tests_wait_on_conditions_and_never_sleep():
    """gevent.sleep(0) only gives way, so it is no sleep."""
    sleeping = []
    for path in TEST_FILES:
        for node in ast.walk(tree(path)):
            if path == WAITING or not isinstance(node, ast.Call):
                continue
            called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            gives_way = node.args and isinstance(node.args[0], ast.Constant) and node.args[0].value == 0
            if called == "sleep" and node.args and not gives_way:
                sleeping.append(f"{path.relative_to(ROOT)}:{node.lineno}")

    assert sleeping == []


# What bounds a wait: keywords and parameters; methods and functions, with the place of the seconds among
# what they are given; names of constants.
_TIMEOUT_NAME = re.compile(
    r"_?(\w+_)?(timeout|timeout_s|deadline_s|patience_s)|LONGEST(_\w+)?_S", re.IGNORECASE
)
_WAITS = {
    "wait": 0, "join": 0, "settimeout": 0, "communicate": 0, "result": 0, "Timeout": 0, "with_timeout": 0,
    "wait_for": 1, "wait_for_log": 1, "wait_until": 1, "wait_until_async": 1, "joinall": 1, "select": 3,
}
# The same words for steps of a model's clock, and for a message that is to come back later.
_NO_WAITS = {"model.wait", "bench.store.wait_until", "self._appended.wait"}
# From here on it is a bound that a busy machine may reach. Below: what is to run out, or must not happen.
_LONG_S = 1
# Keywords of these set how long what is tested waits; they are no waits of a test.
_SETTINGS = {"Broker", "BrokerProcess", "ChildBroker", "Door", "TaskConfig", "limited"}


def literal_timeouts(module):
    """The numbers in a syntax tree that bound a wait."""
    for node in ast.walk(module):
        bounds = []
        if isinstance(node, ast.Call):
            called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            if called not in _SETTINGS:
                bounds += [
                    keyword.value for keyword in node.keywords if _TIMEOUT_NAME.fullmatch(keyword.arg or "")
                ]
            if called in _WAITS and ast.unparse(node.func) not in _NO_WAITS:
                bounds += node.args[_WAITS[called]:_WAITS[called] + 1]
        elif (
            isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add)
            and "monotonic()" in ast.unparse(node.left)
        ):
            bounds = [node.right]
        elif (
            isinstance(node, ast.Assign)
            and any(_TIMEOUT_NAME.fullmatch(ast.unparse(name)) for name in node.targets)
        ):
            bounds = [node.value]
        elif isinstance(node, ast.arguments):
            named = [*zip(reversed([*node.posonlyargs, *node.args]), reversed(node.defaults), strict=False),
                     *zip(node.kwonlyargs, node.kw_defaults, strict=True)]
            bounds = [default for name, default in named if _TIMEOUT_NAME.fullmatch(name.arg)]
        yield from (bound for bound in bounds if isinstance(bound, ast.Constant)
                    and isinstance(bound.value, int | float) and not isinstance(bound.value, bool)
                    and bound.value >= _LONG_S)


def test_waits_are_as_long_as_the_machine_is_slow():
    """``in_time(30)`` where a wait is bounded by 30 s: so many times longer as this machine is slower."""
    literal = []
    for path in TEST_FILES:
        if path != WAITING:
            literal += [
                f"{path.relative_to(ROOT)}:{node.lineno}: {node.value}"
                for node in literal_timeouts(tree(path))
            ]

    assert literal == []


def test_literal_bounds_of_waits_are_seen():
    """A setting is none, nor what is to run out."""
    source = """
PATIENCE_S = 30
def wait(this, timeout_s=20, *, deadline_s=5): done.wait(10)
requests.get(url, timeout=60); client.settimeout(2); asyncio.wait_for(queue.get(), 7)
until = time.monotonic() + 3
TaskConfig(run, timeout_s=4); thread.join(0.1); done.wait(PATIENCE_S); ", ".join(names); requests.get(url, timeout=in_time(60))
"""

    assert sorted(node.value for node in literal_timeouts(ast.parse(source))) == [2, 3, 5, 7, 10, 20, 30, 60]


def test_unit_tests_mirror_the_package():
    """tests/unit/a/test_b.py (or test_b_more.py) is about gomq_py/a/b.py."""
    strays = []
    for path in TEST_FILES:
        if (
            not path.is_relative_to(ROOT / "tests" / "unit") or not path.name.startswith("test_")
            or path.name in ABOUT_THE_TREE
        ):
            continue
        folder = PACKAGE / path.parent.relative_to(ROOT / "tests" / "unit")
        stem = path.stem.removeprefix("test_")
        modules = {entry.stem for entry in folder.iterdir()} if folder.is_dir() else set()
        if not any(stem == module or stem.startswith(module + "_") for module in modules):
            strays.append(str(path.relative_to(ROOT)))

    assert strays == []


# Spelled in parts, so that this file does not find itself.
_FOREIGN = re.compile(
    "|".join((
        r"(?<![\w.])/" + r"work/", r"(?<![\w.])/" + r"farm/", r"(?<![\w.])/" + r"opt/wheels",
        r"(?<![\w.])/" + r"home/\w", r"(?<![\w.])/" + r"root/", "files\\." + r"pythonhosted",
        "--index" + "-url", "--find" + "-links", "sub" + "agent", "as an " + "ai ",
    )),
    re.IGNORECASE,
)


def test_tree_speaks_of_no_machine_but_the_readers():
    found = []
    for path in tracked_files():
        try:
            text = path.read_text(encoding="utf-8")
        except UnicodeDecodeError:
            continue
        found += [
            f"{path.relative_to(ROOT)}:{text.count(chr(10), 0, match.start()) + 1}: {match.group()}"
            for match in _FOREIGN.finditer(text)
        ]

    assert found == []


def test_nothing_that_was_built_is_under_version_control():
    assert [
        path.name for path in tracked_files() if path.suffix in {".so", ".c", ".o", ".whl", ".pyc", ".jar"}
    ] == []


_LINK = re.compile(r"\]\((?!https?:|mailto:|#)([^)#\s]+)(?:#[^)]*)?\)")


def test_links_between_documents_lead_somewhere():
    dead = []
    for path in tracked_files():
        if path.suffix == ".md":
            links = _LINK.findall(path.read_text(encoding="utf-8"))
            dead += [
                f"{path.relative_to(ROOT)}: {link}" for link in links if not (path.parent / link).exists()
            ]

    assert dead == []


_VERSION = re.compile(r"## \[(?:Unreleased|\d+\.\d+\.\d+\] - \d{4}-\d\d-\d\d)")
_CHANGES = {"Added", "Changed", "Deprecated", "Removed", "Fixed", "Security"}


def test_changelog_is_kept():
    """Keep a Changelog 1.1: an Unreleased section on top, dated versions below, known groups,
    entries as list items.
    """
    lines = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8").splitlines()
    headings = [line for line in lines if line.startswith("## ")]
    groups = [line.removeprefix("### ") for line in lines if line.startswith("### ")]

    assert lines[0] == "# Changelog"
    assert headings[0] == "## [Unreleased]"
    assert [line for line in headings if not _VERSION.match(line)] == []
    assert set(groups) <= _CHANGES
    assert any(line.startswith("- ") for line in lines)
