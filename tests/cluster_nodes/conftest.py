"""A real etcd and three nodes beside it, for each test."""
import pytest

from tests.support.elected import Cluster
from tests.support.etcd_process import EtcdProcess


@pytest.fixture
def etcd(tmp_path):
    with EtcdProcess(tmp_path) as etcd:
        yield etcd


@pytest.fixture
def cluster(tmp_path, etcd):
    with Cluster(tmp_path, etcd) as cluster:
        yield cluster
