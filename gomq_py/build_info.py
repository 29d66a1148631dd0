"""Build information: shows version, interpreter, compiled modules and their sources.

Imports no other part of the package and only reads files. So ``--build-info`` also answers on a broken
installation, and setup.py can ask which modules to compile. The build writes a digest of a module's sources
into the compiled module, as the beginning of its ELF build ID. The tests refuse a module whose sources have
another digest. File times are ignored, because a checkout, a copy or an unpacked archive changes them.
"""
import importlib.util
import os
import platform
import re
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path

import gomq_py

# RabbitMQ release that the broker reports over AMQP, the management API and in definitions, for clients and
# tools that know RabbitMQ alone. docs/decisions/0004 says why this one.
RABBITMQ_VERSION = "3.13.7"


# The folder that holds the package.
ROOT = Path(gomq_py.__file__).resolve().parents[1]
# Modules that are inline C in their .pxd have nothing to compile; an __init__.pxd only marks a package for
# cimport.
NOT_COMPILED = ("octets", "flush_threads", "bare_send", "ssl_calls", "receiving", "__init__")
# Cython's own functions and types, of which all compiled modules share this one copy.
# Cython writes it, so it has no source here, and nothing imports it where modules are interpreted.
SHARED = "gomq_py.cython_shared"
_CIMPORT_FROM = re.compile(r"^[ \t]*from[ \t]+(gomq_py[\w.]*)[ \t]+cimport[ \t]+([^#\n]+)", re.MULTILINE)
_CIMPORT = re.compile(r"^[ \t]*cimport[ \t]+(gomq_py[\w.]+)", re.MULTILINE)


def hot_modules(root: Path = ROOT) -> list[str]:
    """Return the dotted names of the modules to compile: those with a .pxd of C types beside the .py."""
    found = []
    for folder, folders, files in os.walk(root / "gomq_py"):  # a third of the time of Path.rglob, each boot
        folders[:] = [name for name in folders if name != "__pycache__"]
        package = os.path.relpath(folder, root).replace(os.sep, ".")
        stems = {stem for stem, suffix in map(os.path.splitext, files) if suffix == ".pxd"}
        found += [
            f"{package}.{stem}" for stem in stems.difference(NOT_COMPILED) if f"{stem}.py" in files
        ]
    return sorted(found)


def sources_of(name: str, root: Path = ROOT) -> list[Path]:
    """Return a module's source files: its ``.py``, its ``.pxd``, and every ``.pxd`` that they cimport."""
    path = root.joinpath(*name.split("."))
    found, left = {path.with_suffix(".py")}, [path.with_suffix(".pxd")]
    while left:
        declarations = left.pop()
        if declarations not in found:
            found.add(declarations)
            left += _cimported(declarations, root)
    return sorted(found)


def _cimported(declarations: Path, root: Path) -> list[Path]:
    text = declarations.read_text(encoding="utf-8")
    names = set(_CIMPORT.findall(text))
    for package, members in _CIMPORT_FROM.findall(text):
        listed = (member for member in members.strip(" ()").split(",") if member.strip())
        names |= {package, *(f"{package}.{member.split()[0]}" for member in listed)}
    folders = [root.joinpath(*name.split(".")) for name in names]
    paths = [path for folder in folders for path in (folder.with_suffix(".pxd"), folder / "__init__.pxd")]
    return [path for path in paths if path.is_file()]


def digest_of(name: str, root: Path = ROOT) -> str:
    """Return a digest of the contents of a module's source files: 64 hexadecimal digits."""
    import hashlib  # the broker itself does not need it

    digest = hashlib.sha256()
    for path in sources_of(name, root):
        content = path.read_bytes()
        digest.update(f"{path.relative_to(root).as_posix()} {len(content)}\n".encode() + content)
    return digest.hexdigest()


def compiled_file(name: str, root: Path = ROOT) -> Path | None:
    """Return the compiled file below ``root`` that an import of the module loads, or None."""
    path = root.joinpath(*name.split("."))
    paths = (path.with_name(path.name + suffix) for suffix in EXTENSION_SUFFIXES)
    return next((path for path in paths if path.is_file()), None)


def stale_modules(root: Path = ROOT) -> list[str]:
    """Return the names of modules whose compiled file was built from other sources than the present ones."""
    stale = []
    for name in hot_modules(root):
        path = compiled_file(name, root)
        if path is not None and bytes.fromhex(digest_of(name, root)) not in path.read_bytes():
            stale.append(name)
    return stale


def left_over(root: Path = ROOT) -> list[Path]:
    """Return compiled files of modules that were deleted or stay interpreted; imports still load them."""
    found = {path for suffix in EXTENSION_SUFFIXES for path in (root / "gomq_py").rglob("*" + suffix)
             if "." not in path.name.removesuffix(suffix)}  # otherwise another Python's
    return sorted(found - {compiled_file(name, root) for name in (*hot_modules(root), SHARED)})


def interpreted_modules(hot: list[str] | None = None) -> list[str]:
    """Return the names in ``hot`` (None: hot_modules()) of modules that an import loads as plain Python."""
    return [name for name in (hot_modules() if hot is None else hot) if not _is_compiled(name)]


def _is_compiled(name: str) -> bool:
    spec = importlib.util.find_spec(name)
    return spec is not None and spec.origin is not None and spec.origin.endswith(tuple(EXTENSION_SUFFIXES))


def speed() -> str:
    """Return "compiled", "interpreted", or "partly interpreted" with the names of the interpreted modules."""
    hot = hot_modules()
    interpreted = interpreted_modules(hot)
    if not interpreted:
        return "compiled"
    return "interpreted" if len(interpreted) == len(hot) else f"partly interpreted ({', '.join(interpreted)})"


def describe() -> str:
    """Return the text that ``gomq-py --build-info`` prints."""
    stale = stale_modules()
    built = f", but from other sources than these: {', '.join(stale)}" if stale else ""
    return "\n".join((
        f"gomq-py {gomq_py.__version__}",
        f"hot modules: {speed()}{built}",
        f"python: {platform.python_implementation()} {platform.python_version()}",
        f"platform: {platform.platform()}",
    ))
