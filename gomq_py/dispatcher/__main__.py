"""Runs gomq-py-worker. With --greenlets it first patches the standard library for gevent."""

import logging
import os
import signal
import sys


def main():
    """Run the command gomq-py-worker, and end the process with its exit code."""
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
