"""Every number, and what is none, at every place that takes one, by every door: it is refused or taken, but
nobody else notices, and the broker boots after.

One broker for each door takes all of it before its one restart. After each place a bystander's dead letters,
delays, confirms and lists are checked; the process's log may hold no traceback (BrokerProcess looks at its
end).
"""
import contextlib
import inspect
import itertools
import json

import pytest

from gomq_py.broker.features import table
from gomq_py.broker.features.arguments import ARGUMENTS
from gomq_py.broker.policies.policy import KEYS, OPERATOR_KEYS
from gomq_py.broker.exchanges import schedule
from gomq_py.client.connection import Connection
from gomq_py.client.errors import ChannelClosed, ConnectionClosed
from gomq_py.content.properties import Properties
from gomq_py.errors import Malformed
from tests.harness.values import CHECK_EVERY, DEPTHS, FULL, JSON, NESTED, RAW_JSON, TABLE
from tests.harness.witness import LISTS, Witness
from tests.support.broker_process import BrokerProcess

STREAM_KEYS = [key for key, (_, kinds) in ARGUMENTS.items() if "classic" not in kinds and "stream" in kinds]
# Arguments that mean nothing alone.
WITH = {
    "x-dead-letter-routing-key": {"x-dead-letter-exchange": ""},
    "x-delayed-retry-min": {"x-delayed-retry-type": "all"},
    "x-delayed-retry-max": {"x-delayed-retry-type": "all", "x-delayed-retry-min": 1},
    "x-cache-size": {"x-message-deduplication": True},
    "x-cache-ttl": {"x-message-deduplication": True},
    **dict.fromkeys(STREAM_KEYS, {"x-queue-type": "stream"}),
}
# Internal errors: of HTTP, of AMQP.
FAULT, INTERNAL = 500, 541
EXCHANGE_ARGUMENTS = [
    ("topic", "alternate-exchange"), ("direct", "x-cache-size"), ("direct", "x-cache-ttl"),
    ("direct", "x-deduplication-header"),
    ("direct", "x-message-deduplication"), ("x-consistent-hash", "x-algorithm"),
    ("x-consistent-hash", "hash-header"),
    ("x-consistent-hash", "x-hash-on"), ("x-consistent-hash", "hash-property"),
    ("x-delayed-message", "x-delayed-type"), ("topic", "unknown"),
]
BINDINGS = [("bound.headers", "x-match"), ("bound.headers", "n"), ("bound.topic", "n"), ("bound.hash", "n")]
CONSUMER_ARGUMENTS = [*table.CONSUMER_ARGUMENTS, "unknown"]
HEADERS = [
    "x-delay", "x-deduplication-header", "x-cache-ttl", "x-death", "CC", "BCC", "x-delivery-count",
    "x-stream-filter-value", "x-first-death-queue", "x-opt-deliver-at", "n", "x-schedule",
]


@pytest.fixture
def process(tmp_path):
    """A broker process with the API."""
    with BrokerProcess(tmp_path / "data", http_port=0) as process:
        yield process


def restarted(process, witness):
    """The one restart: it boots, everybody is served, every list is there, and it ends in order."""
    witness.end()
    process.restart()
    witness.begin()
    witness.check(LISTS)
    witness.end()
    assert process.stop() == 0


# AMQP

class Client:
    """Tries what may close its channel or its connection, and goes on with another.

    ``faults``: what the broker said was a fault of its own.
    """

    def __init__(self, process):
        self._process = process
        self._connection = self._channel = None
        self.faults = []

    def attempt(self, action):
        """``action(channel)``; whether the broker took it."""
        try:
            if self._connection is None or self._connection.closed:
                self._connection, self._channel = Connection(self._process.amqp_url), None
            if self._channel is None or self._channel.closed:
                self._channel = self._connection.channel()
            action(self._channel)
            return True
        except (ChannelClosed, ConnectionClosed) as closed:
            if getattr(closed, "reply_code", 0) == INTERNAL:
                self.faults.append(inspect.getclosurevars(action).nonlocals)
            return False
        except (ValueError, TypeError, Malformed):
            return False  # what our own codec does not write

    def close(self):
        """Whatever is left of it."""
        if self._connection is not None:
            with contextlib.suppress(ConnectionClosed):
                self._connection.close()


