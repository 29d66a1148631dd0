"""The AMQP door in this process: a real broker in a folder, a server,
and clients on socket pairs that speak frames.

For tests of amqp.server. Everything runs in the test's own hub; a client's read gives way to the server. With
``manual=True`` the test decides when the disk is done: ``door.committer.finish()``.
"""
import time
from types import SimpleNamespace

import gevent
from gevent import socket
from gevent.event import Event

from gomq_py.amqp.server.server import AMQPServer
from gomq_py.amqp.wire.frames import (
    FRAME_BODY, FRAME_HEADER, FRAME_HEARTBEAT, FRAME_METHOD, PROTOCOL_HEADER, FrameReader, content_frames,
    decode_header, method_frame,
)
from gomq_py.amqp.wire.methods import (
    BasicPublish, ChannelOpen, ChannelOpenOk, ConnectionOpen, ConnectionOpenOk, ConnectionStart,
    ConnectionStartOk, ConnectionTune, ConnectionTuneOk, decode_method,
)
from gomq_py.broker.broker import Broker
from gomq_py.config.settings import Settings
from gomq_py.hub.context import Hub
from gomq_py.mqtt.model.kinds import all_kinds
from gomq_py.net.listener import serve
from gomq_py.storage.disk.data_dir import DataDir
from gomq_py.storage.disk.files import Files
from gomq_py.storage.flush.durability import Durability
from gomq_py.storage.flush.flushing import change_each
from gomq_py.storage.flush.group_commit import GroupCommit
from tests.support.waiting import in_time, wait_until

NO_PROPERTIES = b"\x00\x00"
CAPABILITIES = {
    "consumer_cancel_notify": True, "authentication_failure_close": True, "connection.blocked": True
}
PATIENCE_S = in_time(30)
# How long silence has to last to be believed, in time and in polls of the loop. Everything here is one
# process, so a few polls would do; time alone would not, for a process may stand still longer, and then the
# server has had none of it.
SILENCE_S, SILENT_POLLS = 0.05, 50


class InHub:
    """Does background work soon, but in the hub: silence is told by polls of the loop,
    and a thread may take longer than so many.
    """

    def add(self, function, *arguments, done=None, first=False):
        def work():
            try:
                result, error = function(*arguments), None
            except OSError as failure:
                result, error = None, failure
            if done is not None:
                done(result, error)

        gevent.spawn(work)


class HandCommitter(GroupCommit):
    """A committer whose syncs the test ends: ``finish()`` for good,
    ``finish(error)`` for a disk that refuses.
    """

    def __init__(self, files):
        super().__init__(files, enabled=False)
        self.waiting = []
        self.background.short = self.background.long = InHub()
        self.names._change_each = lambda groups: change_each(groups, self._flushing.watch)

    def after_sync(self, callback, hurry=True, concerns=None, about_logs=True):
        self.waiting.append(callback)

    def wait(self):
        """The broker's stop: nobody is left who would finish a sync for it."""
        self.finish()

    def finish(self, error=None):
        """The sync that everybody waits for is over, and what was to change before it has changed.

        Returns how many waited.
        """
        self.names.make(self.names.take(), {})
        waiting, self.waiting = self.waiting, []
        for callback in waiting:
            callback(error)
        return len(waiting)


class Door:
    """A server over a broker in ``folder``; use as a context manager."""

    def __init__(self, folder, manual=False, sync=False, files=None, **settings):
        # this process may stand still for longer than a login may take
        settings = {"login_timeout": round(PATIENCE_S), **settings}
        self.settings = Settings(data_dir=str(folder), **settings)
        files = Files() if files is None else files
        self.data_dir = DataDir(str(folder), files)
        self.data_dir.open()
        self.committer = HandCommitter(files) if manual else GroupCommit(files, enabled=sync)
        self.hub = Hub(self.settings)
        kinds = all_kinds(self.settings.mqtt_exchange)
        self.broker = Broker(
            self.data_dir, files, Durability(self.committer), self.settings, self.hub, kinds)
        self.broker.recover()
        self.server = AMQPServer(self.broker, self.settings, self.hub)
        self.clients = []
        self.greenlets = []

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for client in self.clients:
            client.close()
        gevent.joinall(self.greenlets, timeout=PATIENCE_S)
        self.hub.take_leave()
        self.broker.close()
        self.committer.stop()
        self.hub.close()
        self.data_dir.close()

    @property
    def vhost(self):
        return self.broker.vhosts["/"]

    def queue(self, name):
        return self.vhost.queues[name]

    def socket(self):
        """The client's end of a socket whose other end the server serves."""
        return served_socket(self.server, self.greenlets)

    def stranger(self):
        """A client that has said nothing yet."""
        client = Client(self.socket())
        self.clients.append(client)
        return client

    def client(self, channels=(1,), **login):
        """A client that is logged in, with open channels."""
        client = self.stranger()
        client.log_in(**login)
        for number in channels:
            client.call(ChannelOpen(), ChannelOpenOk, number)
        return client

    def connection(self):
        """The server's side of the only client."""
        (connection,) = self.hub.clients
        return connection


