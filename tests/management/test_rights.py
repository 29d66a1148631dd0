"""What a user may do, by every door: each verb with exactly the rights that it needs,
and with each of them missing.

AMQP and HTTP answer alike.
"""

import itertools

import pytest
import requests

from gomq_py.client.connection import Connection
from gomq_py.client.errors import ChannelClosed
from gomq_py.content.properties import Properties
from tests.support.waiting import in_time

VHOST, USER = "rights", "rights-user"
NUMBERS = itertools.count()
DLX, ALTERNATE = "x-dead-letter-exchange", "alternate-exchange"


class World:
    """A vhost with entities of one test after the other, and a user of both doors."""

    def __init__(self, managed):
        self._base = f"http://127.0.0.1:{managed.ports['http']}/api"
        self._http = {name: requests.Session() for name in ("guest", USER)}
        for name, session in self._http.items():
            session.auth = (name, name)
        self.ask("guest", "PUT", "users/" + USER, {"password": USER, "tags": "management"})
        self.ask("guest", "PUT", "vhosts/" + VHOST, {})
        url = f"amqp://{{0}}:{{0}}@127.0.0.1:{managed.ports['amqp']}/{VHOST}"
        self.grant({})
        self._amqp = {name: Connection(url.format(name), heartbeat_s=0) for name in self._http}
        self._setup = self.channel()

    def close(self):
        for connection in self._amqp.values():
            connection.close()
        self.ask("guest", "DELETE", "vhosts/" + VHOST)
        self.ask("guest", "DELETE", "users/" + USER)
        for session in self._http.values():
            session.close()

    def channel(self):
        """Of guest."""
        return self._amqp["guest"].channel()

    def ask(self, user, method, path, body=None):
        """Over HTTP. Returns the response."""
        return self._http[user].request(method, f"{self._base}/{path}", json=body, timeout=in_time(60))

    def make(self):
        """Fresh entities, all bound and filled. Returns {what it is called in VERBS: its name}."""
        number = next(NUMBERS)
        names = {
            key: f"{key}.{number}"
            for key in ("new", "q", "full", "letters", "other", "stream", "x", "x2", "topic", "target")
        }
        setup = self._setup
        for queue in ("q", "full", "letters", "other"):
            setup.queue_declare(names[queue])
        setup.queue_declare(names["stream"], durable=True, arguments={"x-queue-type": "stream"})
        for exchange, type_ in (("x", "direct"), ("x2", "fanout"), ("topic", "topic"), ("target", "fanout")):
            setup.exchange_declare(names[exchange], type_)
        setup.queue_bind(names["q"], names["x"], "bound")
        setup.exchange_bind(names["x2"], names["x"], "bound")
        setup.queue_declare(names["q"] + ".dead", arguments={DLX: names["target"]})
        setup.exchange_declare(names["x"] + ".alternate", "direct", arguments={ALTERNATE: names["target"]})
        for _ in range(2):
            setup.publish("", names["full"], b"one")
        deaths = [
            {
                "queue": names["other"],
                "exchange": names["topic"],
                "routing-keys": ["key"],
                "reason": "rejected",
                "count": 1,
            }
        ]
        setup.publish("", names["letters"], b"dead", Properties(headers={"x-death": deaths}))
        setup.qos(1)  # all of it is done
        return names

    def grant(self, rights, topic=None):
        """Exactly these rights, {verb: names}, and at a topic exchange this (exchange, write, read)."""
        patterns = {
            verb: f"^({'|'.join(rights[verb])})$" if rights.get(verb) else "^$"
            for verb in ("configure", "write", "read")
        }
        self.ask("guest", "PUT", f"permissions/{VHOST}/{USER}", patterns)
        self.ask("guest", "DELETE", f"topic-permissions/{VHOST}/{USER}")
        if topic is not None:
            exchange, write, read = topic
            self.ask(
                "guest",
                "PUT",
                f"topic-permissions/{VHOST}/{USER}",
                {"exchange": exchange, "write": write, "read": read},
            )

    def by_amqp(self, verb):
        """Whether the user may: no other failure passes."""
        channel = self._amqp[USER].channel()
        try:
            verb(channel)
            channel.qos(1)  # what has no answer has been refused by now
        except ChannelClosed as error:
            assert error.reply_code == 403, error
            return False
        channel.close()
        return True

    def by_http(self, method, path, body):
        """Whether the user may: no other failure passes."""
        answer = self.ask(USER, method, path, body)
        assert answer.status_code in (200, 201, 204, 401), answer.text
        if answer.status_code == 401:
            assert answer.json()["error"] == "not_authorised"
        return answer.status_code != 401


@pytest.fixture(scope="module")
def world(managed):
    world = World(managed)
    yield world
    world.close()


