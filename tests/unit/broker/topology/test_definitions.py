"""Definitions: out and in again, files of others, and files that are wrong."""
import json
import weakref
from functools import partial

import bcrypt
import pytest

from gomq_py.auth import passwords
from gomq_py.broker.topology.definitions import (
    DefinitionsError, Importer, exported, sections_of_vhost,
)
from gomq_py.global_names import IMPORTED
from tests.support.node import Node
from tests.support.passwords import has_password

# As RabbitMQ exports it, with what only it knows; and as LavinMQ does: tags as text, no version.
RABBITMQ = {
    "rabbit_version": "3.13.7", "rabbitmq_version": "3.13.7", "product_name": "RabbitMQ",
    "product_version": "3.13.7",
    "rabbitmq_definition_format": "cluster", "original_cluster_name": "rabbit@host",
    "explanation": "Definitions of cluster 'rabbit@host'",
    "users": [
        {
            "name": "ann", "password_hash": "+pHuxkR9fCyrrwXjOD4BP4XbzO3l8LJr8YkThMgJ0yVHFRE+",
            "hashing_algorithm": "rabbit_password_hashing_sha256", "tags": ["administrator"], "limits": {},
        },
        {
            "name": "cert", "password_hash": "", "hashing_algorithm": "rabbit_password_hashing_sha256",
            "tags": [], "limits": {},
        },
    ],
    "vhosts": [
        {
            "name": "/", "description": "Default virtual host",
            "metadata": {"description": "x", "tags": [], "default_queue_type": "classic"}, "tags": [],
            "default_queue_type": "classic",
        },
        {"name": "shop", "limits": [], "metadata": {"description": "things", "tags": ["a"]}},
    ],
    "permissions": [{"user": "ann", "vhost": "shop", "configure": ".*", "write": "^w", "read": ".*"}],
    "topic_permissions": [
        {"user": "ann", "vhost": "shop", "exchange": "amq.topic", "write": "^a", "read": ".*"}
    ],
    "parameters": [
        {"component": "operator_policy", "name": "cap", "vhost": "shop",
         "value": {"apply-to": "queues", "definition": {"max-length": 10}, "pattern": ".*", "priority": 0}},
        {"component": "vhost-limits", "name": "limits", "vhost": "shop", "value": {"max-queues": 50}},
        {"component": "shovel", "name": "s", "vhost": "shop", "value": {"src-uri": "amqp://"}},
    ],
    "global_parameters": [{"name": "internal_cluster_id", "value": "rabbitmq-cluster-id-x"}],
    "policies": [{"vhost": "shop", "name": "ha", "pattern": "^o", "apply-to": "queues", "priority": 1,
                  "definition": {"ha-mode": "all", "dead-letter-exchange": "dead", "message-ttl": 1000}}],
    "queues": [
        {
            "name": "orders", "vhost": "shop", "durable": True, "auto_delete": False,
            "arguments": {"x-queue-type": "quorum"},
        },
        {"name": "dead", "vhost": "shop", "durable": True, "auto_delete": False, "arguments": {}},
    ],
    "exchanges": [
        {
            "name": "dead", "vhost": "shop", "type": "fanout", "durable": True, "auto_delete": False,
            "internal": False, "arguments": {},
        },
        {
            "name": "amq.topic", "vhost": "shop", "type": "topic", "durable": True, "auto_delete": False,
            "internal": False, "arguments": {},
        },
    ],
    "bindings": [
        {
            "source": "dead", "vhost": "shop", "destination": "dead", "destination_type": "queue",
            "routing_key": "", "arguments": {},
        },
        {
            "source": "amq.topic", "vhost": "shop", "destination": "dead", "destination_type": "exchange",
            "routing_key": "a.#", "arguments": {"k": 1},
        },
        {
            "source": "", "vhost": "shop", "destination": "dead", "destination_type": "queue",
            "routing_key": "dead", "arguments": {},
        },
    ],
}


@pytest.fixture
def make(tmp_path):
    nodes = []

    def make_node(name):
        nodes.append(Node(tmp_path / name))
        return nodes[-1]

    yield make_node
    for node in nodes:
        node.stop()


def exported_vhost(vhost):
    return {key: value if isinstance(value, str) else list(value) for key, value in sections_of_vhost(vhost)}


def without_versions(definitions):
    return {key: value for key, value in definitions.items() if isinstance(value, list)}


