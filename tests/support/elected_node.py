"""``python -m tests.support.elected_node FLAGS``: gomq-py, which accepts ``enabled`` of [clustering] here."""
import sys

from gomq_py import __main__ as command  # first: it patches the standard library
from gomq_py.config import settings

settings.HAS_ELECTIONS = True  # the one place where tests go past Settings.missing()

if __name__ == "__main__":
    sys.exit(command.main())
