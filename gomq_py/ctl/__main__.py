"""``gomq-py-ctl`` and ``python -m gomq_py.ctl``."""
import sys

from gomq_py.ctl.api import APIError
from gomq_py.ctl.commands import ctl
from gomq_py.ctl import checks, entities, messages, transfer  # noqa: F401  (their commands register themselves)

EXIT_FAILED = 1


def main():
    """Run one command. Exit codes: 0 done, 1 refused or damaged, 2 wrong usage or nobody there."""
    try:
        return ctl.main(prog_name="gomq-py-ctl", standalone_mode=True)
    except APIError as error:
        print(f"gomq-py-ctl: {error}", file=sys.stderr)
        return error.exit_code


if __name__ == "__main__":
    sys.exit(main())
