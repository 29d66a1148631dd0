"""Wills: keeps clients' wills, messages to publish when a client is lost (MQTT 5 §3.1.2.5, §3.1.3.2.2).

A keyed_store has the wills on disk; sessions report ends of connections and sessions; mqtt.server.will
publishes. After a connection's end its will is published when the will's delay is over or the session ends,
whichever comes first. A will is not published if DISCONNECT forbids it, or if the client has resumed the
session. At a restart connected clients count as lost, unless they reconnect in time. Never switches
greenlets.

Right before a will is published, its next positions in the destinations' logs are recorded, as in
qos2_records. If the broker is killed before all have it, the next run publishes it to those that lack it.
"""
from functools import partial
from typing import NamedTuple

from gomq_py.content.properties import Properties
from gomq_py.errors import Malformed
from gomq_py.mqtt.model.expiries import Expiries
from gomq_py.mqtt.model.qos2_recovery import held_in, keys_in, stores_of
from gomq_py.mqtt.model.key_index import successor
from gomq_py.mqtt.model.keyed_store import TOMBSTONE, KeyedStore
from gomq_py.mqtt.model.session_kind import EXTRA
from gomq_py.observability.log import logger
from gomq_py.storage.disk.data_dir import KILLED, POWER_LOST, STOPPED
from gomq_py.storage.message import Message

LOG = logger("mqtt")

STORE = "mqtt.wills"
# Delay before a will is tried again after a full disk or a missing exchange: first and longest.
TRY_AGAIN_MS, LATER_MS = 1000, 60_000
# Wills published before other work gets its turn.
AT_ONCE = 50

# State of a will: client connected; due later; published, which a power cut may undo; being published.
CONNECTED, WAITING, PUBLISHED, BEGUN = 0, 1, 2, 3
# Event of a client while the store was closed: will forbidden; connection lost; session ended, too.
FORGOTTEN, LOST, OVER = 1, 2, 3
_CLIENT, _USER, _TOPIC, _QOS, _RETAIN, _DELAY, _BLOCK, _EXPIRY, _STATE = (
    "client", "user", "topic", "qos", "retain", "delay", "properties", "expiry", "state"
)
_OF_TOKEN, _PLACES = "of-token", "places"  # records of earlier releases lack these


class Will(NamedTuple):
    """A client's will.

        block         the properties, encoded as in a PUBLISH, without their length
        expiry_s      lifetime of the message, -1: unlimited
        state         CONNECTED, WAITING, BEGUN (being published) or PUBLISHED
        due_ms        Unix milliseconds at which a WAITING will is due
        of_token      the user logged in by a token; a later run does not know the user's rights
        places        encoded positions, in the destinations' logs, at which the message is or will be stored
        came_ms       Unix milliseconds at which the message was stored, 0 if unknown
    """

    client_id: str
    user: str
    topic: str
    payload: bytes
    qos: int = 0
    retain: bool = False
    delay_s: int = 0
    block: bytes = b""
    expiry_s: int = -1
    state: int = CONNECTED
    due_ms: int = 0
    of_token: bool = False
    places: bytes = b""
    came_ms: int = 0