def test_file_of_rabbitmq_is_imported(make):
    broker = make("a").broker

    report = Importer(broker).run(RABBITMQ)

    assert report.problems == ["global_parameters: 'internal_cluster_id': the identity of another cluster"]
    assert broker.users.get("ann").topic_permission("shop", "amq.topic").write == "^a"
    assert has_password(broker.users, "ann", "guest") and not has_password(broker.users, "cert", "")
    assert broker.users.get("ann").permission("shop").write == "^w"
    shop = broker.vhosts["shop"]
    assert (shop.description, shop.tags, shop.limits) == ("things", ["a"], {"max-queues": 50})
    settings = shop.queue("orders").limits.settings
    assert (
        settings.max_length, settings.message_ttl_ms, settings.dead_letter_exchange, settings.delivery_limit
    ) == (10, 1000, "dead", 20)
    assert [queue.name for queue in shop.route(shop.exchange("amq.topic"), "a.b")] == ["dead"]
    assert shop.parameters["shovel", "s"] == {"src-uri": "amqp://"}


def test_what_goes_out_comes_in_again(make):
    first, second = make("a"), make("b")
    Importer(first.broker).run(RABBITMQ)
    first.vhost.declare_queue("transient", arguments={"x-max-length": 5})
    first.vhost.declare_queue("mine", exclusive=True, owner=object())
    definitions = json.loads(json.dumps(exported(first.broker)))

    report = Importer(second.broker).run(definitions)

    assert report.problems == []
    assert without_versions(exported(second.broker)) == without_versions(definitions)
    assert [queue["name"] for queue in definitions["queues"] if queue["vhost"] == "/"] == ["transient"]


def test_importing_twice_changes_nothing(make):
    broker = make("a").broker
    Importer(broker).run(RABBITMQ)
    once = exported(broker)

    Importer(broker).run(RABBITMQ)

    assert exported(broker) == once


def test_vhost_can_be_copied_into_another(make):
    broker = make("a").broker
    Importer(broker).run(RABBITMQ)
    copy = broker.create_vhost("copy")

    Importer(broker, copy).run(
        json.loads(json.dumps({**exported_vhost(broker.vhosts["shop"]), "users": [{"name": "eve"}]}))
    )

    assert exported_vhost(copy) == {
        **exported_vhost(broker.vhosts["shop"]), "original_vhost_name": "copy"}
    assert "eve" not in broker.users


def test_what_is_there_and_differs_is_reported_and_stays(make):
    node = make("a")
    node.vhost.declare_queue("q", durable=True)
    queue = {
        "name": "q", "vhost": "/", "durable": True, "auto_delete": False, "arguments": {"x-max-length": 5}
    }

    report = Importer(node.broker).run({"queues": [queue, {**queue, "name": "r"}]})

    assert len(report.problems) == 1 and "inequivalent arg 'x-max-length' for queue 'q'" in report.problems[0]
    assert node.vhost.queue("q").arguments == {}
    assert report.imported == {"queues": 1}


@pytest.mark.parametrize("entry, problem", [
    ({"queues": [{"name": "q", "vhost": "nope"}]}, "no vhost 'nope'"),
    (
        {"exchanges": [{"name": "x", "vhost": "/", "type": "x-jms-topic"}]},
        "unknown exchange type 'x-jms-topic'",
    ),
    (
        {"permissions": [{"user": "nobody", "vhost": "/", "configure": "", "write": "", "read": ""}]},
        "no user 'nobody'",
    ),
    (
        {"policies": [{"name": "p", "vhost": "/", "pattern": ".*", "definition": {"never-heard-of": 1}}]},
        "not a recognised policy setting",
    ),
    (
        {
            "bindings": [
                {
                    "source": "x", "vhost": "/", "destination": "q", "destination_type": "queue",
                    "routing_key": "",
                },
            ],
        },
        "no exchange 'x'",
    ),
    ({"users": [{"name": "u", "password_hash": "!!"}]}, "base64"),
    ({"users": [{"name": "u", "tags": "management,wizard"}]}, "wizard"),
])
def test_entry_that_cannot_be_imported_is_reported_and_the_rest_goes_on(make, entry, problem):
    broker = make("a").broker

    report = Importer(broker).run({**entry, "vhosts": [{"name": "v"}]})

    assert len(report.problems) == 1 and problem in report.problems[0]
    assert "v" in broker.vhosts


@pytest.mark.parametrize("wrong", [
    [], "text", {"queues": {}}, {"queues": [5]}, {"queues": [{"vhost": "/"}]},
    {"queues": [{"name": 5, "vhost": "/"}]},
    {"bindings": [{"source": "x"}]}, {"queues": [{"name": "q", "vhost": "/", "arguments": []}]},
])
def test_malformed_definitions_change_nothing(make, wrong):
    broker = make("a").broker
    before = exported(broker)
    if isinstance(wrong, dict):
        wrong = {"vhosts": [{"name": "v"}], **wrong}

    with pytest.raises(DefinitionsError):
        Importer(broker).run(wrong)

    assert exported(broker) == before


