"""gomq-py-worker: runs the tasks of an app. Patches the standard library first where it is asked to."""

import logging
import os
import signal
import sys


def main():
    """The console script."""
    if "--greenlets" in sys.argv:  # before the rest is imported, or it would keep what is not patched
        from gevent import monkey

        monkey.patch_all()
    from gomq_py.dispatcher.command import LEFT_BEHIND, run

    code = run()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_DFL)
    if code == LEFT_BEHIND:
        # The interpreter would wait for threads that such a task has started, which may be for ever.
        logging.shutdown()
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        os._exit(code)
    sys.exit(code)


if __name__ == "__main__":
    main()