class Client:
    """One end of a connection, frame by frame. Methods go out on channel 1 unless told otherwise."""

    def __init__(self, socket_):
        self.socket = socket_
        self.reader = FrameReader(0)

    def close(self):
        self.socket.close()

    # talking

    def send(self, *octets):
        """Send octets."""
        self.socket.sendall(b"".join(octets))

    def send_method(self, method, channel=1):
        """Send a method."""
        self.send(method_frame(channel, method))

    def publish(
        self, routing_key, body=b"", exchange="", properties=NO_PROPERTIES, channel=1, frame_max=131072,
        **bits,
    ):
        """Send a publish with its content in one write."""
        self.send(publish_frames(routing_key, body, exchange, properties, channel, frame_max, **bits))

    def call(self, method, answer_class, channel=1):
        """Send a method and return its answer, which must be the next frame."""
        self.send_method(method, channel)
        return self.expect(answer_class, channel)

    # listening

    def frame(self, timeout_s=PATIENCE_S):
        """The next frame as (kind, channel, payload); None at the end of the stream.

        AssertionError when nothing comes.
        """
        while True:
            frame = self.reader.next_frame()
            if frame is not None:
                return frame
            self.socket.settimeout(timeout_s)
            try:
                data = self.socket.recv(65536)
            except TimeoutError:
                raise AssertionError(f"no frame within {timeout_s} s") from None
            except ConnectionResetError:
                return None
            if not data:
                return None
            self.reader.feed(data)

    def expect(self, method_class, channel=1):
        """The next frame must be this method on this channel; returns it. Heartbeats are passed over."""
        while True:
            frame = self.frame()
            assert frame is not None, f"{method_class.NAME} was awaited, but the socket was closed"
            kind, number, payload = frame
            if kind != FRAME_HEARTBEAT:
                break
        assert kind == FRAME_METHOD, f"{method_class.NAME} was awaited, but a frame of type {kind} came"
        method = decode_method(payload)
        assert isinstance(method, method_class), (
            f"{method_class.NAME} was awaited, but {describe(method)} came"
        )
        assert number == channel
        return method

    def expect_message(self, method_class, channel=1):
        """A method with content: returns it as (method, properties in wire form, body)."""
        return self.expect(method_class, channel), *self.content(channel)

    def next_method(self):
        """The next frame, which must be a method."""
        kind, _, payload = self.frame()
        assert kind == FRAME_METHOD, f"a method was awaited, but a frame of type {kind} came"
        return decode_method(payload)

    def content(self, channel=1):
        """What comes behind a method that has content: (properties in wire form, body)."""
        kind, number, payload = self.frame()
        assert (kind, number) == (FRAME_HEADER, channel)
        _, size, properties = decode_header(payload)
        body = b""
        while len(body) < size:
            kind, number, payload = self.frame()
            assert (kind, number) == (FRAME_BODY, channel)
            body += payload
        return properties, body

    def expect_error(self, close_class, code, text, channel=1, blamed=None):
        """A close of the channel or the connection (``channel`` 0) with this code and text,
        about this method class.
        """
        close = self.expect(close_class, channel)
        assert (close.reply_code, close.reply_text) == (code, text)
        if blamed is not None:
            assert close.class_id << 16 | close.method_id == blamed.ID

    def expect_silence(self):
        """Nothing must come for a while, in which the server does all that it was asked for."""
        until = time.monotonic() + SILENCE_S
        for _ in range(SILENT_POLLS):
            poll_the_loop()
        try:
            frame = self.frame(max(until - time.monotonic(), 0.001))
        except AssertionError:
            return
        raise AssertionError(
            "the socket was closed" if frame is None else f"nothing was awaited, but {frame} came"
        )

    def expect_end(self):
        """The server must close the socket without a further frame."""
        frame = self.frame()
        assert frame is None, f"the end was awaited, but {frame} came"

    # logging in

    def log_in(
        self, username="guest", password="guest", virtual_host="/", capabilities=None, channel_max=2047,
        frame_max=131072, heartbeat=0,
    ):
        """The whole handshake; returns what the server said of itself."""
        self.send(PROTOCOL_HEADER)
        start = self.expect(ConnectionStart, 0)
        self.start_ok(username, password, capabilities)
        tune = self.expect(ConnectionTune, 0)
        self.send_method(
            ConnectionTuneOk(channel_max=channel_max, frame_max=frame_max, heartbeat=heartbeat), 0
        )
        self.call(ConnectionOpen(virtual_host=virtual_host), ConnectionOpenOk, 0)
        return SimpleNamespace(start=start, tune=tune)

    def start_ok(
        self, username="guest", password="guest", capabilities=None, mechanism="PLAIN", response=None
    ):
        """Send connection.start-ok."""
        if response is None:
            response = f"\0{username}\0{password}".encode()
        properties = {
            "product": "test", "capabilities": CAPABILITIES if capabilities is None else capabilities
        }
        self.send_method(
            ConnectionStartOk(
                client_properties=properties, mechanism=mechanism, response=response, locale="en_US"
            ),
            0,
        )


def served_socket(server, greenlets):
    """The client's end of a socket whose other end a server serves, in one greenlet more."""
    ours, theirs = socket.socketpair()

    def run():
        try:
            serve(server.handle, theirs, "")
        finally:
            theirs.close()

    greenlets.append(gevent.spawn(run))
    return ours


def poll_the_loop():
    """Give way until the hub's loop has looked at every socket and timer;
    ``gevent.sleep(0)`` may come back before it has.
    """
    polled = Event()
    timer = gevent.get_hub().loop.timer(0.0)
    timer.start(polled.set)
    polled.wait()
    timer.close()


def poll_until(predicate, what=None):
    """wait_until() that looks after each poll of the loop: at what is true for a few polls only."""
    return wait_until(predicate, what=what, sleep=lambda _interval_s: poll_the_loop())


def publish_frames(
    routing_key, body=b"", exchange="", properties=NO_PROPERTIES, channel=1, frame_max=131072, **bits
):
    """basic.publish and its content."""
    method = BasicPublish(exchange=exchange, routing_key=routing_key, **bits)
    return method_frame(channel, method) + content_frames(channel, properties, body, frame_max)


def describe(method):
    """A method with its fields, for messages."""
    return f"{method.NAME} {({name: getattr(method, name) for name, _ in method.FIELDS})}"
