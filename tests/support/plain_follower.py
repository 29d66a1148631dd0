"""A follower in memory: logs in to a leader, asks for what differs, repeats the events.

A second reading of the protocol, beside the package's own follower: it writes no file and flushes nothing.
"""
import gevent
from gevent import socket
from gevent.event import Event

from gomq_py.cluster.login import FollowerLogin
from gomq_py.cluster.wire import events, frames, messages
from tests.support.waiting import wait_until

ACK_S = 0.01


class PlainFollower:
    """``copy``: what a former follower had, as ``content()`` says it. ``resume``: the former follower itself.
    """

    def __init__(self, port, secret, cluster_id=messages.NO_ID, name="copy", copy=None, resume=None):
        self.position = self.flushed_count = self.heartbeats = 0
        self.folders, self.files, self.names = set(), {}, {}  # files: {id: bytearray}; names: {id: path}
        self.skipped = self.received_octets = 0
        self.is_synced = False
        self.is_reading = self.acknowledges = True
        self.leader_position = 0
        self.refused = ""  # why the leader has ended the connection
        run, node_id = messages.NO_ID, name.encode().ljust(16, b"\0")
        if resume is not None:
            run, self.position, self.is_synced = resume.run, resume.position, True
            cluster_id = resume.cluster_id
            self.folders, self.files, self.names = resume.folders, resume.files, resume.names
            copy = resume.content()
        self._old = copy or {}
        self._login = FollowerLogin(secret, node_id, cluster_id, 0, run, self.position, name)
        self._reader = frames.FrameReader()
        self.socket = socket.create_connection(("127.0.0.1", port))
        self._log_in()
        self.run, self.cluster_id = self._login.run, self._login.cluster_id
        self.epoch, self.is_sync = self._login.epoch, self._login.is_sync
        if self.is_sync:
            self.folders, self.files, self.names, self.is_synced = set(), {}, {}, False
        self._ended = Event()
        self._acks = gevent.spawn(self._acknowledge_forever)
        self._greenlet = gevent.spawn(self._read)

    def content(self):
        """{path: octets, or None for a folder}, as tests.support.mirror.folder_content."""
        return dict.fromkeys(self.folders) | {
            path: bytes(self.files[file_id]) for file_id, path in self.names.items()}

    def wait_for(self, position):
        """Return when the events up to this position have come, and a whole state is there."""
        wait_until(
            lambda: self._check() and self.is_synced and self.position >= position, sleep=gevent.sleep,
            what=lambda: f"position {self.position} of {position}, synced: {self.is_synced}")

    def wait_for_end(self):
        """Return when the leader has closed the connection."""
        self._greenlet.join()

    def close(self):
        self._ended.set()
        gevent.killall([self._greenlet, self._acks])
        self.socket.close()

    def send(self, kind, payload):
        self.socket.sendall(frames.encode(kind, payload, self.epoch))

    # login and reading

    def _log_in(self):
        self.socket.sendall(self._login.hello())
        while not self._login.done:
            frame = self._next_frame()
            assert frame is not None, "the leader has closed"
            self.socket.sendall(self._login.feed(frame))

    def _next_frame(self):
        while (frame := self._reader.next()) is None:
            octets = self.socket.recv(1 << 18)
            if not octets:
                return None
            self.received_octets += len(octets)
            self._reader.feed(octets)
        return frame

    def _read(self):
        while (frame := self._next_frame()) is not None:
            wait_until(lambda: self.is_reading, sleep=gevent.sleep)
            assert frame.epoch == self.epoch or frame.kind == frames.EVENTS and frame.epoch < self.epoch
            if frame.kind == frames.HEARTBEAT:
                self.heartbeats += 1
                self.leader_position = frame.position
                continue
            if frame.kind == frames.REFUSED:
                self.refused = messages.Refused.decode(frame.payload).text
                self._ended.set()
                self.socket.shutdown(socket.SHUT_RDWR)
                return
            assert frame.kind == frames.EVENTS, frame.kind
            assert frame.position >= self.position
            events.decode(frame.payload, self)
            self.position = frame.position

    def _check(self):
        if self._greenlet.ready():
            self._greenlet.get()
            raise AssertionError("the leader has closed")
        return True

    def _acknowledge_forever(self):
        while not self._ended.wait(ACK_S):
            if self.acknowledges:
                flushed = self.position if self.is_synced else 0
                self.send(frames.ACK, messages.Ack(self.position, flushed).encode())

    # operations

    def listed_folder(self, path):
        self.folders.add(path)

    def listed(self, file_id, size, path):
        assert not self.is_synced and file_id not in self.names
        old = self._old.get(path) or b""
        self.names = {other: name for other, name in self.names.items() if name != path} | {file_id: path}
        self.files[file_id] = bytearray(old[:size].ljust(size, b"\0"))
        step, end = messages.BLOCK_OCTETS, min(size, len(old))
        blocks = [old[at:at + step] for at in range(0, end, step)]
        checksums = tuple(map(messages.block_digest, blocks))
        self.send(frames.HASHES, messages.Hashes(file_id, checksums).encode())

    def listed_all(self):
        pass

    def synced(self):
        assert not self.is_synced
        self.is_synced = True

    def created(self, file_id, size, path):
        assert file_id not in self.names and path not in self.names.values()
        self.names[file_id], self.files[file_id] = path, bytearray(size)

    def folder_created(self, path):
        assert path not in self.folders
        self.folders.add(path)

    def written(self, file_id, start, octets):
        if self._has(file_id):
            file, end = self.files[file_id], start + len(octets)
            file.extend(bytes(max(0, end - len(file))))
            file[start:end] = octets

    def resized(self, file_id, size):
        if self._has(file_id):
            file = self.files[file_id]
            del file[size:]
            file.extend(bytes(size - len(file)))

    def renamed(self, file_id, source, target):
        if not file_id:
            self._folder_renamed(source, target)
            return
        for other in [other for other, path in self.names.items() if path == target]:
            del self.names[other]
        if self._has(file_id):
            assert self.names[file_id] == source
            self.names[file_id] = target

    def _folder_renamed(self, source, target):
        def moved(path):
            return target + path[len(source):] if f"{path}/".startswith(f"{source}/") else path

        self.folders = {moved(path) for path in self.folders}
        self.names = {file_id: moved(path) for file_id, path in self.names.items()}

    def unlinked(self, file_id, path):
        if self._has(file_id):
            assert self.names[file_id] == path
            del self.names[file_id]

    def folder_removed(self, path):
        if path in self.folders:
            self.folders.remove(path)
        else:
            assert not self.is_synced

    def flushed(self):
        self.flushed_count += 1

    def hurry(self):
        """It flushes nothing."""

    def _has(self, file_id):
        if file_id in self.names:
            return True
        assert not self.is_synced, f"file {file_id} is unknown"
        self.skipped += 1
        return False
