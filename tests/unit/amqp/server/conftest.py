"""Fixtures of the door's tests: a server in this process."""
import pytest

from tests.support.door import Door


@pytest.fixture
def door(tmp_path):
    """A server whose disk is done at once."""
    with Door(tmp_path / "data") as door:
        yield door


@pytest.fixture
def slow_disk_door(tmp_path):
    """A server whose syncs end when the test calls ``committer.finish()``."""
    with Door(tmp_path / "data", manual=True) as door:
        yield door


@pytest.fixture
def client(door):
    """A client with channel 1 open."""
    return door.client()
