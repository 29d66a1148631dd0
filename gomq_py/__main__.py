"""Entry point of the broker: ``gomq-py`` and ``python -m gomq_py``.

Monkey-patches the standard library first, for libraries that the broker uses; the broker's own code never
relies on the patch. Two unused parts of gevent are switched off: its plugin search, which imports 3 MB of
mail and archive modules, and its patch of subprocess. ssl is patched only when it is imported, because a
broker without TLS does not import OpenSSL and so saves 5 MB.
"""
import signal
import sys
from importlib import import_module
from importlib.machinery import PathFinder

from gevent import config, events, monkey


class SslPatcher:
    """A module finder (importlib) that patches ssl for gevent at the first import of ssl or gevent.ssl."""

    @classmethod
    # It stays until the patch has succeeded: an import may fail, and a caller may look for a module without
    # importing it.
    def find_spec(cls, name, path=None, target=None):
        """Return the spec of ssl or gevent.ssl, whose loader also patches ssl; None for any other module."""
        if name not in ("ssl", "gevent.ssl"):
            return None
        spec = PathFinder.find_spec(name, path, target)
        load = spec.loader.exec_module

        def load_and_patch(module):
            load(module)
            if name == "ssl":
                import_module("gevent.ssl")
            else:
                monkey.patch_module(import_module("ssl"), module)
                sys.meta_path.remove(cls)

        spec.loader.exec_module = load_and_patch  # type: ignore[method-assign]
        return spec


# Until the launcher handles it: a reload that comes so soon finds a configuration that is just being read.
signal.signal(signal.SIGHUP, signal.SIG_IGN)
config.track_greenlet_tree = False  # each greenlet's spawner: 1.5 KiB per greenlet that nothing reads
events.notify_and_call_entry_points = events.notify
monkey.patch_all(subprocess=False, ssl=False)  # before any other import
if "ssl" in sys.modules:  # an interpreter whose .pth files import more at start
    monkey.patch_ssl()
else:
    sys.meta_path.insert(0, SslPatcher)

from gomq_py.late_imports import Unreplaced  # noqa: E402

sys.meta_path.insert(0, Unreplaced)

from gomq_py import cli  # noqa: E402


def main() -> int:
    """Run the broker until a signal stops it. Returns the exit code."""
    return cli.main(sys.argv[1:])


if __name__ == "__main__":
    sys.exit(main())