@pytest.mark.parametrize("algorithm", [passwords.SHA256, passwords.SHA512, passwords.MD5])
def test_hash_of_an_old_file_is_known_by_its_size(make, algorithm):
    broker = make("a").broker

    Importer(broker).run({
        "users": [
            {
                "name": "u", "password_hash": passwords.hash_password("secret", algorithm),
                "tags": "management, monitoring",
            },
        ],
    })

    assert has_password(broker.users, "u", "secret")
    assert broker.users.get("u").tags == ("management", "monitoring")


def test_values_json_does_not_have_are_written_as_others(make):
    vhost = make("a").vhost
    vhost.declare_queue("q", durable=True, arguments={"x-octets": b"a\xff", "x-list": [1, None, {"a": True}]})

    definitions = exported_vhost(vhost)

    assert definitions["queues"][0]["arguments"] == {
        "x-octets": "Not UTF-8, base64 is: Yf8=", "x-list": [1, None, {"a": True}]
    }


def test_octets_in_arguments_come_back_as_octets(make):
    first, second = make("a"), make("b")
    arguments = {
        "x-octets": b"a\xff", "x-list": [b"\x80", {"inner": b"\x81"}],
        "x-text": "Not UTF-8, base64 is: no base64",
    }
    first.vhost.declare_queue("q", durable=True, arguments=arguments)

    Importer(second.broker).run(json.loads(json.dumps(exported(first.broker))))

    assert second.vhost.queue("q").arguments == arguments


def test_entries_without_a_vhost_go_into_the_default_one(make):
    """LavinMQ's and RabbitMQ's exports of a single vhost do not name it."""
    broker = make("a").broker

    report = Importer(broker).run({
        "queues": [{"name": "q", "durable": True}],
        "policies": [{"name": "p", "pattern": "q", "definition": {"max-length": 1}}],
        "bindings": [
            {"source": "amq.topic", "destination": "q", "destination_type": "queue", "routing_key": "#"}
        ]})

    assert report.refused == [] and report.imported == {"queues": 1, "policies": 1, "bindings": 1}
    assert report.changed[1] == "queues: 'q': names no vhost: taken into '/'" and len(report.changed) == 3
    assert broker.vhosts["/"].queue("q").limits.settings.max_length == 1


def test_what_nobody_here_acts_on_is_said(make):
    broker = make("a").broker

    report = Importer(broker).run({
        "parameters": [{"component": "shovel", "vhost": "/", "name": "s", "value": {}}],
        "policies": [
            {"name": "fed", "vhost": "/", "pattern": ".*", "definition": {"federation-upstream-set": "all"}}
        ],
        "global_parameters": [{"name": "internal_cluster_id", "value": "another"}]})

    assert report.imported == {"parameters": 1, "policies": 1}
    assert report.changed == [
        "parameters: 's' in vhost '/': shovel: kept without effect: this broker has no shovels",
        "policies: 'fed' in vhost '/': kept without effect: federation-upstream-set",
    ]
    assert report.ignored == ["global_parameters: 'internal_cluster_id': the identity of another cluster"]
    assert "internal_cluster_id" not in broker.parameters.global_


def test_what_a_broker_notes_about_its_folder_neither_goes_out_nor_comes_in(make):
    broker = make("a").broker
    broker.parameters.set_internal(IMPORTED, "mine")
    broker.parameters.set_global("motto", "shown")
    entries = [{"name": IMPORTED, "value": "theirs"}, {"name": "creed", "value": "taken"}]

    out = exported(broker)["global_parameters"]
    report = Importer(broker).run({"global_parameters": entries})

    assert out == [{"name": "motto", "value": "shown"}]
    assert report.imported == {"global_parameters": 1}
    assert report.ignored == [
        "global_parameters: 'load_definitions': a broker's note about its own data folder"]
    assert broker.parameters.internal == {IMPORTED: "mine"}
    assert broker.parameters.global_ == {"motto": "shown", "creed": "taken"}


@pytest.mark.parametrize("arguments", [
    {"x-huge": 2**80}, {"x" * 300: 1}, {"x-deep": [[[[[[{}]]]]]]}, {"x-large": "x" * 200_000}
])
def test_arguments_that_no_table_holds_cost_their_entry_alone(make, arguments):
    broker = make("a").broker

    report = Importer(broker).run({
        "queues": [
            {"name": "q", "vhost": "/", "durable": True, "arguments": arguments}, {"name": "r", "vhost": "/"}
        ],
    })

    assert "r" in broker.vhosts["/"].queues and report.imported["queues"] + len(report.refused) == 2


