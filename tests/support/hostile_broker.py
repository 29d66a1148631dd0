"""A broker that many clients may connect to, again and again, and that does to each what a script says: what
links meet where the other end means no good, or is out of its mind.

Threads on loopback sockets, beside greenlets of the test.
"""
import socket
import threading

from gomq_py.amqp.wire.methods import (
    BasicConsume, BasicConsumeOk, BasicDeliver, BasicQos, BasicQosOk, ChannelClose, ChannelCloseOk,
    ChannelOpen, ChannelOpenOk, ConfirmSelect, ConfirmSelectOk, ConnectionClose, ConnectionCloseOk,
    ExchangeDeclare, ExchangeDeclareOk, QueueBind, QueueBindOk, QueueDeclare, QueueDeclareOk, decode_method,
)
from tests.support.scripted_broker import Peer
from tests.support.waiting import TIMEOUT_S

POLITE = {
    ChannelOpen: lambda method: ChannelOpenOk(),
    ChannelClose: lambda method: ChannelCloseOk(),
    BasicQos: lambda method: BasicQosOk(),
    ExchangeDeclare: lambda method: ExchangeDeclareOk(),
    QueueBind: lambda method: QueueBindOk(),
    QueueDeclare: lambda method: QueueDeclareOk(
        queue=method.queue or "q", message_count=0, consumer_count=0),
    ConfirmSelect: lambda method: ConfirmSelectOk(),
    BasicConsume: lambda method: BasicConsumeOk(consumer_tag=method.consumer_tag or "tag"),
}


class HostilePeer(Peer):
    """One connection, with the manners that it takes to get as far as where they end."""

    def answer_until(self, last):
        """Answer everything up to a method of this class, that one too; the channel it came on."""
        while (frame := self.frame()) is not None:
            kind, channel_id, payload = frame
            if kind != 1:
                continue
            method = decode_method(payload)
            if isinstance(method, ConnectionClose):
                self.send(0, ConnectionCloseOk())
                break
            answer = POLITE.get(type(method))
            if answer is not None:
                self.send(channel_id, answer(method))
            if isinstance(method, last):
                return channel_id
        raise EOFError

    def as_source(self, **tune):
        """Log in and let the client consume; the channel."""
        self.handshake(**tune)
        return self.answer_until(BasicConsume)

    def as_destination(self, **tune):
        """Log in and let the client ask for confirms; the channel."""
        self.handshake(**tune)
        return self.answer_until(ConfirmSelect)

    def await_end(self):
        """Say nothing until the client has gone."""
        while self.socket.recv(65536):
            pass

    def deliver(self, channel_id, tag, body=b"x"):
        """One message."""
        self.send_content(channel_id, BasicDeliver(
            consumer_tag="tag", delivery_tag=tag, redelivered=False, exchange="", routing_key="q"), body)

    def methods(self):
        """Methods that come, up to the end of the connection; content and signs of life are passed over."""
        while (frame := self.frame()) is not None:
            if frame[0] == 1:
                yield frame[1], decode_method(frame[2])


class HostileBroker:
    """Runs ``script(peer)`` for each client. What a script meets, whose client leaves when it sees fit, is no
    failure.
    """

    def __init__(self, script, tls_context=None):
        self._script = script
        self._tls_context = tls_context
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=512)
        self._sockets = []
        self._is_closed = False
        self.port = self._listener.getsockname()[1]
        self.url = f"amqp://guest:guest@127.0.0.1:{self.port}/%2f"
        self._thread = threading.Thread(target=self._serve, name="hostile-broker", daemon=True)
        self._thread.start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._is_closed = True
        self._listener.shutdown(socket.SHUT_RDWR)
        self._thread.join(TIMEOUT_S)
        self._listener.close()
        for one in list(self._sockets):
            _cut(one)

    def _serve(self):
        while not self._is_closed:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            self._sockets.append(client)
            threading.Thread(target=self._run, args=(client,), name="hostile-peer", daemon=True).start()

    def _run(self, client):
        try:
            with client:
                self._script(HostilePeer(client))
        except Exception:
            pass  # the client has gone, or the test has


def _cut(one):
    try:
        one.shutdown(socket.SHUT_RDWR)
    except OSError:
        pass
