"""Sessions: begins, resumes, moves (to a new connection) and ends a vhost's sessions, by client id.

Subscriptions go to the vhost's MQTT exchange. Never switches greenlets. A durable change is in the log when a
function returns, and on disk when ``durability.when_safe`` calls back.
"""
from functools import lru_cache
from typing import Any, NamedTuple

from gomq_py.broker.features.arguments import QUEUE_TYPE
from gomq_py.broker.features.expiry import EXPIRES
from gomq_py.broker.names import NAME_OCTETS_MAX, described
from gomq_py.broker.values import MAX_TIMER_MS
from gomq_py.errors import OutOfResources, PreconditionFailed, ResourceLocked
from gomq_py.mqtt.model import source
from gomq_py.mqtt.model.exchange import MAX_COSTLY_LEVELS, no_room
from gomq_py.mqtt.model.filter_tree import Arrangements, levels_of
from gomq_py.mqtt.model.moving import Replacing
from gomq_py.mqtt.model.session_kind import PREFIX, QOS2_STORE, TYPE
from gomq_py.mqtt.wire.topics import SEPARATOR, is_shared, shared_fault, split_shared

# Expiry in seconds that means never (MQTT 5 §3.1.2.11.2).
NEVER = 0xFFFFFFFF
# Like exchange.MAX_COSTLY_LEVELS, per user, so that others have room. All arrangements of + in filters of up
# to seven levels are 1538.
MAX_COSTLY_LEVELS_OF_USER = MAX_COSTLY_LEVELS // 8
# Octets of a share name: as many as a filter may have.
SHARE_NAME_MAX = NAME_OCTETS_MAX
# Properties of a session stored as arguments of its queue.
_USER, _OF_TOKEN, _VERSION = "x-mqtt-user", "x-mqtt-user-of-token", "x-mqtt-version"


class Connected(NamedTuple):
    """The result of connect().

        was_there      the session existed before
        is_recorded    definitions were written that may not be on disk; the answer must wait for the disk
    """

    session: Any
    was_there: bool
    is_recorded: bool


