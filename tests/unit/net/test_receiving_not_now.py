"""Not now: errors that mean that all is well, told apart without the ssl module."""
import ssl

import pytest

from gomq_py.net.receiving import has_to_write_first, is_not_now


@pytest.mark.parametrize("kind", [BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError])
def test_the_socket_is_to_be_asked_again(kind):
    assert is_not_now(kind())


@pytest.mark.parametrize("kind", [
    ConnectionResetError, ssl.SSLEOFError, ssl.SSLZeroReturnError, ssl.SSLError, TimeoutError, ValueError,
])
def test_the_connection_is_over(kind):
    assert not is_not_now(kind())
    assert not has_to_write_first(kind())


def test_tls_says_that_it_has_to_write_first():
    assert has_to_write_first(ssl.SSLWantWriteError())
    assert not has_to_write_first(ssl.SSLWantReadError())
    assert not has_to_write_first(BlockingIOError())
