"""What this installation is: version, interpreter, and which hot modules are compiled.

A leaf that imports none of the rooms: it looks at files only, so that ``--build-info`` also answers on a broken installation.
"""
import importlib.util
import platform
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path

import gomq_py

# The release of RabbitMQ whose manners these are, for clients and tools that know RabbitMQ alone: the same by AMQP, by the management API and in
# definitions. docs/decisions/0004 says why this one.
RABBITMQ_VERSION = "3.13.7"


def hot_modules() -> list[str]:
    """Dotted names of the modules that have C types beside them. ``octets`` is inline C in its ``.pxd`` and never compiled by itself."""
    root = Path(gomq_py.__file__).parent
    paths = (path for path in root.rglob("*.pxd") if path.stem not in ("__init__", "octets") and path.with_suffix(".py").exists())
    return sorted(".".join(("gomq_py", *path.relative_to(root).with_suffix("").parts)) for path in paths)


def interpreted_modules() -> list[str]:
    """Hot modules that an import would take as plain Python now."""
    return [name for name in hot_modules() if not _is_compiled(name)]


def _is_compiled(name: str) -> bool:
    spec = importlib.util.find_spec(name)
    return spec is not None and spec.origin is not None and spec.origin.endswith(tuple(EXTENSION_SUFFIXES))


def speed() -> str:
    """"compiled", "interpreted", or how much of it is which."""
    hot, interpreted = hot_modules(), interpreted_modules()
    if not interpreted:
        return "compiled"
    return "interpreted" if len(interpreted) == len(hot) else f"partly interpreted ({', '.join(interpreted)})"


def describe() -> str:
    """What ``--build-info`` prints."""
    return "\n".join((
        f"gomq-py {gomq_py.__version__}",
        f"hot modules: {speed()}",
        f"python: {platform.python_implementation()} {platform.python_version()}",
        f"platform: {platform.platform()}",
    ))
