"""Shapes: what the management API shows of things that go while it is asked."""
import ssl as standard_ssl

import pytest
from gevent import socket, ssl

from gomq_py.http import shapes


def closed(with_tls):
    """A socket that its connection has closed."""
    ours, theirs = socket.socketpair()
    theirs.close()
    if with_tls:
        ours = ssl.SSLContext(standard_ssl.PROTOCOL_TLS_SERVER).wrap_socket(
            ours, server_side=True, do_handshake_on_connect=False
        )
    ours.close()
    return ours


@pytest.mark.parametrize("with_tls", [False, True])
def test_socket_that_was_closed_while_a_list_was_made_tells_nothing_and_fails_nothing(with_tls):
    gone = closed(with_tls)

    assert shapes.tls_of(gone) in (None, (None, None))
    assert set(shapes.peer_certificate(gone).values()) == {None}
    assert shapes.address_of(gone.getsockname) == ("", 0)