def declare_queue(queue, **arguments):
    return (lambda channel: channel.queue_declare(queue, arguments=arguments)), (
        "PUT",
        f"queues/{{vhost}}/{queue}",
        {"arguments": arguments},
    )


def declare_exchange(exchange, **arguments):
    return (lambda channel: channel.exchange_declare(exchange, "direct", arguments=arguments)), (
        "PUT",
        f"exchanges/{{vhost}}/{exchange}",
        {"type": "direct", "arguments": arguments},
    )


def publish(exchange, key, headers=None, **properties):
    fields = {**properties, **({} if headers is None else {"headers": headers})}
    return (lambda channel: channel.publish(exchange, key, b"x", Properties(**fields))), (
        "POST",
        f"exchanges/{{vhost}}/{exchange or 'amq.default'}/publish",
        {"properties": fields, "routing_key": key, "payload": "x", "payload_encoding": "string"},
    )


def verbs(n):
    """{verb: (rights as "right name", by AMQP or None, by HTTP or None)} over the names of ``World.make``."""
    get = {"ackmode": "ack_requeue_false", "encoding": "auto", "count": 1}
    return {
        "declare a queue": ([f"configure {n['new']}"], *declare_queue(n["new"])),
        "declare a queue with a line feed in its name": (
            [f"configure {n['new']}"],
            lambda channel: channel.queue_declare("\n" + n["new"]),
            ("PUT", "queues/{vhost}/%0A" + n["new"], {}),
        ),
        "declare a queue that dead-letters": (
            [f"configure {n['new']}", f"read {n['new']}", f"write {n['target']}"],
            *declare_queue(n["new"], **{DLX: n["target"]}),
        ),
        "declare a queue that dead-letters to the default exchange": (
            [f"configure {n['new']}", f"read {n['new']}", "write amq[.]default"],
            *declare_queue(n["new"], **{DLX: "", "x-dead-letter-routing-key": n["q"]}),
        ),
        "declare a queue that is there and dead-letters": (
            [f"configure {n['q']}.dead"],
            *declare_queue(n["q"] + ".dead", **{DLX: n["target"]}),
        ),
        "declare an exchange": ([f"configure {n['new']}"], *declare_exchange(n["new"])),
        "declare an exchange with a line feed in its name": (
            [f"configure {n['new']}"],
            lambda channel: channel.exchange_declare("\n" + n["new"]),
            ("PUT", "exchanges/{vhost}/%0A" + n["new"], {}),
        ),
        "declare an exchange with an alternate": (
            [f"configure {n['new']}", f"read {n['new']}", f"write {n['target']}"],
            *declare_exchange(n["new"], **{ALTERNATE: n["target"]}),
        ),
        "declare an exchange with an alternate, by its other name": (
            [f"configure {n['new']}", f"read {n['new']}", f"write {n['target']}"],
            *declare_exchange(n["new"], **{"x-" + ALTERNATE: n["target"]}),
        ),
        "declare an exchange with the default exchange as alternate": (
            [f"configure {n['new']}", f"read {n['new']}", "write amq[.]default"],
            *declare_exchange(n["new"], **{ALTERNATE: ""}),
        ),
        "declare an exchange that is there and has an alternate": (
            [f"configure {n['x']}.alternate"],
            *declare_exchange(n["x"] + ".alternate", **{ALTERNATE: n["target"]}),
        ),
        "delete a queue": (
            [f"configure {n['q']}"],
            lambda channel: channel.queue_delete(n["q"]),
            ("DELETE", f"queues/{{vhost}}/{n['q']}", None),
        ),
        "delete an exchange": (
            [f"configure {n['x2']}"],
            lambda channel: channel.exchange_delete(n["x2"]),
            ("DELETE", f"exchanges/{{vhost}}/{n['x2']}", None),
        ),
        "bind a queue": (
            [f"write {n['q']}", f"read {n['x']}"],
            lambda channel: channel.queue_bind(n["q"], n["x"], "key"),
            ("POST", f"bindings/{{vhost}}/e/{n['x']}/q/{n['q']}", {"routing_key": "key"}),
        ),
        "bind a queue to a topic exchange": (
            [f"write {n['q']}", f"read {n['topic']}", f"topic-read {n['topic']} key"],
            lambda channel: channel.queue_bind(n["q"], n["topic"], "key"),
            ("POST", f"bindings/{{vhost}}/e/{n['topic']}/q/{n['q']}", {"routing_key": "key"}),
        ),
        "bind an exchange": (
            [f"write {n['x2']}", f"read {n['x']}"],
            lambda channel: channel.exchange_bind(n["x2"], n["x"], "key"),
            ("POST", f"bindings/{{vhost}}/e/{n['x']}/e/{n['x2']}", {"routing_key": "key"}),
        ),
        "bind an exchange to a topic exchange": (
            [f"write {n['x2']}", f"read {n['topic']}", f"topic-read {n['topic']} key"],
            lambda channel: channel.exchange_bind(n["x2"], n["topic"], "key"),
            ("POST", f"bindings/{{vhost}}/e/{n['topic']}/e/{n['x2']}", {"routing_key": "key"}),
        ),
        "unbind a queue": (
            [f"write {n['q']}", f"read {n['x']}"],
            lambda channel: channel.queue_unbind(n["q"], n["x"], "bound"),
            ("DELETE", f"bindings/{{vhost}}/e/{n['x']}/q/{n['q']}/bound", None),
        ),
        "unbind an exchange": (
            [f"write {n['x2']}", f"read {n['x']}"],
            lambda channel: channel.exchange_unbind(n["x2"], n["x"], "bound"),
            ("DELETE", f"bindings/{{vhost}}/e/{n['x']}/e/{n['x2']}/bound", None),
        ),
        "publish": ([f"write {n['x']}"], *publish(n["x"], "key")),
        "publish to an exchange with a line feed in its name": (
            [f"write {n['x']}"],
            lambda channel: channel.publish("\n" + n["x"], "key", b"x"),
            None,
        ),
        "publish to the default exchange": (["write amq[.]default"], *publish("", n["q"])),
        "publish to a topic exchange": (
            [f"write {n['topic']}", f"topic-write {n['topic']} key"],
            *publish(n["topic"], "key"),
        ),
        "publish to a topic exchange with a second key": (
            [f"write {n['topic']}", f"topic-write {n['topic']} (key|second)"],
            *publish(n["topic"], "key", {"CC": ["second"]}),
        ),
        "publish in one's own name": ([f"write {n['x']}"], *publish(n["x"], "key", user_id=USER)),
        "get": (
            [f"read {n['full']}"],
            lambda channel: channel.get(n["full"], no_ack=True),
            ("POST", f"queues/{{vhost}}/{n['full']}/get", get),
        ),
        "purge": (
            [f"read {n['full']}"],
            lambda channel: channel.queue_purge(n["full"]),
            ("DELETE", f"queues/{{vhost}}/{n['full']}/contents", None),
        ),
        "purge some": (
            [f"read {n['full']}"],
            None,
            ("DELETE", f"queues/{{vhost}}/{n['full']}/contents?count=1", None),
        ),
        "consume": ([f"read {n['full']}"], lambda channel: channel.consume(n["full"]), None),
        "look at messages": (
            [f"read {n['full']}"],
            None,
            ("GET", f"queues/{{vhost}}/{n['full']}/messages", None),
        ),
        "move": (
            [f"read {n['full']}", f"write {n['q']}"],
            None,
            ("POST", f"queues/{{vhost}}/{n['full']}/move", {"destination": n["q"]}),
        ),
        "copy": (
            [f"read {n['full']}", f"write {n['q']}"],
            None,
            ("POST", f"queues/{{vhost}}/{n['full']}/copy", {"destination": n["q"]}),
        ),
        "replay what needs no more": (
            [f"read {n['full']}"],
            None,
            ("POST", f"queues/{{vhost}}/{n['full']}/replay", {}),
        ),
        "pause": ([f"configure {n['q']}"], None, ("PUT", f"queues/{{vhost}}/{n['q']}/pause", None)),
        "resume": ([f"configure {n['q']}"], None, ("PUT", f"queues/{{vhost}}/{n['q']}/resume", None)),
        "look at a stream": (
            [f"read {n['stream']}"],
            None,
            ("GET", f"streams/{{vhost}}/{n['stream']}", None),
        ),
        "look at a stream's messages": (
            [f"read {n['stream']}"],
            None,
            ("GET", f"streams/{{vhost}}/{n['stream']}/messages", None),
        ),
        "list a stream's segments": (
            [f"read {n['stream']}"],
            None,
            ("GET", f"streams/{{vhost}}/{n['stream']}/segments", None),
        ),
        "find an offset": (
            [f"read {n['stream']}"],
            None,
            ("GET", f"streams/{{vhost}}/{n['stream']}/offset?timestamp=0", None),
        ),
    }