class Wills:
    """Keeps the wills of one vhost. start() gets the function ``publish(will, user, begin)``. ``publish``
    returns True once the will needs no further attempt; ``user`` is None after a restart. ``publish`` calls
    ``begin(destinations, message)``, which returns the destinations that lack the message.
    """

    def __init__(self, vhost):
        self.vhost = vhost
        self.kept = KeyedStore(vhost, STORE, _client_of, _tombstone)
        self.kept.when_open = self._catch_up
        self._publish = None
        self._users = {}  # client id: the User, of wills of this run
        self._names = {}  # client id: the user's name, for wills of an earlier run without a token
        self._pauses_ms = {}  # client id: delay before the next attempt
        self._missed = {}  # client id: its event while the store was closed
        # the store could not be opened at boot: wills of an earlier run are not loaded
        self._is_unread = False
        self._deleted = set()  # names of users that were deleted meanwhile
        self._grace_ms = 0
        self._unnoted = set()  # client ids of published wills that could not be marked so for lack of room
        # (client id, time due) of wills of an earlier run, until there is a door
        self._recovered = []
        self._due = Expiries(lambda: vhost.timers, self._some_due)

    @property
    def count(self):
        """Number of wills that may still be published."""
        return self.kept.index.count

    @property
    def is_started(self):
        """True if wills are being published, so that start() need not be called."""
        return self._publish is not None and not self._recovered

    def start(self, publish, grace_ms):
        """Start publishing wills. Clients connected when the broker ended have ``grace_ms`` to come back."""
        self._grace_ms = grace_ms
        self._await_recovered()
        self._publish = publish
        self._due.arm()

    def _await_recovered(self):
        recovered, self._recovered = self._recovered, []
        earliest_ms = self.vhost.timers.now_ms() + self._grace_ms
        for client_id, due_ms in recovered:
            if self.kept.index.get(client_id) is not None:
                self._due.note(client_id, max(due_ms, earliest_ms))

    # events of a client

    def begin(self, client_id, user, will=None):
        """Keep the Will (or None) of a User who has connected, in place of an earlier will. Returns False if
        the will cannot be stored. A stored will is on disk after the next flush.
        """
        kept = self.kept
        if will is not None or kept.index.count or kept.closed or self._missed:
            self._forget(client_id)
        if will is None:
            return True
        self._users[client_id] = user
        return self._put(will)

    def connection_ended(self, client_id, wants_will):
        """Publish or delay a client's will if ``wants_will``; otherwise forget it. ``wants_will``: False if a
        DISCONNECT forbade the will.
        """
        if self.kept.closed:
            if wants_will:
                self._miss(client_id, LOST)
            else:
                self._forget(client_id)
            return
        will = self._unpublished(client_id)
        if will is None:
            return
        if not wants_will:
            self._forget(client_id)
        elif will.delay_s or self._publish is None:
            due_ms = self.vhost.timers.now_ms() + will.delay_s * 1000
            self._put(will._replace(state=WAITING, due_ms=due_ms))
            self._wait(client_id, due_ms)
        else:
            self._publish_now(will)

    def session_ended(self, client_id):
        """Publish the will of an ended session, if the will waits for its delay."""
        if self.kept.closed:
            self._miss(client_id, OVER)
            return
        will = self._unpublished(client_id)
        if will is not None and will.state == WAITING and self._publish is not None:
            self._publish_now(will)

    def user_deleted(self, user):
        # After a restart another user may have the name.
        gone = [client_id for client_id, left_by in self._users.items() if left_by is user]
        gone += [client_id for client_id, name in self._names.items() if name == user.name]
        if self._is_unread:
            self._deleted.add(user.name)
        for client_id in gone:
            self._forget(client_id)

    def recovered(self, store):
        """Load the wills of an earlier run. ``store``: None if it could not be opened; it is loaded later."""
        kept = self.kept
        kept.recovered(store)
        self._is_unread = store is None
        if store is None:
            return
        stores = stores_of(self.vhost)
        for client_id in self._client_ids():
            self._recover(client_id, self._get(client_id), store.pool.last_end, stores)

    def _client_ids(self):
        place = ""
        while page := self.kept.index.page(place):
            for client_id, _ in page:
                yield client_id
                place = successor(client_id)

    def _recover(self, client_id, will, last_end, stores):
        if will is not None and will.state in (BEGUN, PUBLISHED):
            will = self._left_of(will, last_end, stores)
        if will is None or will.user in self._deleted and not will.of_token:
            self.kept.delete(client_id)
        else:
            self._recovered.append((client_id, self._due_after_restart(will)))
            if not will.of_token:
                self._names[client_id] = will.user

    def _left_of(self, will, last_end, stores):
        if will.state == PUBLISHED and last_end in (STOPPED, KILLED):
            return None
        held = held_in(stores, will.places, will.came_ms)
        if held == will.places and (held or last_end != POWER_LOST):
            return None
        will = will._replace(state=WAITING, due_ms=self._due_after_restart(will), places=held, came_ms=0)
        self._put(will)  # a later boot may not find messages acked by then
        return will

    def _catch_up(self, store):
        """A generator that applies client events missed while the store was closed, one will per step."""
        stores = stores_of(self.vhost) if self._is_unread else None
        for client_id in self._client_ids():
            if self.kept.closed:  # closed again
                return
            will, missed = self._get(client_id), self._missed.pop(client_id, 0)
            if will is not None:
                self._catch_up_with(client_id, will, missed, store.pool.last_end, stores)
            yield
        self._missed.clear()
        self._deleted.clear()
        self._is_unread = False
        if self._publish is not None:
            self._await_recovered()
            self._due.arm()

    def _catch_up_with(self, client_id, will, missed, last_end, stores):
        if missed == FORGOTTEN:
            self._forget(client_id)
        elif client_id in self._unnoted:
            pass  # deleted once its message is safe
        elif self._is_unread and client_id not in self._users:
            self._recover(client_id, will, last_end, stores)
        elif will.state == PUBLISHED:
            pass  # likewise
        elif missed:
            self.connection_ended(client_id, True)
            if missed == OVER:
                self.session_ended(client_id)
        elif will.state == WAITING:
            self._wait(client_id, will.due_ms)

    def _miss(self, client_id, what):
        may_have_one = self._is_unread or self.kept.index.get(client_id) is not None
        # no will can be left before the store is open
        if may_have_one and self._missed.get(client_id) != FORGOTTEN:
            self._missed[client_id] = what

    def _due_after_restart(self, will):
        if will.state in (WAITING, BEGUN):
            return will.due_ms
        return self.vhost.timers.now_ms() + will.delay_s * 1000

    # publishing

    def _publish_now(self, will):
        client_id, begun = will.client_id, []
        begin = partial(self._begin, will, begun)
        self._due.forget(client_id)
        try:
            is_done = self._publish(will, self._users.get(client_id), begin)
        except Exception:  # the error costs this will only, not the next ones or the end of its session
            LOG.exception("a fault of the broker: the will of client %r is not published", client_id[:256])
            is_done = True
        now_ms = self.vhost.timers.now_ms()
        if not is_done:
            if begun or will.state != WAITING:
                self._put(will._replace(state=WAITING, due_ms=will.due_ms or now_ms))
            pause_ms = self._pauses_ms.get(client_id, TRY_AGAIN_MS)
            self._pauses_ms[client_id] = min(2 * pause_ms, LATER_MS)
            self._wait(client_id, now_ms + pause_ms)
            return
        # Mark it as published, unless its files have no names: a kill would lose the message. A power cut may
        # undo both. Without room for the mark, a boot after a kill checks its places or publishes it again.
        destinations, noted = begun or ((), will)
        outlives = all(destination.outlives_kill() for destination in destinations)
        if not outlives or not self._put(noted._replace(state=PUBLISHED)):
            self._unnoted.add(client_id)
        self._users.pop(client_id, None)
        self._names.pop(client_id, None)
        self._pauses_ms.pop(client_id, None)
        self.vhost.when_safe(lambda error: self._published(client_id, error), hurry=False)

    def _begin(self, will, begun, destinations, message):
        """Record the positions that the will's message will get in the logs of ``destinations``. Returns the
        destinations that lack the message. Appends these and the recorded will to the list ``begun``.
        """
        records = self.vhost.extras[EXTRA].qos2_records
        had = keys_in(will.places)
        lacking = [each for each in destinations if not each.is_one_of(had)]
        message.at_once = True  # its record outlives a kill, and so must the message
        noted = will._replace(
            state=BEGUN, places=will.places + records.places(tuple(lacking), message),
            came_ms=0 if had else message.describe()["timestamp_ms"])
        if noted.places != will.places:
            self._put(noted)
        begun += lacking, noted
        return lacking

    def _published(self, client_id, error):
        """Delete a published will, because its message is on disk. Keeps the will after an ``error``."""
        if error is None and self.kept.closed and client_id not in self._users:
            self._miss(client_id, FORGOTTEN)
        will = self._get(client_id) if error is None else None
        if will is not None and (will.state == PUBLISHED or client_id in self._unnoted):
            self._unnoted.discard(client_id)
            self.kept.delete(client_id)

    def _some_due(self):
        if self.kept.closed:  # _catch_up() handles the wills
            return
        for _ in range(AT_ONCE):
            client_id = self._due.take()
            if client_id is None:
                break
            will = self._unpublished(client_id)
            if will is not None:
                self._publish_now(will)
        self._due.arm()

    def _wait(self, client_id, due_ms):
        self._due.forget(client_id)
        self._due.note(client_id, due_ms)
        if self._publish is not None:
            self._due.arm()

    # the store

    def _get(self, client_id):
        if self.vhost.is_gone:  # the vhost's wills are gone, too
            return None
        message = Message()
        return _will_of(message) if self.kept.get(client_id, message) else None

    def _unpublished(self, client_id):
        """Return the kept will of a client; None if there is none, or it was published."""
        if not self.kept.index.count or client_id in self._unnoted:
            return None
        return self._get(client_id)

    def _put(self, will):
        message = _message_of(will)
        message.at_once = True  # otherwise a kill would lose the record, but not its effects
        return self.kept.put(will.client_id, message) == 1

    def _forget(self, client_id):
        if self.kept.closed:
            self._miss(client_id, FORGOTTEN)
        else:
            self._missed.pop(client_id, None)
        self._due.forget(client_id)
        self._users.pop(client_id, None)
        self._names.pop(client_id, None)
        self._pauses_ms.pop(client_id, None)
        self._unnoted.discard(client_id)
        self.kept.delete(client_id)

    def close(self):
        self._due.stop()
        self.kept.close()