@pytest.mark.parametrize("number", ["1e400", "1e999", "-1e999"])
def test_number_that_no_reader_of_json_can_hold_costs_its_entry_alone(make, number):
    """Read as infinity it was kept, and shown as null, which is another argument:
    what was exported did not come in again.
    """
    broker = make("a").broker
    wrong = {"x": [{"y": json.loads(number)}]}

    report = Importer(broker).run({
        "queues": [
            {"name": "q", "vhost": "/", "durable": True, "arguments": wrong},
            {"name": "r", "vhost": "/", "durable": True},
        ],
        "exchanges": [{"name": "x", "vhost": "/", "type": "direct", "durable": True, "arguments": wrong}],
        "bindings": [
            {
                "source": "amq.topic", "vhost": "/", "destination": "r", "destination_type": "queue",
                "routing_key": "#", "arguments": wrong,
            },
        ],
        "parameters": [{"component": "shovel", "vhost": "/", "name": "s", "value": wrong}],
        "policies": [{"name": "p", "vhost": "/", "pattern": "q", "definition": wrong}],
        "global_parameters": [{"name": "g", "value": wrong}]})

    assert report.imported == {"queues": 1} and len(report.refused) == 6
    assert all("with a number that no JSON holds" in line for line in report.refused), report.refused


@pytest.mark.parametrize("entry, wrong", [
    ({"users": [{"name": "u", "password_hash": True}]}, "password_hash should be a text"),
    ({"users": [{"name": "u", "tags": [1]}]}, "tags should be a text or a list of texts"),
    ({"queues": [{"name": "q", "vhost": "/", "durable": "yes"}]}, "durable should be true or false"),
    ({"policies": [{"name": "p", "vhost": "/", "pattern": 5, "definition": {}}]}, "pattern should be a text"),
    ({"vhosts": [{"name": "v", "metadata": {"tags": 7}}]}, "tags should be a text or a list of texts"),
])
def test_a_value_of_the_wrong_kind_is_refused_before_anything_has_changed(tmp_path, entry, wrong):
    node = Node(tmp_path / "data")

    with pytest.raises(DefinitionsError, match=wrong):
        Importer(node.broker).run({"vhosts": [{"name": "new"}], **entry})

    assert set(node.broker.vhosts) == {"/"}
    node.stop()


def test_the_report_says_what_became_something_else_and_what_was_left(make):
    broker = make("a").broker

    report = Importer(broker).run({
        "rabbit_version": "3.10.8", "wonders": [],
        "vhosts": [{"name": "v", "default_queue_type": "quantum"}],
        "users": [{"name": "u", "tags": "wizard"}],
        "policies": [
            {
                "name": "p", "vhost": "v", "pattern": ".*",
                "definition": {"ha-mode": "all", "max-length": 5, "never-heard-of": 1},
            },
        ],
        "queues": [
            {"name": "q", "vhost": "v", "durable": True, "arguments": {"x-queue-type": "quorum"}},
            {"name": "r", "vhost": "nope"},
        ],
    })

    assert report.imported == {"vhosts": 1, "users": 1, "policies": 1, "queues": 1}
    assert [line.split(":")[0] for line in report.changed] == ["policies", "queues"]
    assert [line.split(":")[0] for line in report.ignored] == ["vhosts", "users", "policies", "wonders"]
    assert report.refused == ["queues: 'r' in vhost 'nope': no vhost 'nope'"]
    assert broker.vhosts["v"].policies.user.by_name["p"].definition == {"ha-mode": "all", "max-length": 5}


def test_definitions_that_nobody_keeps_are_let_go_of_one_by_one(make):
    """100 000 queues with their bindings that were freed at once held everybody up for 60 ms."""
    class Entry(dict):
        """One that can be weakly referred to."""

    node = make("a")
    entries = [Entry(name=f"q{number}", vhost="/", durable=False) for number in range(5)]
    seen = [weakref.ref(entry) for entry in entries]
    left = []
    declare_queue = node.vhost.declare_queue

    def declare(*arguments, **options):
        left.append(sum(one() is not None for one in seen))
        return declare_queue(*arguments, **options)

    node.vhost.declare_queue = declare

    report = Importer(node.broker).run({"queues": entries, "else": [1]}, keep=False)

    assert report.imported == {"queues": 5} and left == [5, 4, 3, 2, 1]


