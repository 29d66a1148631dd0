"""Will: checks a CONNECT's will, and publishes it on behalf of the user who set the will.

mqtt.model.wills keeps wills, and decides when each is published. The user's rights at that moment count.
Never switches greenlets.
"""
from gomq_py.broker.verbs import publishing
from gomq_py.broker.verbs.caller import Caller
from gomq_py.errors import NotFound, Refused
from gomq_py.mqtt.model.session_kind import EXTRA
from gomq_py.mqtt.model.wills import Will
from gomq_py.mqtt.server.flows import TOPIC_MAX
from gomq_py.mqtt.server.publish import MQTTEnvelope, address_of, is_text
from gomq_py.mqtt.server.refusals import UNAVAILABLE_3
from gomq_py.mqtt.wire import reason_codes
from gomq_py.mqtt.wire.constants import MQTT_5, WILL
from gomq_py.mqtt.wire.properties import encode_values
from gomq_py.mqtt.wire.topics import is_broker_topic
from gomq_py.observability.log import logger

LOG = logger("mqtt")

_DELAY, _EXPIRY, _FORMAT = "will_delay_interval", "message_expiry_interval", "payload_format_indicator"


def check(connection, will):
    """Check a CONNECT's will. If the will is invalid, refuse the client and return False."""
    fault = _fault_of(will, connection.server.settings.max_message_size)
    if fault is not None:
        code, text = fault
        connection.refuse(code if connection.version >= MQTT_5 else UNAVAILABLE_3, f"its will has {text}")
    return fault is None


def begin(connection, will):
    """Store a client's will in place of an earlier one. On failure, refuse the client and return False."""
    connection.server.look_after(connection.vhost)
    kept = None if will is None else _kept(connection.client_id, connection.user, will)
    is_kept = connection.sessions.wills.begin(connection.client_id, connection.user, kept)
    if not is_kept:
        code = reason_codes.SERVER_UNAVAILABLE if connection.version >= MQTT_5 else UNAVAILABLE_3
        connection.refuse(code, "its will cannot be kept")
    return is_kept


def _fault_of(will, payload_max):
    """Return (reason code, error text) for a CONNECT's invalid will; None if it is valid."""
    topic = will.topic.encode()
    if len(topic) > TOPIC_MAX:
        return reason_codes.TOPIC_NAME_INVALID, f"a topic of {len(topic)} bytes, {TOPIC_MAX} are accepted"
    if is_broker_topic(topic):
        return reason_codes.TOPIC_NAME_INVALID, "a topic of the broker"
    if len(will.payload) > payload_max:
        text = f"a payload of {len(will.payload)} bytes, {payload_max} are accepted"
        return reason_codes.QUOTA_EXCEEDED, text
    if will.properties.get(_FORMAT) == 1 and not is_text(will.payload):
        return reason_codes.PAYLOAD_FORMAT_INVALID, "a payload that is no UTF-8"
    return None


def _kept(client_id, user, will):
    properties = dict(will.properties)
    delay_s = properties.pop(_DELAY, 0)
    return Will(
        client_id, user.name, will.topic, bytes(will.payload), will.qos, will.retain, delay_s,
        encode_values(properties, WILL), expiry_s=properties.get(_EXPIRY, -1), of_token=user.of_token)


def publish(server, vhost, will, user, begin):
    """Publish a will to the destinations that ``begin(destinations, message)`` returns. Returns False if the
    caller must retry, because the disk has no space or the exchange does not exist; True if the will is
    published or, for example for lack of rights, given up.
    """
    if not will.of_token:
        now = server.broker.users.get(will.user)
        user = now if user in (None, now) else None  # deleted, and another user has its name
    if user is None:
        why = (
            "the will of client %r is not published: what the token of user '%s' allowed is not kept"
            if will.of_token else
            "the will of client %r is not published: there is no user '%s' any more")
        LOG.warning(why, will.client_id[:256], will.user)
        return True
    access = server.access_of(user, vhost, will.client_id)
    caller = Caller(access, vhost, None, f"will of {will.client_id[:256]!r}", 0)
    try:
        exchange, key = address_of(vhost.extras[EXTRA], will.topic.encode())
    except NotFound as error:
        server.strangers.warning(
            vhost.name, "wills of vhost %r wait for their exchange: %s", vhost.name, error.text)
        return False
    now_ms = vhost.timers.now_ms()
    envelope = MQTTEnvelope(
        will.block, key, will.qos, will.retain, None if will.expiry_s < 0 else will.expiry_s)
    try:
        publication = publishing.prepare(
            caller, exchange, key.decode(), lambda _tables: envelope, will.payload, now_ms)
    except Refused as error:
        LOG.warning("the will of client %r is not published: %s", will.client_id[:256], error.text)
        return True
    publication.destinations = begin(publication.destinations, publication.message)
    publishing.store(caller, publication, now_ms)
    vhost.totals.publishes += 1
    return publication.taken or publication.somebody_took or not any(
        destination.unable for destination in publication.destinations)
