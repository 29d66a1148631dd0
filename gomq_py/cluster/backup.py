"""Backup: sends a running broker's data folder to gomq-py-ctl, as a leader sends it to a follower.

Used by ``node``. Each backup has its own stream of changes, secret, and listener on the loopback address. The
stream gets the folder's changes only while a backup runs. If the broker has no followers, each backup first
lists the data folder, in a thread, while the broker works.
"""
import os
import time

import gevent
from gevent.lock import Semaphore

from gomq_py.cluster.leader import Leader
from gomq_py.cluster.stream import EventStream
from gomq_py.digests import sha256
from gomq_py.errors import ClusterError
from gomq_py.hub.threads import in_thread
from gomq_py.hub.turns import paced
from gomq_py.net.listener import BindError
from gomq_py.observability.log import logger
from gomq_py.storage.disk.data_dir import NOT_CONTENT
from gomq_py.storage.disk.register import listing
from gomq_py.storage.errors import DataDirError

LOG = logger("backup")
LOOPBACK = "127.0.0.1"
SECRET_OCTETS = 32
# A backup never has another leader: its folder follows this broker only.
EPOCH = 1
# Between two looks whether the copier has left, and the time that it has to connect.
LOOK_S, CONNECT_S = 0.2, 10.0
NONE, WAITING = "none", "waiting"


class Backup:
    """Sends the data folder ``root`` to one copier at a time.

    ``files``: the broker's files, whose register reports changes of the folder. ``name``: the broker's name;
    a copier can update its earlier copy of a broker of that name. ``flush()`` returns once all changes so far
    are on disk.
    """

    def __init__(self, root, files, name, flush):
        self._root = root
        self._register = files.register
        self._cluster_id = sha256(b"backup of " + name.encode()).digest()[:16]
        self._flush = flush
        self._turn = Semaphore()
        self._stream = self._leader = self._watching = None

    def begin(self):
        """Start a backup: listen until one copier connects. May switch greenlets.

        Returns {"host", "port", "secret", "id"}, with which the copier connects. An earlier backup without a
        connected copier is ended. Raises ClusterError if a copier is connected, or if the backup cannot
        begin.
        """
        with self._turn:
            if self._leader is not None and self._leader.links:
                raise ClusterError("a backup of this broker is running: wait for its end")
            self._end()
            secret = os.urandom(SECRET_OCTETS).hex()
            stream = self._stream = EventStream(self._root)
            register = self._register.attach(stream)
            try:
                self._fill(register)
                leader = Leader(
                    secret.encode(), self._cluster_id, EPOCH, stream, register, self._root, LOOPBACK, 0)
                leader.open()
            except (BindError, DataDirError, OSError) as error:
                self._end()
                raise ClusterError(f"a backup cannot begin: {error}") from error
            except BaseException:
                self._end()
                raise
            LOG.info("a backup begins")
            self._leader = leader
            self._watching = gevent.spawn(self._watch, leader)
            self._watching.name = "backup: watches"
            return {"host": LOOPBACK, "port": leader.port, "secret": secret, "id": self._cluster_id.hex()}

    def figures(self):
        """Return {"state", "done_bytes", "total_bytes"}.

        States: "none", "waiting" (for the copier), "syncing", "streaming".
        """
        links = () if self._leader is None else self._leader.followers
        if not links:
            return {"state": NONE if self._leader is None else WAITING, "done_bytes": 0, "total_bytes": 0}
        link = links[0]
        return {
            "state": link.state, "done_bytes": link.sync_done_octets, "total_bytes": link.sync_total_octets}

    def close(self):
        """End a running backup, and tell the copier. May switch greenlets."""
        with self._turn:
            self._end()

    def _end(self):
        leader, self._leader = self._leader, None
        watching, self._watching = self._watching, None
        if watching is not None and watching is not gevent.getcurrent():
            watching.kill()
        if leader is not None:
            leader.close()
        stream, self._stream = self._stream, None
        if stream is not None:
            self._register.detach(stream)
            stream.close()

    def _fill(self, register):
        """Register the existing files, unless they are registered already. May switch greenlets.

        Raises DataDirError, OSError.
        """
        if not register.is_filling:
            return
        for path, is_folder in paced(in_thread(listing, self._root, NOT_CONTENT)):
            register.found(path, is_folder)
        self._flush()  # threads had begun changes before anybody was told: they tell of them until now
        register.is_filling = False

    def _watch(self, leader):
        """End the backup once the copier has its copy and has left, or after CONNECT_S without a copier."""
        has_come = []
        leader.on_streaming = lambda: has_come.append(True)
        until_s = time.monotonic() + CONNECT_S
        ended = "has ended"
        while not (has_come and not leader.links):
            if leader.links:
                until_s = time.monotonic() + CONNECT_S  # a link that ends by a fault comes again
            elif time.monotonic() > until_s:
                ended = "was not finished: nobody copies the data folder any more"
                break
            gevent.sleep(LOOK_S)
        LOG.info("the backup %s", ended)
        with self._turn:
            if self._leader is leader:
                self._end()