@pytest.mark.timeout(1200)
def test_numbers_over_amqp_harm_nobody_and_the_broker_boots(process):
    witness, client = Witness(process), Client(process)
    places = itertools.chain(
        _queues(), _exchanges(), _bindings(client), _consumers(client), _headers(client), _properties()
    )
    for number, place in enumerate(places):
        for action in place:
            client.attempt(action)
        if number % CHECK_EVERY == 0:
            witness.check(("queues",))
    client.close()

    restarted(process, witness)
    assert client.faults == []


def _queues():
    numbers = itertools.count()
    for key in [*ARGUMENTS, "unknown"]:
        place = []
        for value in TABLE:
            arguments = {**WITH.get(key, {}), key: value}
            for durable in (True, False) if FULL else (True,):
                place.append(lambda channel, arguments=arguments, durable=durable: _declare(
                    channel, f"amqp.{next(numbers)}", durable, arguments
                ))
        yield place


def _declare(channel, name, durable, arguments):
    """Declare a queue, fill it, and take what is there: whatever the argument asks for has to be done."""
    channel.queue_declare(name, durable=durable, arguments=arguments)
    channel.publish("", name, b"first", Properties(delivery_mode=2, priority=3))
    if arguments.get("x-queue-type") != "stream":
        found = channel.get(name)
        if found is not None:
            channel.nack(found.delivery_tag)
        channel.get(name, no_ack=True)
    if not FULL:
        return
    channel.queue_declare(name, durable=durable, arguments=arguments)


def _exchanges():
    numbers = itertools.count()
    for kind, key in EXCHANGE_ARGUMENTS:
        also = {"x-delayed-type": "direct"} if kind == "x-delayed-message" else {}
        yield [lambda channel, value=value, kind=kind, key=key, also=also: channel.exchange_declare(
            f"amqp.{next(numbers)}", kind, durable=True, arguments={**also, key: value}) for value in TABLE]


def _prepare(channel):
    channel.queue_declare("target", durable=True)
    for name, kind in (
        ("bound.headers", "headers"), ("bound.topic", "topic"), ("bound.hash", "x-consistent-hash")
    ):
        channel.exchange_declare(name, kind, durable=True)


def _bindings(client):
    assert client.attempt(_prepare)
    for exchange, key in BINDINGS:
        yield [
            lambda channel, value=value, exchange=exchange, key=key: channel.queue_bind(
                "target", exchange, "1", {key: value}
            )
            for value in TABLE
        ]
    yield [
        lambda channel, value=value: channel.queue_bind("target", "bound.hash", value)
        for value in TABLE if isinstance(value, str)
    ]


def _consumers(client):
    assert client.attempt(
        lambda channel: channel.queue_declare("stream", durable=True, arguments={"x-queue-type": "stream"})
    )
    for key, queue in itertools.product(CONSUMER_ARGUMENTS, ("target", "stream")):
        yield [
            lambda channel, value=value, key=key, queue=queue: _consume(channel, queue, {key: value})
            for value in TABLE
        ]


def _consume(channel, queue, arguments):
    channel.qos(10)
    channel.cancel(channel.consume(queue, lambda delivery: None, arguments=arguments))


def _prepare_ways(channel):
    """A message goes by a delay or at once into a queue that deduplicates, dies there,
    and ends in a queue or a stream.
    """
    channel.exchange_declare(
        "way.delayed", "x-delayed-message", durable=True, arguments={"x-delayed-type": "fanout"}
    )
    channel.queue_declare("way.dies", durable=True, arguments={
        "x-message-ttl": 0, "x-dead-letter-exchange": "amq.fanout", "x-message-deduplication": True,
        "x-cache-size": 10, "x-delivery-limit": 2})
    channel.queue_bind("way.dies", "way.delayed")
    channel.queue_declare(
        "way.end", durable=True, arguments={"x-max-length": 100, "x-dead-letter-exchange": "amq.headers"}
    )
    channel.queue_declare("way.stream", durable=True, arguments={"x-queue-type": "stream"})
    for queue in ("way.end", "way.stream"):
        channel.queue_bind(queue, "amq.fanout")


