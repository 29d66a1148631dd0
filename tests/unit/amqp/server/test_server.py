"""The door as a whole: taking leave of its clients."""
import gevent

from gomq_py.amqp.server import server as server_module
from gomq_py.amqp.wire.methods import ConnectionClose, ConnectionCloseOk
from tests.support.waiting import in_time


def test_close_tells_every_client_and_waits_for_them(door):
    clients = [door.client(), door.client()]
    closing = gevent.spawn(door.server.close)

    for client in clients:
        client.expect_error(ConnectionClose, 320, "CONNECTION_FORCED - broker forced connection closure with reason 'shutdown'", 0)
        assert not closing.ready()
        client.send_method(ConnectionCloseOk(), 0)
        client.expect_end()

    closing.join(timeout=in_time(30))
    assert closing.successful()
    assert not door.server.connections


def test_close_does_not_wait_for_ever(door, monkeypatch):
    monkeypatch.setattr(server_module, "STOP_TIMEOUT_S", 0.02)
    client = door.client()

    door.server.close()

    client.expect(ConnectionClose, 0)
    client.expect_end()


def test_nobody_comes_in_after_close(door):
    door.server.close()

    door.stranger().expect_end()
