"""Certificates for tests of sockets, and a connection over TLS."""
import pytest

from tests.support import certificates
from tests.support.sockets import tls_pair


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    return certificates.make(tmp_path_factory.mktemp("certificates"))


@pytest.fixture
def pair(files):
    """(ours, theirs)"""
    ours, theirs = tls_pair(files)
    with ours, theirs:
        yield ours, theirs