def _headers(client):
    assert client.attempt(_prepare_ways)
    for key in HEADERS:
        yield [
            lambda channel, headers=headers: _publish(channel, Properties(delivery_mode=2, headers=headers))
            for headers in _ways_of(key)
        ]


def _ways_of(key):
    yield from ({key: value} for value in TABLE)
    if key == "x-death":
        death = {"queue": "way.dies", "exchange": "", "reason": "expired", "count": 1, "routing-keys": ["k"]}
        yield from (
            {"x-death": [{**death, field: value}], "x-first-death-queue": "way.dies"}
            for field in ("count", "time", "queue", "routing-keys") for value in TABLE
        )
    if key == "x-schedule":
        daily = {"name": "n", "cron": "0 0 * * *"}
        yield from (
            {"x-schedule": {**base, field: value}} for base in (daily, {"name": "n", "every": 86_400_000})
            for field in schedule.FIELDS for value in TABLE)
    if key in ("CC", "BCC"):
        yield from ({key: [value]} for value in TABLE)


def _properties():
    yield [
        lambda channel, value=value: _publish(channel, Properties(expiration=value))
        for value in TABLE if isinstance(value, str)
    ]
    yield [
        lambda channel, value=value: _publish(channel, Properties(priority=value))
        for value in (0, 1, 127, 255)
    ]
    yield [lambda channel, value=value: _publish(channel, Properties(timestamp=value))
           for value in (0, 1 << 32, (1 << 63) - 1, 1 << 63, (1 << 64) - 1)]


def _publish(channel, properties):
    for exchange, key in (("way.delayed", ""), ("", "way.dies"), ("", "stream")):
        channel.publish(exchange, key, b"x", properties)
    channel.get("way.end")


# HTTP

@pytest.mark.timeout(1200)
def test_numbers_over_http_harm_nobody_and_the_broker_boots(process):
    witness, faults = Witness(process), []
    for verb, path, body in _of_http_before():
        assert witness.api(verb, path, body)[0] in (201, 204), path
    for number, place in enumerate(_of_http()):
        for verb, path, body in place:
            status, octets = witness.api(verb, path, body)
            if status >= FAULT:
                faults.append((verb, path, str(body)[:300], octets[:300]))
        if number % CHECK_EVERY == 0:
            witness.check()

    restarted(process, witness)
    assert faults == []


def _of_http_before():
    yield "PUT", "queues/%2F/target", {"durable": True}
    yield "PUT", "queues/%2F/target.stream", {"durable": True, "arguments": {"x-queue-type": "stream"}}
    yield (
        "PUT", "exchanges/%2F/target",
        {"type": "x-delayed-message", "durable": True, "arguments": {"x-delayed-type": "topic"}},
    )
    yield "PUT", "exchanges/%2F/target.hash", {"type": "x-consistent-hash", "durable": True}
    yield "PUT", "users/numbers", {"password": "numbers", "tags": "management"}
    yield "PUT", "permissions/%2F/numbers", {"configure": ".*", "write": ".*", "read": ".*"}


def _written(body):
    """The JSON of a body for each value in the place of ``HERE``, and for what no library writes."""
    return [json.dumps(body).replace('"HERE"', json.dumps(value)) for value in JSON] + [
        json.dumps(body).replace('"HERE"', raw) for raw in RAW_JSON
    ]


