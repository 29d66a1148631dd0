"""An estate as years of operating leave it in a RabbitMQ: built through its own API and a real client, to be
moved over to another broker.

Everything in it is made up. `build` fills an empty node that has PLUGINS;
PASSWORDS are what its users log in with.
"""
import datetime
import decimal
from urllib.parse import quote

import pika
import requests

from gomq_py.auth import passwords
from tests.support.waiting import in_time

PLUGINS = (
    "rabbitmq_consistent_hash_exchange", "rabbitmq_random_exchange", "rabbitmq_recent_history_exchange",
    "rabbitmq_shovel", "rabbitmq_federation",
)
TIMEOUT_S = in_time(30)

VHOSTS = {"shop": {"description": "the shop", "tags": "production,eu"}, "a/b": {}, "ü ber": {"tracing": True}}
# name: (password or None, algorithm or None for RabbitMQ's own, tags)
USERS = {
    "ann": ("ann's old password", None, "administrator"),
    "bob": ("pässwörd", passwords.SHA512, "management,policymaker"),
    "old": ("from 2009", passwords.MD5, "monitoring,legacy-team"),
    "shop app": ("s p a c e", passwords.SHA256, ""),
    "by-certificate": (None, None, "impersonator"),
}
PASSWORDS = {name: password for name, (password, _, _) in USERS.items() if password is not None}

PERMISSIONS = {
    ("shop", "ann"): (".*", ".*", ".*"), ("a/b", "ann"): (".*", ".*", ".*"),
    ("shop", "bob"): ("^bob\\.", "^(bob|amq)\\.", ".*"),
    ("shop", "shop app"): ("", "^orders$", "^orders\\."), ("ü ber", "old"): (".*", "", ".*"),
}
POLICIES = {
    ("shop", "ha"): {"pattern": "^orders", "apply-to": "queues", "priority": 3, "definition": {
        "ha-mode": "exactly", "ha-params": 2, "ha-sync-mode": "automatic", "message-ttl": 60000}},
    ("shop", "lazy"): {
        "pattern": "^lazy", "apply-to": "queues",
        "definition": {"queue-mode": "lazy", "max-length": 9, "overflow": "reject-publish"},
    },
    ("shop", "unrouted"): {
        "pattern": "^x\\.", "apply-to": "exchanges", "definition": {"alternate-exchange": "x.fanout"}
    },
    ("a/b", "quorum"): {
        "pattern": "",
        "definition": {"delivery-limit": 7, "dead-letter-exchange": "", "dead-letter-routing-key": "dead"},
    },
    ("shop", "fed"): {"pattern": "^fed", "apply-to": "all", "definition": {"federation-upstream-set": "all"}},
}
OPERATOR_POLICIES = {
    ("shop", "cap"): {
        "pattern": ".*", "apply-to": "queues", "priority": 1,
        "definition": {"max-length": 100000, "expires": 86400000},
    },
}
EXCHANGES = {
    "x.direct": ("direct", {}), "x.fanout": ("fanout", {}),
    "x.topic": ("topic", {"alternate-exchange": "x.fanout"}), "x.headers": ("headers", {}),
    "x.hash": ("x-consistent-hash", {"hash-header": "customer"}), "x.random": ("x-random", {}),
    "x.history": ("x-recent-history", {}),
}
QUEUES = {
    "orders": {},
    "orders.eu": {
        "x-message-ttl": 30000, "x-max-length": 1000, "x-max-length-bytes": 10_000_000,
        "x-overflow": "reject-publish-dlx", "x-dead-letter-exchange": "x.fanout",
        "x-dead-letter-routing-key": "dead", "x-max-priority": 10,
    },
    "orders.quorum": {
        "x-queue-type": "quorum", "x-quorum-initial-group-size": 3, "x-delivery-limit": 5,
        "x-single-active-consumer": True,
    },
    "orders.stream": {
        "x-queue-type": "stream", "x-max-age": "7D", "x-stream-max-segment-size-bytes": 1_000_000
    },
    "lazy": {"x-queue-mode": "lazy"}, "expiring": {"x-expires": 600_000},
}
# What only a client can set; JSON has no octets, decimals or times.
# pika has no floats: those are in a binding.
ARGUMENTS = {
    "x-text": "ü", "x-octets": b"\xff\x00", "x-true": True, "x-small": 1, "x-large": 2**40, "x-negative": -5,
    "x-decimal": decimal.Decimal("1.25"), "x-time": datetime.datetime(2020, 2, 29, 12), "x-nothing": None,
    "x-list": [1, "two", {"three": 3}],
    "x-table": {"inner": {"deep": [True]}},
}
BINDINGS = (
    ("x.direct", "queue", "orders", "new", {}), ("x.topic", "queue", "orders.eu", "*.eu.#", {}),
    ("x.topic", "exchange", "x.fanout", "#", {}),
    ("x.fanout", "exchange", "x.headers", "", {}),
    ("x.headers", "queue", "orders", "", {"x-match": "any", "kind": "a", "n": 1, "f": 1.5, "b": True}),
    ("x.headers", "queue", "orders", "", {"x-match": "all", "kind": "b"}),
    ("x.hash", "queue", "orders", "10", {}),
    ("x.hash", "queue", "orders.eu", "20", {}), ("x.random", "queue", "orders", "", {}),
    ("amq.topic", "queue", "orders.quorum", "#", {}),
)


