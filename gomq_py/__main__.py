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
    """A finder of modules (importlib) that has ssl patched when its import ends, or gevent's own that comes
    first and imports it.
    """

    @classmethod
    def find_spec(cls, name, path=None, target=None):
        """Where the first of the two is; of any other module nothing."""
        if name not in ("ssl", "gevent.ssl"):
            return None
        sys.meta_path.remove(cls)
        spec = PathFinder.find_spec(name, path, target)
        load = spec.loader.exec_module

        def load_and_patch(module):
            load(module)
            cooperative = module if name == "gevent.ssl" else import_module("gevent.ssl")
            monkey.patch_module(import_module("ssl"), cooperative)

        spec.loader.exec_module = load_and_patch  # type: ignore[method-assign]
        return spec


config.track_greenlet_tree = False  # who spawned whom: 1.5 KiB for each greenlet, and nobody looks
events.notify_and_call_entry_points = events.notify
monkey.patch_all(subprocess=False, ssl=False)  # before any other import
if "ssl" in sys.modules:  # of an interpreter that imports more when it starts (.pth)
    monkey.patch_ssl()
else:
    sys.meta_path.insert(0, SslPatcher)

from gomq_py import cli  # noqa: E402


def main() -> int:
    """Run the broker until it is told to stop; returns the exit code."""
    return cli.main(sys.argv[1:])


if __name__ == "__main__":
    sys.exit(main())