def _of_http():
    numbers = itertools.count()
    for key in [*ARGUMENTS, "unknown"]:
        for durable in (True, False) if FULL else (False,):
            body = {"durable": durable, "arguments": {**WITH.get(key, {}), key: "HERE"}}
            yield [("PUT", f"queues/%2F/http.{next(numbers)}", text) for text in _written(body)]
    for kind, key in EXCHANGE_ARGUMENTS:
        body = {
            "type": kind, "durable": True,
            "arguments": {"x-delayed-type": "direct", key: "HERE"} if "delayed" in kind else {key: "HERE"},
        }
        yield [("PUT", f"exchanges/%2F/http.{next(numbers)}", text) for text in _written(body)]
    for exchange in ("amq.headers", "target.hash"):
        for field in ({"routing_key": "1", "arguments": {"x-match": "HERE"}}, {"routing_key": "HERE"},
                      {"routing_key": "1", "arguments": {"n": "HERE"}}):
            yield [("POST", f"bindings/%2F/e/{exchange}/q/target", text) for text in _written(field)]
    for family, keys in (("policies", KEYS), ("operator-policies", OPERATOR_KEYS)):
        for key in keys:
            yield [
                ("PUT", f"{family}/%2F/p.{key}", text)
                for text in _written({"pattern": "^target", "definition": {key: "HERE"}})
            ]
        yield [
            ("PUT", f"{family}/%2F/p.priority", text)
            for text in _written(
                {"pattern": "^target", "priority": "HERE", "definition": {"max-length": 100}}
            )
        ]
        for field in ("pattern", "apply-to", "definition"):
            body = {"pattern": "^target", "definition": {"max-length": 100}, field: "HERE"}
            yield [("PUT", f"{family}/%2F/p.{field}", text) for text in _written(body)]
    for path in (
        "vhost-limits/%2F/max-queues", "vhost-limits/%2F/max-connections", "user-limits/numbers/max-channels",
        "user-limits/numbers/max-connections", "global-parameters/n", "parameters/vhost-limits/%2F/limits",
        "parameters/operator_policy/%2F/n", "parameters/shovel/%2F/n",
    ):
        undone = path if "parameters" not in path else None
        # each is taken back at once, for the bystander needs its queues
        yield [
            step
            for text in _written({"value": "HERE"})
            for step in (("PUT", path, text), *([("DELETE", undone, None)] if undone else ()))
        ]
    for key in HEADERS:
        for exchange in ("target", "amq.default", "amq.fanout") if FULL else ("target",):
            body = {
                "properties": {"headers": {key: "HERE"}}, "routing_key": "target", "payload": "x",
                "payload_encoding": "string",
            }
            yield [("POST", f"exchanges/%2F/{exchange}/publish", text) for text in _written(body)]
    for name in ("expiration", "priority", "delivery_mode", "timestamp", "headers", "message_id"):
        body = {
            "properties": {name: "HERE"}, "routing_key": "target", "payload": "x",
            "payload_encoding": "string",
        }
        yield [("POST", "exchanges/%2F/amq.default/publish", text) for text in _written(body)]
    for body in ({"count": "HERE", "ackmode": "ack_requeue_true", "encoding": "auto"},
                 {"count": 1, "truncate": "HERE", "ackmode": "ack_requeue_true", "encoding": "auto"}):
        yield [("POST", "queues/%2F/target/get", text) for text in _written(body)]
    for body in (
        {"destination": "target", "count": "HERE"},
        {"destination": "target", "count": 1, "headers": {"n": "HERE"}}, {"destination": "HERE"},
        {"destination": "target", "count": 1, "dry_run": "HERE"},
    ):
        yield [("POST", "queues/%2F/target.other/move", text) for text in _written(body)]
    for name in ("description", "tags", "tracing", "default_queue_type", "protected_from_deletion"):
        yield [("PUT", f"vhosts/http.{name}", text) for text in _written({name: "HERE"})]
    for name in ("password", "password_hash", "tags", "hashing_algorithm"):
        yield [
            ("PUT", f"users/http.{name}", text)
            for text in _written({"tags": "", "password": "p", name: "HERE"})
        ]
    for name in (
        "page", "page_size", "lengths_age", "lengths_incr", "msg_rates_age", "count", "offset", "truncate"
    ):
        texts = [str(value)[:6000] for value in JSON if not isinstance(value, (dict, list))]
        yield [
            ("GET", f"{path}?{name}={text}&page={1 if name != 'page' else text}", None)
            for text in texts
            for path in ("queues", "queues/%2F/target", "queues/%2F/target/messages", "vhosts/%2F")
        ]


# definitions

