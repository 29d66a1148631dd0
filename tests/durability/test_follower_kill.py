"""A follower's process is killed again and again, in the middle of syncs and of the stream: its folder is
always a whole state, and the last one of them becomes the leader's.
"""
import os
import sys
from random import Random

import gevent
import pytest
from gevent import subprocess

from gomq_py.cluster import identity
from gomq_py.cluster.wire.messages import NO_ID
from gomq_py.storage.disk.data_dir import DataDir
from tests.durability.seeds import seeds
from tests.e2e.test_follow import SECRET, LeadingNode, check_equal, follower_of, wait
from tests.support.waiting import in_time

CHILD = """
import os, sys
import gevent
from gomq_py.cluster import identity
from gomq_py.cluster.follower import Follower
from gomq_py.storage.disk.data_dir import DataDir
from gomq_py.storage.disk.plain_files import PlainFiles

root, port, secret = sys.argv[1], int(sys.argv[2]), sys.argv[3].encode()
DataDir(root).follow()
follower = Follower(
    PlainFiles(), root, secret, "127.0.0.1", port, "killed",
    identity.IdentityFile(PlainFiles(), root, identity.of_follower(PlainFiles(), root)))
follower.start()
print("started", flush=True)
was = ""
while True:
    state = follower.status.state
    if state != was:
        print(state, flush=True)
    was = state
    gevent.sleep(0.001)
"""


def run_and_kill(leading, root, random):
    """A follower in a process of its own, killed at a random moment behind one of its states."""
    child = subprocess.Popen(
        [sys.executable, "-c", CHILD, os.fspath(root), str(leading.leader.port), SECRET.decode()],
        stdout=subprocess.PIPE)
    wanted = random.choice((b"started", b"syncing", b"syncing", b"streaming"))
    try:
        with gevent.Timeout(in_time(30)):
            while wanted not in (line := child.stdout.readline()):
                assert line, "the follower has ended by itself"
            leading.load_for(turns=random.choice((0, 0, 1, 5)))
    finally:
        child.kill()
        child.wait()
        child.stdout.close()


@pytest.mark.timeout(300)
@pytest.mark.parametrize("seed", seeds(2))
def test_killed_follower_has_a_whole_state_and_becomes_equal(tmp_path, seed):
    random = Random(seed)
    leading, root = LeadingNode(tmp_path / "leader"), tmp_path / "follower"
    leading.begin_load()
    leading.load_for(turns=20)

    for _ in range(8):
        run_and_kill(leading, root, random)
        if random.random() < 0.3:  # promoted for a while, without a word to anybody
            data_dir = DataDir(root).follow()
            is_whole = identity.read(root) is not None and identity.read(root).cluster_id != NO_ID
            assert is_whole == (root / "schema_version").exists()
            data_dir.close()
    data_dir = DataDir(root).follow()
    follower = follower_of(leading.leader.port, root)
    follower.start()
    wait(lambda: follower.status.state == "streaming", what=lambda: follower.status)
    check_equal(leading, follower, root)
    follower.stop()
    data_dir.close()
    leading.close()
