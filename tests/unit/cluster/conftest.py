"""Fixtures of a Follower whose leader the test plays."""
import pytest

from gomq_py.cluster import identity
from gomq_py.cluster.follower import Follower
from gomq_py.storage.disk.plain_files import PlainFiles
from tests.support.faulty_files import FaultyFiles
from tests.support.played_leader import SECRET, PlayedLeader


@pytest.fixture
def leader():
    played = PlayedLeader()
    yield played
    played.close()


@pytest.fixture
def files():
    return FaultyFiles()


@pytest.fixture
def made():
    """Followers to stop at the end."""
    followers = []
    yield followers
    for one in followers:
        one.stop()


@pytest.fixture
def root(tmp_path):
    (tmp_path / "data").mkdir()
    return tmp_path / "data"


@pytest.fixture
def begin(leader, files, made, root):
    """Starts a follower."""
    def start(**options):
        (root / ".cluster").exists() or identity.of_follower(PlainFiles(), root)
        arguments = {
            "files": files, "root": root, "secret": SECRET, "host": "127.0.0.1", "port": leader.port,
            "name": "second", "file": identity.IdentityFile(PlainFiles(), root, identity.read(root)),
            "flush_s": 0.0, **options}
        one = Follower(**arguments)
        made.append(one)
        one.start()
        return one
    return start