@pytest.mark.timeout(1200)
def test_numbers_in_imports_harm_nobody_and_the_broker_boots(process):
    witness, faults = Witness(process), []
    for verb, path, body in _of_http_before():
        assert witness.api(verb, path, body)[0] in (201, 204), path
    for number, place in enumerate(_of_imports()):
        for list_, text in place:
            status, octets = witness.api("POST", "definitions", f'{{"{list_}":[{text}]}}')
            if status >= FAULT or b"a fault of the broker" in octets:
                faults.append((list_, text[:300], octets[:300]))
        if number % CHECK_EVERY == 0:
            witness.check()

    restarted(process, witness)
    assert faults == []


def _of_imports():
    numbers = itertools.count()
    for key in [*ARGUMENTS, "unknown"]:
        yield [("queues", text.replace('"NAME"', f'"import.{next(numbers)}"')) for text in _written(
            {"vhost": "/", "name": "NAME", "durable": True, "arguments": {**WITH.get(key, {}), key: "HERE"}})]
    for kind, key in EXCHANGE_ARGUMENTS:
        arguments = {"x-delayed-type": "direct", key: "HERE"} if "delayed" in kind else {key: "HERE"}
        yield [("exchanges", text.replace('"NAME"', f'"import.{next(numbers)}"')) for text in _written(
            {"vhost": "/", "name": "NAME", "type": kind, "arguments": arguments})]
    binding = {
        "vhost": "/", "source": "target.hash", "destination": "target", "destination_type": "queue",
        "routing_key": "1", "arguments": {}}
    for field in (
        {"arguments": {"n": "HERE"}}, {"routing_key": "HERE"}, {"arguments": "HERE"},
        {"destination_type": "HERE"},
    ):
        yield [("bindings", text) for text in _written({**binding, **field})]
    for key in KEYS:
        policy = {"pattern": "^target", "definition": {key: "HERE"}}
        yield [("policies", text) for text in _written({"vhost": "/", "name": f"p.{key}", **policy})]
        yield [
            ("parameters", text)
            for text in _written(
                {"vhost": "/", "component": "operator_policy", "name": f"o.{key}", "value": policy}
            )
        ]
    for field in ("priority", "apply-to", "pattern", "definition"):
        yield [
            ("policies", text)
            for text in _written(
                {
                    "vhost": "/", "name": f"p.{field}", "pattern": "^target",
                    "definition": {"max-length": 100}, field: "HERE",
                })
        ]
    for component in (
        "policy", "operator_policy", "vhost-limits", "shovel", "federation-upstream",
        "federation-upstream-set", "mine",
    ):
        yield [
            ("parameters", text)
            for text in _written({"vhost": "/", "component": component, "name": "import", "value": "HERE"})
        ]
    yield [
        ("parameters", text)
        for text in _written(
            {
                "vhost": "http.limits", "component": "vhost-limits", "name": "limits",
                "value": {"max-queues": "HERE", "max-connections": "HERE"},
            })
    ]
    yield [("global_parameters", text) for text in _written({"name": "import", "value": "HERE"})]
    user = {"name": "import", "password": "import", "tags": ""}
    for field in (
        {"limits": {"max-channels": "HERE"}}, {"limits": "HERE"}, {"tags": "HERE"}, {"password_hash": "HERE"},
        {"hashing_algorithm": "HERE"},
    ):
        yield [("users", text) for text in _written({**user, **field})]
    for field in (
        "description", "tags", "default_queue_type", "protected_from_deletion", "metadata", "limits"
    ):
        yield [("vhosts", text) for text in _written({"name": f"import.{field}", field: "HERE"})]
    for field in ("default_queue_type", "tags", "description", "protected_from_deletion"):
        yield [
            ("vhosts", text)
            for text in _written({"name": f"import.metadata.{field}", "metadata": {field: "HERE"}})
        ]


# depth