def test_definitions_that_are_kept_stay_as_they_are(make):
    definitions = {"queues": [{"name": "q", "vhost": "/", "durable": False}]}

    Importer(make("a").broker).run(definitions)

    assert definitions == {"queues": [{"name": "q", "vhost": "/", "durable": False}]}


def test_an_empty_password_is_none(make):
    """As over HTTP: nobody logs in with it."""
    broker = make("a").broker

    Importer(broker).run({"users": [{"name": "u", "password": "", "tags": ""}]})

    assert broker.users.get("u").password_hash == "" and not has_password(broker.users, "u", "")


@pytest.mark.parametrize("algorithm", [passwords.SHA256, passwords.BCRYPT])
def test_a_password_that_the_user_has_keeps_its_hash(make, monkeypatch, algorithm):
    """A new salt would end the user's sessions with each import."""
    monkeypatch.setattr(bcrypt, "gensalt", partial(bcrypt.gensalt, 4))
    broker = make("a").broker
    before = broker.users.set_user("u", password="secret", hashing_algorithm=algorithm).password_hash

    Importer(broker).run({"users": [{"name": "u", "password": "secret", "tags": ""}]})

    assert broker.users.get("u").password_hash == before


def test_labels_that_are_too_long_are_refused_and_the_rest_is_taken(make):
    broker = make("one").broker

    report = Importer(broker).run({
        "users": [
            {"name": "n" * 256, "tags": []}, {"name": "many", "tags": ["t"] * 65},
            {"name": "fits", "tags": ["t" * 255]},
        ],
        "vhosts": [{"name": "long", "description": "d" * 4097}, {"name": "short", "description": "d"}],
    })

    assert report.imported == {"users": 1, "vhosts": 1} and len(report.refused) == 3
    assert "fits" in broker.users and "many" not in broker.users
    assert "short" in broker.vhosts and "long" not in broker.vhosts


@pytest.mark.parametrize("limits, why", [
    ({"max-connections": "two"}, "max-connections should be a number"),
    ({"max-channels": 1, "no-such-limit": 1}, "no-such-limit is not a recognised limit"),
    ([["max-connections", 1]], "limits of a user should be an object"),
])
def test_user_whose_limits_are_refused_is_neither_made_nor_changed(make, limits, why):
    broker = make("a").broker
    broker.users.set_user("old", password="before", tags=["monitoring"])
    users = [
        {"name": name, "password": "after", "tags": "administrator", "limits": limits}
        for name in ("old", "new")]

    report = Importer(broker).run({"users": users})

    assert len(report.refused) == 2 and all(why in line for line in report.refused), report.refused
    assert "new" not in broker.users
    assert broker.users.get("old").tags == ("monitoring",)
    assert has_password(broker.users, "old", "before")


def test_importing_user_has_rights_in_vhosts_that_the_import_makes_and_in_no_other(make):
    broker = make("a").broker
    broker.users.set_user("ann", password="x", tags=["administrator"])
    broker.create_vhost("old")

    Importer(broker, by="ann").run({"vhosts": [{"name": "old"}, {"name": "new"}]})

    assert set(broker.users.get("ann").permissions) == {"new"}
    right = broker.users.get("ann").permissions["new"]
    assert (right.configure, right.write, right.read) == (".*", ".*", ".*")


@pytest.mark.parametrize("by", [None, ""])
def test_import_at_boot_or_by_a_token_gives_nobody_rights(make, by):
    broker = make("a").broker

    Importer(broker, by=by).run({"vhosts": [{"name": "new"}]})

    assert "new" in broker.vhosts
    assert not any("new" in user.permissions for user in broker.users)


def test_queues_with_reserved_names_and_their_bindings_are_left_out_and_said(make):
    broker = make("a").broker
    there = broker.vhosts["/"].declare_queue("", durable=True)[0].name

    report = Importer(broker).run({
        "queues": [{"name": "amq.gen-gone", "vhost": "/", "durable": True}, {"name": "q", "vhost": "/"}],
        "bindings": [
            {"source": "amq.topic", "vhost": "/", "destination": queue, "destination_type": "queue",
             "routing_key": "#"} for queue in ("amq.gen-gone", there)]})

    assert report.ignored == [
        "queues: 'amq.gen-gone' in vhost '/': names that begin with amq. are the broker's own",
        "bindings: from 'amq.topic' to 'amq.gen-gone' with '#' in vhost '/': names that begin with amq. are "
        "the broker's own"]
    assert report.imported == {"queues": 1, "bindings": 1} and report.refused == []
    assert "amq.gen-gone" not in broker.vhosts["/"].queues
