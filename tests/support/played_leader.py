"""A leader that a test plays, frame by frame, for a Follower; and what a test asks of that follower."""
import gevent
from gevent import socket, ssl

from gomq_py.cluster.login import LeaderLogin, LoginRefused
from gomq_py.cluster.wire import events, frames
from gomq_py.cluster.wire.frames import FrameReader
from gomq_py.cluster.wire.messages import Ack, Hashes, Refused
from tests.support import certificates
from tests.support.mirror import folder_content
from tests.support.waiting import in_time, wait_until

SECRET, CLUSTER, RUN = b"s" * 16, b"c" * 16, b"r" * 16
# No folder is swapped in without this file. It came while the sync went on, so that it needs no hashes.
VERSION = events.created(99, 2, "schema_version")


class PlayedLeader:
    """A leader's port. ``accept`` lets a follower in; the rest is about the connection of the last one."""

    def __init__(self):
        self.listening = socket.socket()
        self.listening.bind(("127.0.0.1", 0))
        self.listening.listen(8)
        self.listening.settimeout(in_time(20))
        self.port = self.listening.getsockname()[1]
        self.connection = None
        self.acks, self.hashes = [], []
        self.noted = 0  # position in the follower's folder, by the last of the acks
        self.refused = ""  # why the follower has left
        self.tls = None

    def accept(
            self, secret=SECRET, cluster_id=CLUSTER, epoch=1, can_resume=True, counts_received=False,
            run=RUN):
        """Let a follower in, in this leader's ``run``, that of RUN or one behind it; returns its Hello."""
        self.greet()
        login = LeaderLogin(
            secret, cluster_id, epoch, run, lambda asked, position: can_resume and asked in (RUN, run),
            counts_received=counts_received)
        self.reader = FrameReader()
        while not login.done:
            try:
                answer = login.feed(self._frame())
            except LoginRefused as error:
                self.connection.sendall(error.answer)
                raise
            self.connection.sendall(answer)
        self.epoch = epoch
        self.is_sync = login.is_sync
        self.acks, self.hashes = [], []
        return login.hello

    def greet(self):
        """Accept a connection, and say nothing."""
        self.hang_up()
        self.connection, _ = self.listening.accept()
        self.connection.settimeout(in_time(20))
        if self.tls is not None:
            self.connection = self.tls.wrap_socket(self.connection, server_side=True)

    def tell(self, *operations, position, kind=frames.EVENTS, epoch=None):
        octets = frames.encode(
            kind, b"".join(operations), self.epoch if epoch is None else epoch, position, compress=True)
        self.connection.sendall(octets)

    def read(self):
        """Take one ACK, HASHES or REFUSED."""
        frame = self._frame()
        assert frame.epoch == self.epoch
        if frame.kind == frames.ACK:
            received, flushed, self.noted = Ack.decode(frame.payload)
            self.acks.append((received, flushed))
        elif frame.kind == frames.REFUSED:
            self.refused = Refused.decode(frame.payload).text
        else:
            assert frame.kind == frames.HASHES
            hashes = Hashes.decode(frame.payload)
            self.hashes.append((hashes.file_id, list(hashes.checksums)))

    def await_ack(self, received, flushed):
        while (received, flushed) not in self.acks:
            self.read()

    def await_end(self):
        """Read until the follower closes."""
        try:
            while True:
                self.read()
        except (EOFError, ConnectionError):
            pass

    def _frame(self):
        while (frame := self.reader.next()) is None:
            octets = self.connection.recv(65536)
            if not octets:
                raise EOFError
            self.reader.feed(octets)
        return frame

    def hang_up(self):
        if self.connection is not None:
            self.connection.close()

    def close(self):
        self.hang_up()
        self.listening.close()


def content(root):
    """Of a data folder, without its identity and version."""
    return {
        name: octets for name, octets in folder_content(root).items()
        if name not in (".cluster", "schema_version")}


def sync(leader, position=5):
    """A sync of one file, "file" with "abc"."""
    leader.tell(events.listed_folder("folder"), events.listed(1, 3, "file"), position=0)
    leader.tell(VERSION, events.listed_all(), position=0)
    while not leader.hashes:
        leader.read()
    leader.tell(events.written(1, 0, b"abc"), position=position)
    leader.tell(events.synced(), position=position)
    leader.await_ack(position, position)


def wait_for(one, **wanted):
    """Wait for figures in the status."""
    def is_there():
        status = one.status._asdict()
        return all(status[name] == value for name, value in wanted.items())
    wait_until(is_there, what=lambda: one.status, sleep=gevent.sleep)


def wait_for_error(one, text):
    wait_until(lambda: text in one.status.error, what=lambda: one.status, sleep=gevent.sleep)


def tls_of(leader, folder, *names):
    """Gives the leader a certificate; returns the context of a follower that trusts it."""
    files = certificates.make(folder, *names)
    leader.tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    leader.tls.load_cert_chain(files.certificate, files.key)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_verify_locations(files.authority)
    return context
