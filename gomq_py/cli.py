"""Command line: turns the broker's flags into settings, runs a launcher, and returns exit codes.

Exit codes are 0: stopped on request; 1: could not boot, or died; 2: wrong flags, environment or
configuration. An error that an operator can mend is one line on standard error, never a traceback.
"""
import functools
import os
import sys
from collections.abc import Sequence

import gomq_py
from gomq_py import build_info
from gomq_py.config import sources
from gomq_py.config.settings import PASSWORD_HASH_OF_IT, PLAIN_PASSWORD
from gomq_py.observability import log

EXIT_OK, EXIT_FAILED, EXIT_USAGE = 0, 1, 2


def main(arguments: Sequence[str]) -> int:
    """Run the broker with these command line flags. Returns the exit code. May switch greenlets."""
    try:
        flags = sources.flag_parser().parse_args(arguments)
        if flags.version:
            print(gomq_py.__version__)
            return EXIT_OK
        if flags.build_info:
            print(build_info.describe())
            return EXIT_OK
        settings, warnings = sources.load(flags, os.environ)
        # a reload reads this environment: the same hash, and no password
        environment = dict(os.environ)
        if environment.pop(PLAIN_PASSWORD, ""):
            environment[PASSWORD_HASH_OF_IT] = settings.default_password_hash
        os.environ.pop(PLAIN_PASSWORD, None)
    except sources.ConfigError as error:
        return _complain(str(error), EXIT_USAGE)
    try:
        log.configure(settings.log_level, settings.log_format, settings.log_file)
    except OSError as error:
        return _complain(f"cannot write the log to {settings.log_file}: {error.strerror}", EXIT_FAILED)
    boot = log.logger("boot")
    for warning in warnings:
        boot.warning("%s", warning)
    # imported here, so that --version and a wrong flag are quick
    from gomq_py.launcher import BootError, Launcher
    try:
        return Launcher(settings, reread=functools.partial(sources.load, flags, environment)).run()
    except BootError as error:
        return _complain(str(error), EXIT_FAILED)
    except Exception:
        boot.critical("ended by a fault of the broker", exc_info=True)
        return EXIT_FAILED


def _complain(line: str, code: int) -> int:
    print(f"gomq-py: {log.escape(line)}", file=sys.stderr)
    return code
