"""Refusals of the management API, as the transport http reports them."""
import socket
import threading

import pytest

from gomq_py.spark.errors import Refused
from gomq_py.spark.http_transport import HttpTransport
from gomq_py.spark.options import Credentials, Options
from tests.support.waiting import in_time


@pytest.mark.parametrize("body, reason", [
    (b'{"error": "not_authorised", "reason": "Access refused."}', "Access refused."),
    (b'{"error": "not_authorised"}', "not_authorised"), (b'{"message": "by a proxy"}', "Forbidden"),
    (b"{}", "Forbidden"), (b"[]", "Forbidden"), (b"<html>", "Forbidden"),
])
def test_a_refusal_has_the_reason_of_the_answer_or_of_its_status(body, reason):
    with socket.create_server(("127.0.0.1", 0)) as listening:
        def serve():
            client, _ = listening.accept()
            with client:
                client.recv(4096)
                client.sendall(b"HTTP/1.1 403 Forbidden\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body))

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        url = f"http://127.0.0.1:{listening.getsockname()[1]}"
        door = HttpTransport(Options({"subscribe": "orders", "url": url}), Credentials("guest", "guest"))

        with pytest.raises(Refused) as refused:
            door.describe("orders")
        thread.join(in_time(60))

    assert f"({reason})" in str(refused.value)