class Management:
    """RabbitMQ's management API, as its administrator."""

    def __init__(self, url, user="guest", password="guest"):
        self._url = url
        self._session = requests.Session()
        self._session.auth = (user, password)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._session.close()

    def call(self, verb, *path, **body):
        """The JSON of the answer, None when it has none; an error's status is an exception."""
        url = "/".join([self._url, "api", *(quote(part, safe="") for part in path)])
        answer = self._session.request(
            verb, url, json=body or ({} if verb in ("PUT", "POST") else None), timeout=TIMEOUT_S
        )
        assert answer.ok, f"{verb} {url}: {answer.status_code} {answer.text}"
        return answer.json() if answer.content else None


def build(url, amqp_url):
    """Make everything; `url` is the management API, `amqp_url` ends at the host and port."""
    with Management(url) as api:
        _build_access(api)
        for (vhost, name), body in POLICIES.items():
            api.call("PUT", "policies", vhost, name, **body)
        for (vhost, name), body in OPERATOR_POLICIES.items():
            api.call("PUT", "operator-policies", vhost, name, **body)
        api.call("PUT", "vhost-limits", "shop", "max-queues", value=5000)
        api.call("PUT", "vhost-limits", "shop", "max-connections", value=-1)
        api.call("PUT", "parameters", "shovel", "shop", "mover", value={
            "src-protocol": "amqp091", "src-uri": "amqp://", "src-queue": "orders",
            "dest-protocol": "amqp091", "dest-uri": "amqp://127.0.0.1:1", "dest-queue": "there"})
        api.call(
            "PUT", "parameters", "federation-upstream", "shop", "other",
            value={"uri": "amqp://127.0.0.1:1", "expires": 3600000},
        )
        api.call("PUT", "global-parameters", "mqtt_port_to_vhost_mapping", value={"1883": "shop"})
        _build_topology(api)
    _build_by_client(amqp_url)


def _build_access(api):
    for name, body in VHOSTS.items():
        api.call("PUT", "vhosts", name, **body)
    for name, (password, algorithm, tags) in USERS.items():
        if password is None:
            api.call("PUT", "users", name, password_hash="", tags=tags)
        elif algorithm is None:
            api.call("PUT", "users", name, password=password, tags=tags)
        else:
            api.call(
                "PUT", "users", name, tags=tags, hashing_algorithm=algorithm,
                password_hash=passwords.hash_password(password, algorithm),
            )
    for (vhost, user), (configure, write, read) in PERMISSIONS.items():
        api.call("PUT", "permissions", vhost, user, configure=configure, write=write, read=read)
    api.call("PUT", "topic-permissions", "shop", "bob", exchange="x.topic", write="^eu\\.", read=".*")
    api.call("PUT", "user-limits", "shop app", "max-connections", value=50)


def _build_topology(api):
    for name, (kind, arguments) in EXCHANGES.items():
        api.call("PUT", "exchanges", "shop", name, type=kind, durable=True, arguments=arguments)
    api.call("PUT", "exchanges", "shop", "inside", type="direct", durable=True, internal=True)
    api.call("PUT", "exchanges", "a/b", "x", type="topic", durable=True, auto_delete=False)
    for name, arguments in QUEUES.items():
        api.call("PUT", "queues", "shop", name, durable=True, arguments=arguments)
    api.call("PUT", "queues", "a/b", "dead", durable=True)
    api.call("PUT", "queues", "ü ber", "Größe / 100%", durable=True)
    for source, kind, destination, key, arguments in BINDINGS:
        api.call(
            "POST", "bindings", "shop", "e", source, kind[0], destination, routing_key=key,
            arguments=arguments,
        )


def _build_by_client(amqp_url):
    connection = pika.BlockingConnection(pika.URLParameters(amqp_url.rstrip("/") + "/a%2Fb"))
    channel = connection.channel()
    channel.queue_declare("typed", durable=True, arguments=ARGUMENTS)
    channel.exchange_declare("typed", "headers", durable=True, arguments=ARGUMENTS)
    channel.queue_bind("typed", "typed", "", {**ARGUMENTS, "x-match": "all"})
    connection.close()
