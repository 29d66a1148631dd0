"""The project's own sources as data, for test_layering and test_tidy."""
import ast
import re
import subprocess
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "gomq_py"

_CIMPORT_FROM = re.compile(r"^[ \t]*from[ \t]+([\w.]+)[ \t]+c?import[ \t]+\(?([^#\n)]+)", re.MULTILINE)
_CIMPORT = re.compile(r"^[ \t]*c?import[ \t]+([\w., \t]+)", re.MULTILINE)


def module_name(path):
    """gomq_py/amqp/wire/frames.py or .pxd -> gomq_py.amqp.wire.frames;
    a package's __init__ is the package.
    """
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


@cache
def sources():
    """Every Python source of the package, sorted."""
    return tuple(sorted(path for path in PACKAGE.rglob("*.py")))


@cache
def declarations():
    """Every .pxd of the package, sorted."""
    return tuple(sorted(PACKAGE.rglob("*.pxd")))


@cache
def module_names():
    """Dotted names of all modules and packages."""
    return frozenset(module_name(path) for path in sources())


@cache
def tree(path):
    """The syntax tree of a source."""
    return ast.parse(path.read_text(encoding="utf-8"), filename=str(path))


def imports(path):
    """Dotted names that a .py imports or a .pxd cimports; ``from package import module`` gives the module."""
    if path.suffix == ".pxd":
        return _imports_of_declarations(path.read_text(encoding="utf-8"))
    found = set()
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            found.update(_target(node.module, alias.name) for alias in node.names)
    return found


def _imports_of_declarations(text):
    found = set()
    for module, names in _CIMPORT_FROM.findall(text):
        found.update(_target(module, name.split()[0]) for name in names.split(",") if name.strip())
    for names in _CIMPORT.findall(_CIMPORT_FROM.sub("", text)):
        found.update(name.split()[0] for name in names.split(",") if name.strip())
    return found


def _target(module, name):
    return f"{module}.{name}" if f"{module}.{name}" in module_names() else module


@cache
def tracked_files():
    """Every file under version control, or about to be; of an unpacked source archive every file."""
    listed = subprocess.run(
        ["git", "ls-files", "-co", "--exclude-standard"], cwd=ROOT, capture_output=True, text=True
    )
    if listed.returncode:
        return tuple(sorted(
            path
            for path in ROOT.rglob("*") if path.is_file() and not {".venv", "build", ".git"} & set(path.parts)
        ))
    return tuple(
        path for name in sorted(listed.stdout.split("\n")) if name and (path := ROOT / name).is_file()
    )
