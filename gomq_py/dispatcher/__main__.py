"""gomq-py-worker: runs the tasks of an app. Patches the standard library first where it is asked to."""

import sys


def main():
    """The console script."""
    if "--greenlets" in sys.argv:  # before anything else is imported, or it would keep what is not patched
        from gevent import monkey

        monkey.patch_all()
    from gomq_py.dispatcher.command import run

    sys.exit(run())


if __name__ == "__main__":
    main()
