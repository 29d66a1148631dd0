"""The difference between two exports, as an operator reads it before an import."""
from gomq_py.diagnosis.difference import (
    MIRROR_NOTE, NO_VHOST_NOTE, NOT_IN_A_VHOST_NOTE, QUORUM_NOTE, Difference,
)
from gomq_py.global_names import IMPORTED

QUEUE = {"name": "q", "vhost": "/", "durable": True, "auto_delete": False, "arguments": {}}


def rows(here, there, exchange_types=None):
    return [
        (row["action"], row["kind"], row["name"], row["note"])
        for row in Difference(here, there, exchange_types).rows()
    ]


def test_what_is_here_already_is_left_out():
    assert rows({"queues": [QUEUE]}, {"queues": [QUEUE]}) == []


def test_new_things_and_different_ones_are_told():
    assert rows({"queues": [QUEUE]}, {"queues": [{**QUEUE, "durable": False}, {**QUEUE, "name": "r"}]}) == [
        ("differs", "queues", "q", "differs from here in durable; the import leaves it as it is"),
        ("new", "queues", "r", "")]


def test_quorum_queues_and_mirrors_are_noted():
    there = {"queues": [{**QUEUE, "arguments": {"x-queue-type": "quorum"}}],
             "policies": [{"name": "ha", "vhost": "/", "pattern": ".*", "definition": {"ha-mode": "all"}}]}

    assert rows({}, there) == [("new", "policies", "ha", MIRROR_NOTE), ("new", "queues", "q", QUORUM_NOTE)]


def test_tags_are_the_same_as_text_and_as_list():
    assert (
        rows({"users": [{"name": "u", "tags": ["a", "b"]}]}, {"users": [{"name": "u", "tags": "b,a"}]}) == []
    )


def test_bindings_are_told_apart_by_key_and_arguments():
    binding = {
        "source": "x", "vhost": "/", "destination": "q", "destination_type": "queue", "routing_key": "a",
        "arguments": {},
    }

    assert [
        row[2]
        for row in rows({"bindings": [binding]}, {"bindings": [binding, {**binding, "arguments": {"n": 1}}]})
    ] == ["x -> q (a)"]


def test_lists_that_nobody_knows_are_named():
    assert rows({}, {"wonders": [1], "rabbit_version": "3.10.8"}) == [
        ("ignored", "wonders", "", "a list that this broker does not know")
    ]


def test_predeclared_exchanges_are_nobodys_news():
    assert rows({}, {
        "exchanges": [
            {"name": "", "vhost": "/", "type": "direct"}, {"name": "amq.topic", "vhost": "/", "type": "topic"}
        ],
    }) == []


def test_of_users_and_policies_the_import_replaces_what_is_here():
    assert rows(
        {"users": [{"name": "u", "password_hash": "a"}]}, {"users": [{"name": "u", "password_hash": "b"}]}
    ) == [
        ("differs", "users", "u", "differs from here in password_hash; the import replaces it")]


def test_what_will_be_refused_is_told_before():
    there = {
        "exchanges": [{"name": "x", "vhost": "/", "type": "x-recent-history"}],
        "queues": [{**QUEUE, "vhost": "gone"}], "permissions": [{"user": "nobody", "vhost": "/"}],
        "global_parameters": [
            {"name": "internal_cluster_id", "value": "other"}, {"name": IMPORTED, "value": "a.json"},
        ],
    }
    here = {"vhosts": [{"name": "/"}], "users": [{"name": "guest"}]}

    assert rows(here, there, {"direct"}) == [
        ("refused", "permissions", "nobody", "no user 'nobody'"),
        ("ignored", "global_parameters", "internal_cluster_id", "the identity of another cluster"),
        ("ignored", "global_parameters", IMPORTED, "a broker's note about its own data folder"),
        ("refused", "exchanges", "x", "unknown exchange type 'x-recent-history'"),
        ("refused", "queues", "q", "no vhost 'gone'")]


def test_an_entry_without_a_vhost_is_the_default_ones():
    bare = {key: value for key, value in QUEUE.items() if key != "vhost"}

    assert rows({"queues": [QUEUE]}, {"queues": [bare]}) == [("same", "queues", "q", NO_VHOST_NOTE)]


def test_of_a_file_of_all_vhosts_one_vhost_gets_its_own_lists_alone():
    there = {
        "vhosts": [{"name": "other"}], "users": [{"name": "u"}],
        "permissions": [{"user": "u", "vhost": "other"}],
        "queues": [{**QUEUE, "vhost": "other"}, {**QUEUE, "name": "r"}],
    }

    found = list(Difference({"queues": [{"name": "q", "durable": True}]}, there, is_whole=False).rows())

    assert [(row["action"], row["kind"], row["name"], row["note"]) for row in found] == [
        *(("ignored", kind, "", NOT_IN_A_VHOST_NOTE) for kind in ("vhosts", "users", "permissions")),
        ("new", "queues", "r", "")]


def test_bindings_of_the_default_exchange_are_nobodys_news():
    assert rows({}, {
        "bindings": [
            {"source": "", "vhost": "/", "destination": "q", "destination_type": "queue", "routing_key": "q"}
        ],
    }) == []
