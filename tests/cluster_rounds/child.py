"""``python -m tests.cluster_rounds.child SWITCHES FLAGS...``: a node whose disk falls ill while a file is in
the folder SWITCHES, as leader and as follower (tests.support.ill_child).
"""
import sys

from tests.support.ill_child import IllFiles  # patches the standard library first

from gomq_py import cli, node
from gomq_py.cluster import membership
from gomq_py.config import settings

if __name__ == "__main__":
    # `enabled` is refused until all of it is there: this is the one place that lets it in
    settings.HAS_ELECTIONS = True
    node.Files = membership.PlainFiles = IllFiles
    sys.exit(cli.main(sys.argv[2:]))
