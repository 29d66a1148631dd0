"""Sessions: those of one vhost, by client id. They begin, are taken up again, taken over, and end.

Beside the MQTT exchange of the vhost, below the door. Nothing here switches: between looking a session up and
having it lies no other's turn. What is durable is in the log when a function returns, and on the disk when
the door's ``durability.when_safe`` calls back.
"""
from gomq_py.broker.features.arguments import QUEUE_TYPE
from gomq_py.broker.features.expiry import EXPIRES
from gomq_py.broker.names import described
from gomq_py.broker.values import MAX_TIMER_MS
from gomq_py.errors import ResourceLocked
from gomq_py.mqtt.model.session import Session
from gomq_py.mqtt.model.session_queue import PREFIX, TYPE

# Seconds after which a session that is absent never ends (MQTT 5 §3.1.2.11.2).
NEVER = 0xFFFFFFFF
# What is kept of a session besides, as arguments of its queue.
_USER, _VERSION = "x-mqtt-user", "x-mqtt-version"


class Sessions:
    """``by_client``: {client id: Session}, read by everybody. ``exchange`` is that of their subscriptions.

    A connection is any object with two functions that do not switch: ``taken_over()``, somebody else has
    connected with its client id, and ``session_ended(reason)``, somebody deleted its session. Both end it
    without touching the session; before they return it has detached its consumer, and given back what that
    held.
    """

    def __init__(self, vhost, exchange):
        self.vhost = vhost
        self.exchange = exchange
        self.by_client = {}

    def connect(self, connection, client_id, user, clean_start, expiry_s, version):
        """(Session, whether it was there before). ``expiry_s``: how long it is kept without a connection; 0:
        not at all, NEVER: for ever.

        The caller attaches its consumer to the session's queue, if that has one, before it switches. Raises
        NotFound where the queue is closed after a fault, OutOfResources, PreconditionFailed, ResourceLocked
        where a queue of another kind has the name.
        """
        self._take_over(client_id)
        session = self.by_client.get(client_id)
        if session is not None and clean_start:
            self.end(session)
            session = None
        was_there = session is not None
        arguments = _arguments(user, expiry_s, version)
        if session is not None:
            self.vhost.queue(session.queue.name, session.queue.exclusive_owner)  # raises where it is closed
            self.vhost.redefine_queue(session.queue, arguments)
            if session.queue.limits is not None:
                session.queue.limits.used()
        else:
            session = self._begin(client_id, arguments, expiry_s)
        session.user, session.expiry_s, session.version = user, expiry_s, version
        session.connection = connection
        return session, was_there

    def disconnect(self, session, connection, expiry_s=None):
        """Its connection ends: what is not kept goes. ``expiry_s``: another time from here on.

        Nothing where the session has gone to another connection meanwhile. Raises OutOfResources where
        another time cannot be recorded: then the earlier one counts.
        """
        if session.connection is not connection:
            return
        session.connection = None
        self._drop_sink(session)
        if expiry_s == 0 or expiry_s is None and session.expiry_s == 0 or session.queue is None:
            self.end(session)
        elif expiry_s is not None:
            self.vhost.redefine_queue(session.queue, _arguments(session.user, expiry_s, session.version))
            session.expiry_s = expiry_s

    def end(self, session):
        """The session of nobody, or of a connection that hears of it, is gone, with all that was for it."""
        if session.queue is None:
            self._ended(session, "the session has ended")
        else:
            self.vhost.delete_queue(session.queue.name, owner=session.queue.exclusive_owner)

    # for sessions and their queues

    def make_queue(self, session):
        """Keep messages for a session that ends with its connection."""
        self._create(session.client_id, _arguments(session.user, 0, session.version), session.connection)

    def queue_added(self, queue):
        """The queue of a session is in place: of a new one, of an earlier run's, or opened again."""
        client_id = queue.name.removeprefix(PREFIX)
        session = self.by_client.get(client_id)
        if session is None:
            session = self.by_client[client_id] = Session(self, client_id)
            session.user, session.version, session.expiry_s = _kept(queue.arguments)
        queue.session, session.queue = session, queue
        session.is_durable = bool(queue.durable)

    def queue_deleted(self, session, reason):
        """The queue of a session is gone, whoever deleted it, and so is the session."""
        self._ended(session, reason)

    def _take_over(self, client_id):
        session = self.by_client.get(client_id)
        if session is not None and session.connection is not None:
            connection = session.connection
            connection.taken_over()
            self.disconnect(session, connection)

    def _begin(self, client_id, arguments, expiry_s):
        session = self.by_client[client_id] = Session(self, client_id)
        try:
            if expiry_s:
                self._create(client_id, arguments)
            else:
                self._check_free(client_id)
        except BaseException:
            del self.by_client[client_id]
            raise
        return session

    def _create(self, client_id, arguments, owner=None):
        self._check_free(client_id)
        self.vhost.create_queue(PREFIX + client_id, owner is None, False, arguments, owner)

    def _check_free(self, client_id):
        """Refuse a client id whose queue somebody declared before the name was reserved."""
        name = PREFIX + client_id
        if name in self.vhost.queues:
            raise ResourceLocked(
                f"{described('queue', name, self.vhost.name)} is no MQTT session: delete it, or let the "
                "client have another id")

    def _drop_sink(self, session):
        sink, session.sink = session.sink, None
        if sink is not None:
            self.vhost.detach_all(sink)

    def _ended(self, session, reason):
        if self.by_client.get(session.client_id) is session:
            del self.by_client[session.client_id]
        session.queue = None
        self._drop_sink(session)
        connection, session.connection = session.connection, None
        if connection is not None:
            connection.session_ended(reason)


def _arguments(user, expiry_s, version):
    arguments = {QUEUE_TYPE: TYPE, _USER: user, _VERSION: version}
    if expiry_s != NEVER:
        # One that ends with its connection goes at once after a crash; nobody waits longer than a timer does.
        arguments[EXPIRES] = min(max(1, expiry_s * 1000), MAX_TIMER_MS)
    return arguments


def _kept(arguments):
    """(user, version, expiry in seconds) of a session of an earlier run."""
    expires_ms = arguments.get(EXPIRES)
    expiry_s = NEVER if expires_ms is None else expires_ms // 1000
    return arguments.get(_USER, ""), arguments.get(_VERSION, 4), expiry_s
