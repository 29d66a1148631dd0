"""DenseFlood: what it asks the system. What it does to reads is in test_coalescer."""
import socket

from gomq_py.net.dense_flood import segments_received

SEGMENT = b"12345678"


def test_the_system_tells_how_many_segments_with_octets_have_come():
    with socket.create_server(("127.0.0.1", 0)) as listener, socket.create_connection(
        listener.getsockname()
    ) as near, listener.accept()[0] as far:
        for count in range(1, 4):
            near.sendall(SEGMENT)
            assert far.recv(100) == SEGMENT
            assert segments_received(far) == count


def test_of_sockets_that_have_no_segments_the_system_tells_none():
    one, other = socket.socketpair()
    with one, other:
        one.sendall(SEGMENT)

        assert segments_received(other) == 0
