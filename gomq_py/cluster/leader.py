"""Leader: listens for followers, admits those with the right secret, and serves each by a link.

Uses the stream of events, the links and the syncs. A failure of one follower is logged and ends that
follower's connection. It never reaches the storage or another follower. The acknowledger, if any, gets each
acknowledgement. The in-sync set (``core.in_sync``) is decided from ``progress``.
"""
import contextlib
from functools import partial

import gevent
from gevent.event import Event
from gevent.lock import Semaphore

from gomq_py.cluster.adoption import Adoption
from gomq_py.cluster.core.in_sync import Progress
from gomq_py.cluster.follower_link import (
    EXPECTED, RECEIVE_OCTETS, FollowerLeaves, FollowerLink, LinkClosed, LinkError, text_of,
)
from gomq_py.cluster.login import COPIED, LeaderLogin, LoginRefused
from gomq_py.cluster.wire import frames, messages
from gomq_py.net.listener import Listener, bind_tcp, format_address, host_of
from gomq_py.net.socket_options import SocketOptions
from gomq_py.observability.log import logger
from gomq_py.observability.quiet_log import QuietLog

LOG = logger("cluster")
# Time for the TLS handshake and the login.
LOGIN_S = 5.0
# Most connections that have not logged in, of all and of one address; the oldest gives way to a new one.
PENDING_MOST = 64
PENDING_PER_ADDRESS = 8
BACKLOG = 64
# Time for sending what is told, when the leader closes.
CLOSING_S = 1.0
TO_LEAD = "this node is to lead"


class FollowerRefused(LoginRefused):
    """A follower with the right secret is refused. The text says why."""


