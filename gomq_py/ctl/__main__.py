"""The entry point of ``gomq-py-ctl`` and ``python -m gomq_py.ctl``."""
import sys

EXIT_INTERRUPTED = 130  # 128 and the signal's number, as in shells


def main():
    """Run one command; return its exit code: 0 done, 1 refused or damaged, 2 wrong usage or no broker."""
    try:
        # the modules register their commands; imported here, because Ctrl-C may come meanwhile
        from gomq_py.ctl import (  # noqa: F401
            access, backup, checks, cluster, commands, diagnostics, limits, links, listings, messages,
            migrate, node, set_aside, simple, topology, transfer, watch,
        )
        return commands.ctl.main(prog_name="gomq-py-ctl", standalone_mode=True)
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED


if __name__ == "__main__":
    sys.exit(main())
