"""gomq-py-worker: runs the tasks of an app. With --greenlets it patches the standard library first."""

import logging
import os
import signal
import sys


def main():
    """The console script."""
    if "--greenlets" in sys.argv:  # before other imports, which would keep unpatched names
        from gevent import monkey

        monkey.patch_all()
    from gomq_py.dispatcher.command import LEFT_BEHIND, run

    code = run()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_DFL)
    if code == LEFT_BEHIND:
        # The interpreter would wait for the task's threads, possibly for ever.
        logging.shutdown()
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        os._exit(code)
    sys.exit(code)


if __name__ == "__main__":
    main()
