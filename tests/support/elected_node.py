"""``python -m tests.support.elected_node FLAGS``: gomq-py, whose boot may take longer, and which may note its
position more often, or let others be elected first for longer.
"""
import os
import sys
import time

from gomq_py import __main__ as command  # it patches the standard library

# Seconds for which the boot of a leader keeps the hub, as that of a large folder does.
BOOT_S = float(os.environ.get("GOMQ_TEST_BOOT_S", "0"))
# Seconds between two notes of a node's position; 0: as otherwise.
NOTE_S = float(os.environ.get("GOMQ_TEST_NOTE_S", "0"))
# Seconds for which a follower that hears its leader lets others be elected first; 0: as otherwise.
HEARING_S = float(os.environ.get("GOMQ_TEST_HEARING_S", "0"))


def slow(recover):
    """``recover``, which takes BOOT_S longer."""
    def recover_slowly(broker):
        until_s = time.monotonic() + BOOT_S
        while time.monotonic() < until_s:
            pass
        recover(broker)

    return recover_slowly


if BOOT_S:
    from gomq_py.broker.broker import Broker
    Broker.recover = slow(Broker.recover)

if NOTE_S:
    from gomq_py.cluster import follower, leadership
    follower.NOTE_S = leadership.NOTE_S = NOTE_S

if HEARING_S:
    from gomq_py.cluster import coordination
    from gomq_py.cluster.core import elector
    coordination.SUCCESSOR_S *= HEARING_S / elector.HEARING_S
    elector.HEARING_S = HEARING_S

if __name__ == "__main__":
    sys.exit(command.main())
