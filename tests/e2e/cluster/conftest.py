"""An etcd of the tests of this folder, and clients of it."""
import pytest

from gomq_py.cluster.etcd.client import Etcd
from tests.support.etcd_process import EtcdProcess


@pytest.fixture(scope="module")
def shared_etcd(tmp_path_factory):
    """An etcd that tests share; they use prefixes of their own, and leave it running."""
    with EtcdProcess(tmp_path_factory.mktemp("etcd"), "--unsafe-no-fsync") as process:
        yield process


@pytest.fixture
def connected():
    """Makes clients, which are closed at the end."""
    clients = []

    def connect(*processes, prefix="gomq", **options):
        client = Etcd([process.endpoint for process in processes], prefix, **options)
        clients.append(client)
        return client

    yield connect
    for client in clients:
        client.close()