VERBS = {
    verb: rights
    for verb, (rights, _, _) in verbs(
        dict.fromkeys(("new", "q", "full", "letters", "other", "stream", "x", "x2", "topic", "target"), "")
    ).items()
}
MISSING = [(verb, number) for verb, rights in VERBS.items() for number in range(len(rights))]


def granted(world, rights):
    """Grant rights as VERBS writes them."""
    by_verb, topic = {}, None
    for right in rights:
        verb, *names = right.split(" ")
        if verb.startswith("topic-"):
            patterns = {"topic-write": "^$", "topic-read": "^$", verb: f"^{names[1]}$"}
            topic = (names[0], patterns["topic-write"], patterns["topic-read"])
        else:
            by_verb.setdefault(verb, []).append(names[0])
    world.grant(by_verb, topic)


def outcomes(world, names, verb):
    """{door: whether the user may} for the doors that have the verb, AMQP first."""
    _, amqp, http = verbs(names)[verb]
    found = {}
    if http is not None:
        method, path, body = http
        found["http"] = world.by_http(method, path.format(vhost=VHOST), body)
    if amqp is not None:
        found["amqp"] = world.by_amqp(amqp)
    return found


@pytest.mark.parametrize("verb", VERBS)
def test_a_verb_needs_no_more_than_its_rights(world, verb):
    """By HTTP first; AMQP asks for the same rights, whether there still is something to change or not."""
    names = world.make()
    granted(world, verbs(names)[verb][0])

    assert set(outcomes(world, names, verb).values()) == {True}