@pytest.mark.timeout(1200)
def test_depth_by_every_door_harms_nobody_and_the_broker_boots(process):
    witness, client = Witness(process), Client(process)
    for verb, path, body in _of_http_before():
        assert witness.api(verb, path, body)[0] in (201, 204), path
    assert client.attempt(_prepare_ways)
    faults = client.faults
    for depth in DEPTHS:
        for opening, closing in (('{"a":', "}"), ("[", "]")):
            deep = f'{{"a":{opening * (depth - 1)}1{closing * (depth - 1)}}}'
            for verb, path, text in _deep_requests(depth, deep):
                status, octets = witness.api(verb, path, text)
                if status >= FAULT or b"a fault of the broker" in octets:
                    faults.append((verb, path, depth, octets[:300]))
        if depth < 250:  # our own codec recurses to write it
            table = 1
            for _ in range(depth):
                table = {"a": table}
            client.attempt(lambda channel, table=table, depth=depth: channel.queue_declare(
                f"amqp.deep.{depth}", durable=True, arguments=table
            ))
            client.attempt(
                lambda channel, table=table: _publish(channel, Properties(delivery_mode=2, headers=table))
            )
            client.attempt(lambda channel, table=table: _publish(
                channel, Properties(delivery_mode=2, headers={"x-death": [table]})
            ))
            client.attempt(
                lambda channel, table=table: channel.queue_bind("target", "amq.headers", "k", table)
            )
        witness.check()
    client.close()

    restarted(process, witness)
    assert faults == []


def _deep_requests(depth, deep):
    name = f"deep.{depth}"
    yield "PUT", f"queues/%2F/{name}", f'{{"arguments":{deep}}}'
    yield "PUT", f"queues/%2F/{name}.lasting", f'{{"durable":true,"arguments":{deep}}}'
    yield "PUT", f"exchanges/%2F/{name}", f'{{"type":"topic","durable":true,"arguments":{deep}}}'
    yield "POST", "bindings/%2F/e/amq.topic/q/target", f'{{"routing_key":"{depth}","arguments":{deep}}}'
    yield "PUT", f"policies/%2F/{name}", f'{{"pattern":"^target","definition":{{"ha-params":{deep}}}}}'
    yield "PUT", f"policies/%2F/{name}", f'{{"pattern":{deep},"definition":{deep}}}'
    yield "PUT", f"global-parameters/{name}", f'{{"value":{deep}}}'
    yield "PUT", f"users/{name}", f'{{"tags":{deep},"password":"p"}}'
    yield "PUT", f"vhosts/{name}", f'{{"description":{deep},"tags":{deep}}}'
    for exchange, key in (("amq.default", "way.dies"), ("way.delayed", ""), ("amq.default", "target")):
        for headers in (
            deep, f'{{"x-delay":{deep}}}', f'{{"x-deduplication-header":{deep}}}', f'{{"x-death":[{deep}]}}',
            f'{{"CC":[{deep}]}}',
        ):
            yield "POST", f"exchanges/%2F/{exchange}/publish", (
                f'{{"properties":{{"headers":{headers}}},"routing_key":"{key}","payload":"x","payload_encoding":"string"}}')
    yield "POST", "queues/%2F/target/move", f'{{"destination":"way.end","headers":{deep}}}'
    entry = f'"vhost":"/","name":"import.{name}"'
    yield "POST", "definitions", f'{{"queues":[{{{entry},"durable":true,"arguments":{deep}}}]}}'
    yield "POST", "definitions", f'{{"global_parameters":[{{"name":"{name}","value":{deep}}}],"users":[{{"name":"{name}","limits":{deep}}}]}}'
    yield "POST", "definitions", f'{{"parameters":[{{{entry},"component":"shovel","value":{deep}}}]}}'
    yield "POST", "definitions", f'{{"vhosts":[{{"name":"{name}","metadata":{deep}}}]}}'
    yield (
        "POST", "definitions",
        f'{{"policies":[{{{entry},"pattern":"^target","definition":{{"ha-params":{deep}}}}}],"more":{deep}}}',
    )
    yield "POST", "definitions", deep


def test_nested_value_is_no_deeper_than_amqp_allows():
    """Otherwise the harness would only see refusals."""
    assert json.dumps(NESTED).count("{") + json.dumps(NESTED).count("[") < 32
