"""A KeyedStore of a vhost's own, with basic messages whose routing key is the key, for tests of it."""
from gomq_py.broker.topology.kinds import Kinds
from gomq_py.mqtt.model.key_index import successor
from gomq_py.mqtt.model.keyed_store import TOMBSTONE, KeyedStore
from gomq_py.storage.message import Message

STORE = "kept"


def key_of(message):
    """None: a key that begins with "?" is none of ours."""
    key = message.get_routing_key().decode()
    return None if key.startswith("?") else key


def tombstone(key):
    message = made(key, b"")
    message.set_kind(1, TOMBSTONE)
    return message


def made(key, body, **options):
    message = Message()
    message.assign(b"", key.encode(), b"\0\0", body, 1, persistent=True, **options)
    return message


def kept_kinds():
    """Kinds with such a store, which is ``vhost.extras[STORE]``."""
    kinds = Kinds()
    kinds.on_vhost(_vhost_made)
    kinds.add_store(STORE, lambda vhost, store: vhost.extras[STORE].recovered(store))
    return kinds


def _vhost_made(vhost):
    vhost.extras[STORE] = KeyedStore(vhost, STORE, key_of, tombstone)


def content(kept):
    """{key: body} of all that is kept."""
    found, message, place = {}, Message(), ""
    while page := kept.index.page(place):
        for key, location in page:
            assert kept.show(location, message) and message.get_routing_key().decode() == key
            found[key] = message.get_body()
        place = successor(key)
    return found