class Leader:
    """The leader's side of a cluster.

        secret                 at least 16 bytes
        cluster_id             16 bytes
        stream                 the EventStream of ``register``
        register               the register of files below the folder ``root``
        bind, port             address to listen on; port 0 for one that the system chooses
        tls                    None, or a function that takes an accepted socket and returns a TLS socket;
                               the TLS socket owns the accepted one
        why_no_sync()          returns "", or why followers that need a sync, or come from a former
                               leader, are refused now; may switch greenlets
        found_damage           see SyncSource
        acknowledger           the Acknowledger of confirms that wait for followers, or None
        find_listener(name)    returns this node's listener for clients that followers pass on, or None
    """

    def __init__(
            self, secret, cluster_id, epoch, stream, register, root, bind, port, tls=None, why_no_sync=str,
            acknowledger=None, find_listener=lambda name: None, found_damage=lambda what: True):
        # promises are asked for by the register's positions, and followers acknowledge the stream's
        assert acknowledger is None or stream.position == register.told
        self.cluster_id = cluster_id
        self.epoch = stream.epoch = epoch
        self.why_no_sync = why_no_sync
        self._successor = ""  # id of the node that is to lead
        self._acknowledger = acknowledger
        self._found_damage = found_damage
        self._secret = secret
        self._stream = stream
        self._register = register
        self._root = root
        self._bind = bind
        self._port = port
        self._tls = tls
        self._adoption = Adoption(find_listener)
        self._listener = None
        self._links = []
        self._places = {}  # node: (stream.octets, stream.made) up to which it has flushed
        self._streaming = set()  # links that have begun to stream
        self._leavers = set()  # nodes
        self._pending = {}  # greenlet: host, the oldest first
        self._greenlets = set()
        self._turn = Semaphore()  # one follower syncs at a time
        self._strangers = QuietLog(LOG)
        self._has_heard = Event()  # of an acknowledgement: see drain
        self.on_streaming = lambda: None  # called when a follower begins to stream

    def open(self):
        """Listen. Raises BindError."""
        listening = bind_tcp(self._bind, self._port, BACKLOG)
        options = SocketOptions(nodelay=True)
        self._listener = Listener(listening, "cluster", self._handle, options)
        self._listener.start()
        LOG.info("listening cluster %s", self._listener.address)

    def lead_on(self, epoch):
        """Lead in a higher ``epoch`` from now on. Followers must log in again, and keep their positions."""
        # What they have acknowledged stays true.
        self._stream.close_frame()
        self.epoch = self._stream.epoch = epoch
        for link in self._links:
            link.end(LinkClosed(f"epoch {epoch} has begun: log in again"))

    def close(self):
        """Stop listening, send present events to followers that read in time, and disconnect.

        May switch greenlets.
        """
        if self._listener is not None:
            self._listener.close()
            self._listener = None
        self._has_heard.set()  # of the end: see drain
        gevent.killall(list(self._pending))
        self._adoption.close()
        self._stream.close_frame()
        for link in self._links:
            link.finish()
        gevent.joinall(list(self._greenlets), CLOSING_S)
        gevent.killall(list(self._greenlets))
        self._stream.close()

    @property
    def port(self):
        """The port of the listener; 0 if it is closed."""
        return 0 if self._listener is None else self._listener.port

    @property
    def listener(self):
        """The net.listener.Listener; None if closed."""
        return self._listener

    @property
    def followers(self):
        return [link.figures() for link in self._links]

    @property
    def progress(self):
        """Progress of the connected followers: {node id: core.in_sync.Progress}.

        If the leader never flushes (--no-sync), ``flushed`` is the received position.
        """
        return {
            link.node: Progress(self._counted(link), link.is_streaming, True, link.acked.noted)
            for link in self._links if not link.is_over}

    def take_leavers(self):
        """Return the nodes that have left since the last call because their folders cannot store changes."""
        leavers, self._leavers = self._leavers, set()
        return leavers

    def behind(self, nodes):
        """Return the lag of the slowest of ``nodes``: (bytes of unflushed events, memory of their frames).

        Both are in bytes. A node that has not connected in this run lacks all events since the boot.
        """
        for link in self._links:
            self._note_place(link)
        self._places = {node: self._places.get(node, (0, 0)) for node in nodes}
        stream, places = self._stream, self._places.values()
        octets = stream.octets - min((octets for octets, _ in places), default=stream.octets)
        return octets, stream.made - min((made for _, made in places), default=stream.made)

    def drain(self, nodes, timeout_s):
        """Wait until these nodes have flushed all present events. May switch greenlets.

        The wait also ends when this leader is closed, or after ``timeout_s``. Returns the nodes that lack
        events.
        """
        position = self._stream.position
        self._stream.flushing()
        with gevent.Timeout(timeout_s, False):
            while (lacking := self._lacking(nodes, position)) and self._listener is not None:
                self._has_heard.clear()
                self._has_heard.wait()
            return lacking
        return self._lacking(nodes, position)

    def _lacking(self, nodes, position):
        return frozenset(nodes) - {
            node for node, there in self.progress.items() if there.is_synced and there.flushed >= position}

    def hang_up(self, node):
        """Disconnect the follower that is to lead, and refuse its logins.

        A follower that hears this leader would let other nodes be elected first.
        """
        self._successor = node
        for link in self._links:
            if link.node == node:
                link.end(LinkClosed(TO_LEAD))

    @property
    def links(self):
        return tuple(self._links)

    # helpers

    def _handle(self, connection, address):
        greenlet, host = gevent.getcurrent(), host_of(address)
        self._make_room(host)
        self._greenlets.add(greenlet)
        self._pending[greenlet] = host
        try:
            with contextlib.ExitStack() as stack:
                serve = self._let_in(connection, address, stack)
                self._pending.pop(greenlet, None)
                if serve is not None:
                    serve()
        finally:
            self._pending.pop(greenlet, None)
            self._greenlets.discard(greenlet)

    def _make_room(self, host):
        """If too many connections wait for a login, from ``host`` or in all, close the oldest of these."""
        # Silent strangers must not keep followers out.
        of_host = [greenlet for greenlet, other in self._pending.items() if other == host]
        oldest = None
        if len(of_host) >= PENDING_PER_ADDRESS:
            oldest = of_host[0]
        elif len(self._pending) >= PENDING_MOST:
            oldest = next(iter(self._pending))
        if oldest is not None:
            self._strangers.warning(
                "pending", "too many connections wait for their login: the oldest from %s is closed",
                self._pending.pop(oldest))
            oldest.kill(block=False)

    def _let_in(self, connection, address, stack):
        """Do the TLS handshake and the login. May switch greenlets.

        Returns a function that serves the peer; None if the peer was refused.
        """
        peer = format_address(address)
        try:
            with gevent.Timeout(LOGIN_S, LinkError(f"it has not logged in within {LOGIN_S:g} s")):
                if self._tls is not None:
                    connection = stack.enter_context(contextlib.closing(self._tls(connection)))
                return self._log_in(connection, peer)
        except FollowerRefused as error:
            self._strangers.warning(
                ("refused", host_of(address), error.text), "follower at %s refused: %s", peer, error.text)
        except EXPECTED + (LoginRefused,) as error:
            self._strangers.warning(
                ("login", host_of(address)), "follower at %s refused: %s", peer, text_of(error))
        return None

    def _run(self, link):
        self._replace_older(link)
        self._links.append(link)
        if link.epoch != self.epoch:
            link.end(LinkClosed("another epoch has begun meanwhile: log in again"))
        LOG.info("%s is connected", link)
        try:
            link.run(self._root, self._register, self._turn, self._found_damage)
            LOG.info("%s has left", link)
        except LinkClosed:
            LOG.info("%s is closed", link)
        except EXPECTED as error:
            if isinstance(error, FollowerLeaves):
                self._leavers.add(link.node)
            LOG.warning("%s is disconnected: %s", link, text_of(error))
        except Exception as error:
            LOG.error("%s is disconnected by a fault", link, exc_info=error)
        finally:
            self._links.remove(link)
            self._streaming.discard(link)
            self._note_place(link)

    def _log_in(self, connection, peer):
        reader = frames.FrameReader(frames.LOGIN_MAX_PAYLOAD, decompresses=False)
        entry = None

        def can_resume(run, position):
            nonlocal entry
            entry = self._stream.entry_at(run, position)
            return entry is not None

        epoch, acknowledger = self.epoch, self._acknowledger
        login = LeaderLogin(
            self._secret, self.cluster_id, epoch, self._stream.run, can_resume,
            counts_received=acknowledger is not None and acknowledger.counts_received)
        while not login.done:
            frame = _next_frame(connection, reader)
            try:
                answer = login.feed(frame)
                if login.done:
                    self._check(login)
                connection.sendall(answer)
            except LoginRefused as error:
                connection.sendall(error.answer)
                raise
        if isinstance(login.hello, messages.Forward):
            if reader.buffered:
                raise LinkError("bytes came before the end of the login")
            return partial(self._adoption.adopt, login.hello, connection, self._tls is not None)
        reader.limit = frames.MAX_PAYLOAD
        link = FollowerLink(
            connection, peer, login.hello, reader, self._stream, None if login.is_sync else entry, epoch,
            self._heard)
        return partial(self._run, link)

    def _check(self, login):
        """Raise FollowerRefused for a peer that has logged in, but cannot be served. May switch greenlets."""
        text = ""
        if isinstance(login.hello, messages.Forward):
            text = self._adoption.why_not(login.hello)
        elif login.hello.node_id.hex() == self._successor:
            text = TO_LEAD
        elif any(other.is_alive for other in self._links if other.hello.node_id == login.hello.node_id):
            text = COPIED
        elif login.is_sync or login.is_successor:  # one that goes on would repeat what the boot did to damage
            text = self.why_no_sync()
        if text:
            refused = messages.Refused(text).encode()
            raise FollowerRefused(text, frames.encode(frames.REFUSED, refused, self.epoch))

    def _heard(self, link):
        # During a sync its folder has nothing of this run yet.
        self._has_heard.set()
        if link.is_streaming and link not in self._streaming:
            self._streaming.add(link)
            self.on_streaming()
        if self._acknowledger is not None and link.is_streaming:
            self._acknowledger.acknowledged(link.node, self._counted(link))

    def _counted(self, link):
        received = self._acknowledger is not None and self._acknowledger.counts_received
        return link.acked.received if received else link.acked.flushed

    def _note_place(self, link):
        if link.place is not None:
            self._places[link.node] = link.place.end, link.place.made

    def _replace_older(self, link):
        # It has not noticed yet that it is dead.
        for other in self._links:
            if other.hello.node_id == link.hello.node_id:
                other.end(LinkError("the same node has connected again"))


def _next_frame(connection, reader):
    while (frame := reader.next()) is None:
        octets = connection.recv(RECEIVE_OCTETS)
        if not octets:
            raise LinkError("it has left during the login")
        reader.feed(octets)
    return frame