class Sessions:
    """The sessions of one vhost.

        by_client        {client id: Session}
        subscriptions    number of all subscriptions
        shared           number of shared subscriptions
        exchange         has the subscriptions as bindings, and gets publishes from the vhost's
                         ``topic_exchange``

    A connection is any object with ``wants_will``, ``taken_over()`` (another connection has its client id)
    and ``session_ended(reason)``. Both methods end the connection without switching greenlets. Before they
    return, the connection has detached its consumer and returned unacknowledged messages. Of the two, only
    ``taken_over()`` may call disconnect().
    """

    def __init__(self, vhost, exchange, retained, wills):
        self.vhost = vhost
        self.exchange = exchange
        self.by_client = {}
        self._qos2_records: Any = None
        self._replacing: Any = None  # the Replacing at work after a failure of the store of qos2_records
        self.retained = retained
        self.wills = wills
        self.subscriptions = self.shared = 0
        self._arrangements = {}  # owner: the Arrangements of its sessions' filters
        self._kept_of = {}  # owner: {client ids of its durable sessions}

    @property
    def qos2_records(self):
        """The QoS2Records, which keeps QoS 2 identifiers. The first access makes it."""
        if self._qos2_records is None:
            self._qos2_records = self._make_qos2_records()
        return self._qos2_records

    def _make_qos2_records(self):
        from gomq_py.mqtt.model.qos2_records import QoS2Records  # most brokers have no sessions

        return QoS2Records(self.vhost)

    def connect(
            self, connection, client_id, user, clean_start, expiry_s, version, kept=None, of_token=False,
            kept_max=0):
        """Begin or resume a session. Returns Connected.

        The caller must attach its consumer to the session's queue, if any, before it switches greenlets.

            expiry_s    how long the session outlives its connection, NEVER: forever
            kept        more arguments for the session's queue
            of_token    the ``user`` (a name) was named by a token
            kept_max    most durable sessions that one user may have, 0: no limit

        Raises NotFound if the queue is closed after a fault, ResourceLocked if a queue of another kind has
        the name, OutOfResources, PreconditionFailed.
        """
        if expiry_s:
            self._check_count(client_id, (user, of_token), kept_max)
        self._take_over(client_id)
        session = self.by_client.get(client_id)
        is_recorded = False
        if session is not None and clean_start:
            is_recorded = session.is_durable
            self.end(session)
            session = None
        was_there = session is not None
        kept = kept or {}
        if session is not None:
            self.vhost.queue(session.queue.name, session.queue.exclusive_owner)  # raises if closed
            is_recorded = self.vhost.redefine_queue(
                session.queue, _arguments((user, of_token), expiry_s, version, kept))
            if session.queue.limits is not None:
                session.queue.limits.used()
        else:
            session = self._new(client_id)
            try:
                if expiry_s:
                    self._create(client_id, _arguments((user, of_token), expiry_s, version, kept))
                else:
                    self._check_free(client_id)
            except BaseException:
                del self.by_client[client_id]
                raise
            is_recorded = is_recorded or session.is_durable
        self._set_owner(session, user, of_token)
        if session.is_durable:
            # Open the store of retained messages first: a kill must not leave an identifier without the store
            # of its message.
            is_recorded = self.retained.open() or is_recorded
            is_recorded = self.qos2_records.open() or is_recorded
        if session.is_durable and not session.is_safe:
            is_recorded = True  # written by an earlier connection that ended before the flush
        session.expiry_s, session.version, session.kept = expiry_s, version, kept
        session.connection = connection
        self.exchange.presence_changed(session)
        self.retained.session_connected(session)
        return Connected(session, was_there, is_recorded)

    def disconnect(self, session, connection, expiry_s=None):
        """End a session's connection, unless a newer connection has the session. A session without expiry
        ends, too. ``expiry_s``: a new expiry, or None. Raises OutOfResources, and keeps the old expiry, if
        the new one cannot be recorded.
        """
        if session.connection is not connection:
            return
        session.connection = session.may_get = session.may_get_all = None
        session.interests.new_connection()  # its remembered topics serve deliveries
        self.exchange.presence_changed(session)
        self._drop_sink(session)
        self.wills.connection_ended(session.client_id, connection.wants_will)
        if expiry_s == 0 or expiry_s is None and session.expiry_s == 0 or session.queue is None:
            self.end(session)
        elif expiry_s is not None:
            self.vhost.redefine_queue(session.queue, _arguments(
                session.owner, expiry_s, session.version, session.kept))
            session.expiry_s = expiry_s

    def end(self, session):
        """End a session, delete its queue and its state, and end its client's connection."""
        if session.queue is None:
            self.ended(session, "the session has ended")
        else:
            self.vhost.delete_queue(session.queue.name, owner=session.queue.exclusive_owner)

    def filter_fault(self, topic_filter, levels_max):
        """Return error text if a client cannot subscribe to a well-formed filter, shared or not; else ""."""
        if is_shared(topic_filter):
            fault = shared_fault(topic_filter)  # a client of 3.x may send a faulty one
            if fault:
                return fault
        share_name, topic_filter = split_shared(topic_filter)
        if len(share_name) > SHARE_NAME_MAX // 4 and len(share_name.encode()) > SHARE_NAME_MAX:
            return f"a share name has more than {SHARE_NAME_MAX} bytes"
        if topic_filter.count(SEPARATOR) >= levels_max:
            return f"a topic filter has more than {levels_max} levels"
        if len(topic_filter) > NAME_OCTETS_MAX // 4 and len(topic_filter.encode()) > NAME_OCTETS_MAX:
            return f"a topic filter has more than {NAME_OCTETS_MAX} bytes, as no topic here has"
        return self.exchange.filter_fault(topic_filter)

    # the exchange that clients publish to

    @property
    def source_name(self):
        """Name of the exchange that clients publish to, for checks of rights. The exchange may be missing."""
        return self.vhost.topic_exchange

    def source(self):
        """Return the exchange that clients publish to. Raises NotFound if it is missing or unsuitable."""
        return source.find(self.vhost)

    def take_from(self, name):
        """Let clients publish to the exchange ``name`` from now on. The exchange need not exist yet."""
        vhost = self.vhost
        before = vhost.exchanges.get(vhost.topic_exchange)
        if before is not None and before.onward is self.exchange:
            vhost.set_onward(before, None)
        vhost.topic_exchange = name
        if name in vhost.exchanges:
            self.exchange_added(vhost.exchanges[name])

    def exchange_added(self, exchange):
        """Forward a new exchange's messages to the MQTT exchange, if clients publish to the new exchange."""
        if exchange.name != self.vhost.topic_exchange or source.fault_of(exchange):
            return
        self.vhost.set_onward(exchange, self.exchange)
        for session in self.by_client.values():
            if session.may_get is not None:  # rights on another exchange count now
                session.interests.rights_changed()

    def check_room(self, session, topic_filter):
        """Raise OutOfResources if a filter's ``+`` would make matching too costly for the user or vhost."""
        topic_filter = split_shared(topic_filter)[1]
        arrangements = self._arrangements.get(session.owner)
        if arrangements is not None and not arrangements.has_room(
            levels_of(topic_filter), MAX_COSTLY_LEVELS_OF_USER
        ):
            raise OutOfResources(
                no_room(f"the sessions of user '{session.user}'", MAX_COSTLY_LEVELS_OF_USER))
        fault = self.exchange.room_fault(topic_filter)
        if fault:
            raise OutOfResources(fault)

    # for sessions and their queues

    def arranged(self, session, topic_filter, change):
        """Count a topic filter that a session has added (``change`` 1) or removed (-1)."""
        self.subscriptions += change
        if is_shared(topic_filter):
            self.shared += change
        if "+" not in topic_filter:
            return
        arrangements = self._arrangements.setdefault(session.owner, Arrangements())
        arrangements.count(levels_of(split_shared(topic_filter)[1]), change)
        if arrangements.is_empty():
            del self._arrangements[session.owner]

    def make_queue(self, session):
        """Make the queue of a session that ends with its connection."""
        arguments = _arguments(session.owner, NEVER, session.version, session.kept)  # ends with its owner
        self._create(session.client_id, arguments, session.connection)

    def queue_added(self, queue):
        """Attach a new, recovered or reopened queue to its Session, which is created if missing."""
        client_id = queue.name.removeprefix(PREFIX)
        session = self.by_client.get(client_id)
        if session is None:
            session = self._new(client_id)
            session.user, session.of_token, session.version, session.expiry_s = _kept(queue.arguments)
            session.queue_added(queue)
            self._count(session)
        else:
            session.queue_added(queue)

    def queue_failed(self, session):
        """Replace the SharedSubscriptions of a session whose queue failed, and drop remembered routes."""
        # So that messages published later do not count as lost.
        if self.exchange.queue_failed(session):
            self.vhost.routes_changed(self.exchange)

    def with_identifiers(self):
        """Return a new list of the sessions that may have packet identifiers in use."""
        return [session for session in self.by_client.values() if session.sent or session.received]

    def qos2_records_failed(self, records):
        """Replace a QoS2Records whose store has failed."""
        if records is not self._qos2_records:  # already replaced
            return
        if self._replacing is None:
            self._replacing = Replacing(self)
        self._replacing.begin()

    def renew_qos2_records(self):
        """Make new ``qos2_records`` with a new store. Raises OutOfResources. Returns the list of
        with_identifiers().
        """
        self.vhost.stores.replace(QOS2_STORE)
        before, self._qos2_records = self._qos2_records, self._make_qos2_records()
        self._qos2_records.is_stuck = True
        self._qos2_records.open()
        if before.doubts:
            self._qos2_records.doubt()
        return self.with_identifiers()

    def _set_owner(self, session, user, of_token):
        if session.user != user or session.of_token != of_token:
            self._uncount(session)
            for topic_filter in session.subscriptions:
                self.arranged(session, topic_filter, -1)
            session.user, session.of_token = user, of_token
            for topic_filter in session.subscriptions:
                self.arranged(session, topic_filter, 1)
            self._count(session)

    def _check_count(self, client_id, owner, most):
        """Raise PreconditionFailed if this client id's session would exceed the owner's limit."""
        kept = self._kept_of.get(owner, ())
        if most and len(kept) >= most and client_id not in kept:
            raise PreconditionFailed(
                f"user '{owner[0]}' has {len(kept)} MQTT sessions in vhost '{self.vhost.name}' that are kept "
                f"without a connection, of {most} it may have (mqtt max_sessions_per_user): delete some, or "
                "let clients ask for a clean session or a shorter expiry")

    def _count(self, session):
        if session.is_durable:
            self._kept_of.setdefault(session.owner, set()).add(session.client_id)

    def _uncount(self, session):
        kept = self._kept_of.get(session.owner)
        if kept is not None:
            kept.discard(session.client_id)
            if not kept:
                del self._kept_of[session.owner]

    def _take_over(self, client_id):
        session = self.by_client.get(client_id)
        if session is not None and session.connection is not None:
            connection = session.connection
            connection.taken_over()
            self.disconnect(session, connection)

    def _new(self, client_id):
        session = self.by_client[client_id] = _session_class()(self, client_id)
        return session

    def _create(self, client_id, arguments, owner=None):
        self._check_free(client_id)
        self.vhost.create_queue(PREFIX + client_id, owner is None, False, arguments, owner)

    def _check_free(self, client_id):
        name = PREFIX + client_id
        if name in self.vhost.queues:
            raise ResourceLocked(
                f"{described('queue', name, self.vhost.name)} is no MQTT session: delete it, or let the "
                "client have another id")

    def _drop_sink(self, session):
        sink, session.sink = session.sink, None
        if sink is not None:
            self.vhost.bindings.remove_to(sink)

    def ended(self, session, reason):
        """Remove a session whose queue was deleted or never existed, and end its client's connection."""
        if self.by_client.get(session.client_id) is session:
            del self.by_client[session.client_id]
            self._uncount(session)
        session.ended()
        self.retained.session_ended(session)
        session.queue = None
        self._drop_sink(session)
        connection, session.connection = session.connection, None
        if connection is not None:
            self.wills.connection_ended(session.client_id, connection.wants_will)
        self.wills.session_ended(session.client_id)
        if connection is not None:
            connection.session_ended(reason)


@lru_cache(1)
def _session_class():
    from gomq_py.mqtt.model.session import Session  # most brokers have none

    return Session


def _arguments(owner, expiry_s, version, kept):
    user, of_token = owner
    arguments = {QUEUE_TYPE: TYPE, _USER: user, _VERSION: version, **kept}
    if of_token:
        arguments[_OF_TOKEN] = True
    if expiry_s != NEVER:
        # A session that ends with its connection expires at once after a crash; no timer runs longer than
        # MAX_TIMER_MS.
        arguments[EXPIRES] = min(max(1, expiry_s * 1000), MAX_TIMER_MS)
    return arguments


def _kept(arguments):
    """Return (user, True if the user logged in by a token, protocol version, expiry in seconds) from a
    queue's arguments; missing ones have defaults.
    """
    expires_ms, user, version = arguments.get(EXPIRES), arguments.get(_USER), arguments.get(_VERSION)
    expiry_s = expires_ms // 1000 if type(expires_ms) is int else NEVER
    return (
        user if isinstance(user, str) else "", arguments.get(_OF_TOKEN) is True,
        version if type(version) is int else 4, expiry_s)