def _message_of(will):
    headers = {
        _CLIENT: will.client_id, _USER: will.user, _TOPIC: will.topic, _QOS: will.qos, _RETAIN: will.retain,
        _DELAY: will.delay_s, _BLOCK: will.block, _EXPIRY: will.expiry_s,
        _STATE: will.state, _OF_TOKEN: will.of_token, _PLACES: will.places,
    }
    message = Message()
    message.assign(
        b"", _routing_key(will.client_id), Properties(headers=headers).encode(), will.payload,
        will.came_ms, will.due_ms, persistent=True)
    return message


def _routing_key(client_id):
    # For people who inspect the record.
    return client_id.encode()[:255]


def _tombstone(client_id):
    message = Message()
    message.assign(
        b"", _routing_key(client_id), Properties(headers={_CLIENT: client_id}).encode(), b"", 1,
        persistent=True)
    message.set_kind(1, TOMBSTONE)
    return message


def _headers_of(message):
    try:
        return Properties.decode(message.get_properties()).headers or {}
    except Malformed:
        return {}


def _client_of(message):
    client_id = _headers_of(message).get(_CLIENT)
    return client_id if isinstance(client_id, str) else None


_KINDS = {
    _CLIENT: str, _USER: str, _TOPIC: str, _QOS: int, _RETAIN: bool, _DELAY: int, _BLOCK: bytes,
    _EXPIRY: int, _STATE: int, _OF_TOKEN: bool, _PLACES: bytes,
}


def _will_of(message):
    """Return the Will of a record, or None if the record is not a will."""
    headers = {_OF_TOKEN: False, _PLACES: b"", **_headers_of(message)}
    for key, kind in _KINDS.items():
        if not isinstance(headers.get(key), kind):
            return None
    fields = message.describe()
    return Will(
        headers[_CLIENT], headers[_USER], headers[_TOPIC], message.get_body(), headers[_QOS] & 3,
        headers[_RETAIN], headers[_DELAY], headers[_BLOCK], headers[_EXPIRY], headers[_STATE],
        fields["expires_at_ms"], headers[_OF_TOKEN], headers[_PLACES], fields["timestamp_ms"])
