"""``gomq-py`` and ``python -m gomq_py``: the broker.

Patches the standard library first, for the libraries the broker carries; broker code itself never relies on
it. gevent would look for plugins to tell of that among all installed packages, with modules for mail and
archives that a broker has no use for: 3 MB; a broker starts no processes, either. ssl, which loads OpenSSL,
is patched by whoever imports it first: 5 MB that a broker without TLS does not take.
"""
import sys
from importlib import import_module
from importlib.machinery import PathFinder

from gevent import config, events, monkey


class SslPatcher:
    """A finder of modules (importlib) that has ssl patched before anybody has it, whether it or gevent's own
    is imported first: each imports the other. It stays until that is done: an import may fail, and one may
    ask where a module is without importing it.
    """

    @classmethod
    def find_spec(cls, name, path=None, target=None):
        """Where one of the two is; of any other module nothing."""
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


config.track_greenlet_tree = False  # who spawned whom: 1.5 KiB for each greenlet, and nobody looks
events.notify_and_call_entry_points = events.notify
monkey.patch_all(subprocess=False, ssl=False)  # before any other import
if "ssl" in sys.modules:  # of an interpreter that imports more when it starts (.pth)
    monkey.patch_ssl()
else:
    sys.meta_path.insert(0, SslPatcher)

from gomq_py.late_imports import Unreplaced  # noqa: E402

sys.meta_path.insert(0, Unreplaced)

from gomq_py import cli  # noqa: E402


def main() -> int:
    """Run the broker until it is told to stop; returns the exit code."""
    return cli.main(sys.argv[1:])


if __name__ == "__main__":
    sys.exit(main())