@pytest.mark.parametrize(("verb", "missing"), MISSING)
def test_a_verb_is_refused_by_every_door_where_one_right_is_missing(world, verb, missing):
    """In its place the user has every other right on the same name,
    and the same right on every other name.
    """
    names = world.make()
    rights = verbs(names)[verb][0]
    right, *name = rights[missing].split(" ")
    if right.startswith("topic-"):
        instead = [f"{right} {name[0]} other"]
    else:
        instead = [f"{other} {name[0]}" for other in ("configure", "write", "read") if other != right] + [
            f"{right} (?!{name[0]}$).*"
        ]
    granted(world, [one for number, one in enumerate(rights) if number != missing] + instead)

    found = outcomes(world, names, verb)

    assert set(found.values()) == {False}


@pytest.mark.parametrize("properties", [{"user_id": "guest"}])
def test_nobody_publishes_in_the_name_of_another(world, properties):
    names = world.make()
    world.grant({"write": [names["x"]]})
    amqp, (method, path, body) = publish(names["x"], "key", **properties)

    with pytest.raises(AssertionError, match="406 PRECONDITION_FAILED - user_id property set to 'guest'"):
        world.by_amqp(amqp)
    answer = world.ask(USER, method, path.format(vhost=VHOST), body)

    assert (answer.status_code, answer.json()["reason"]) == (
        400,
        f"user_id property set to 'guest' but authenticated user was '{USER}'",
    )


@pytest.mark.parametrize(
    ("to", "rights", "topic", "stays"),
    [
        ("queue", {"write": ["other"]}, None, {}),
        ("queue", {"write": ["topic"]}, None, {"no permission to write to queue '{other}'": 1}),
        ("exchange", {"write": ["topic"]}, "key", {}),
        ("exchange", {"write": ["other"]}, None, {"no permission to write to exchange '{topic}'": 1}),
        ("exchange", {"write": ["topic"]}, "other", {"no permission to write to exchange '{topic}'": 1}),
    ],
)
def test_dead_letters_come_back_only_where_the_user_may_write(world, to, rights, topic, stays):
    """The origin stands in headers, which anybody may have written: the rights are those of who asks."""
    names = world.make()
    world.ask(
        "guest", "POST", f"bindings/{VHOST}/e/{names['topic']}/q/{names['other']}", {"routing_key": "key"}
    )
    granted_names = {verb: [names[one] for one in ones] for verb, ones in rights.items()} | {
        "read": [names["letters"]]
    }
    world.grant(granted_names, None if topic is None else (names["topic"], f"^{topic}$", "^$"))

    answer = world.ask(USER, "POST", f"queues/{VHOST}/{names['letters']}/replay", {"to": to})

    assert answer.json()["stayed"] == {text.format(**names): count for text, count in stays.items()}
    assert answer.json()["moved"] == (0 if stays else 1)


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("POST", "get", {"ackmode": "ack_requeue_true", "encoding": "auto", "count": 1}),
        ("DELETE", "contents", None),
        ("DELETE", "", None),
        ("POST", "move", {"destination": "{q}"}),
        ("POST", "copy", {"destination": "{q}"}),
        ("POST", "replay", {}),
        ("PUT", "pause", None),
    ],
)
def test_nobody_takes_from_another_connections_exclusive_queue(world, method, path, body):
    names = world.make()
    owner = world.channel()
    owner.queue_declare(names["new"], exclusive=True)
    body = body and {
        key: value.format(**names) if isinstance(value, str) else value for key, value in body.items()
    }

    answer = world.ask("guest", method, f"queues/{VHOST}/{names['new']}/{path}".rstrip("/"), body)

    assert answer.status_code == 400 and "exclusive access to locked queue" in answer.json()["reason"]
    owner.close()
