"""``gomq-py-ctl import``: a whole RabbitMQ moves over, live and from the export it made;
and exports of others.
"""
import json
from pathlib import Path

import pika
import pytest
import requests

from tests.ctl.running import Runner, data
from tests.support import rabbitmq_estate as estate
from tests.support.broker_process import BrokerProcess
from tests.support.rabbitmq_process import RabbitMQProcess
from tests.support.waiting import in_time

# What RabbitMQ 3.10 exports after tests.support.rabbitmq_estate has filled it; `make_export` writes it anew.
EXPORT = Path(__file__).with_name("rabbitmq-3.10.json")

CHANGED = {
    "policies: 'lazy' in vhost 'shop': kept without effect: queue-mode",
    "policies: 'ha' in vhost 'shop': kept without effect: ha-mode, ha-params, ha-sync-mode",
    (
        "queues: 'orders.quorum' in vhost 'shop': quorum: "
        "a durable queue of this node, with the delivery limit of quorum queues"
    ),
}
IGNORED = {
    "users: 'old': tags without a meaning here: legacy-team",
    "global_parameters: 'internal_cluster_id': the identity of another cluster",
}
REFUSED = ["exchanges: 'x.history' in vhost 'shop': unknown exchange type 'x-recent-history'"]
# Fields that 3.10 does not export, or exports otherwise.
NEWER = {"vhosts": ("tags", "description", "metadata", "default_queue_type"), "queues": ("type",)}
# Lists whose entries are the same here as there, and what names an entry in them.
SAME = {
    "vhosts": ("name",), "users": ("name",), "permissions": ("vhost", "user"),
    "topic_permissions": ("vhost", "user"), "parameters": ("vhost", "name"), "policies": ("vhost", "name"),
    "exchanges": ("vhost", "name"), "queues": ("vhost", "name"),
    "bindings": ("vhost", "source", "destination", "routing_key"),
}


@pytest.fixture
def broker(tmp_path):
    with BrokerProcess(tmp_path / "data", http_port=0, no_sync=True) as process:
        yield process


@pytest.fixture
def ctl(broker):
    return Runner(f"http://127.0.0.1:{broker.ports['http']}")


def make_export(url):
    """Write the fixture anew, from a node that `estate.build` has filled."""
    with estate.Management(url) as api:
        EXPORT.write_text(
            json.dumps(api.call("GET", "definitions"), indent=1, ensure_ascii=False) + "\n", encoding="utf-8"
        )


def check_moved(broker, ctl, theirs):
    """Everything that can be is here now: entry by entry as it was there,
    and the users log in with their old passwords.
    """
    mine = data(ctl("export_definitions"))
    left_out = {"x.history"}
    for kind, names in SAME.items():
        fields = NEWER.get(kind, ())
        here = {_key(entry, names): _without(entry, fields) for entry in mine[kind]}
        for entry in theirs[kind]:
            if entry["name" if "name" in entry else names[0]] not in left_out:
                assert here[_key(entry, names)] == _without(entry, fields)
    for user, password in estate.PASSWORDS.items():
        whoami = requests.get(
            f"http://127.0.0.1:{broker.ports['http']}/api/whoami", auth=(user.encode(), password.encode()),
            timeout=in_time(60),
        )
        assert whoami.status_code == (200 if estate.USERS[user][2] else 401), user
    parameters = pika.ConnectionParameters(
        "127.0.0.1", broker.ports["amqp"], "shop",
        pika.PlainCredentials("shop app", estate.PASSWORDS["shop app"]))
    connection = pika.BlockingConnection(parameters)
    channel = connection.channel()
    method = channel.queue_declare("orders.quorum", passive=True).method
    assert method.queue == "orders.quorum"
    with pytest.raises(pika.exceptions.ChannelClosedByBroker, match="ACCESS_REFUSED"):
        channel.queue_declare("mine", durable=True)
    connection.close()


def _key(entry, names):
    return tuple(entry[name] for name in names) + (json.dumps(entry.get("arguments"), sort_keys=True),)


def _without(entry, fields):
    entry = {key: value for key, value in entry.items() if key not in fields}
    if "tags" in entry:
        entry["tags"] = sorted(entry["tags"])
    return entry


def check_report(report):
    assert (set(report["changed"]), set(report["ignored"]), report["refused"]) == (CHANGED, IGNORED, REFUSED)
    assert report["imported"] == {
        "vhosts": 4, "users": 6, "permissions": 9, "topic_permissions": 1, "parameters": 4,
        "global_parameters": 1, "policies": 5, "exchanges": 9, "queues": 9, "bindings": 11,
    }


def test_a_real_export_of_rabbitmq_moves_over(broker, ctl):
    theirs = json.loads(EXPORT.read_text(encoding="utf-8"))

    dry = data(ctl("-f", "json", "import_definitions", "--dry-run", str(EXPORT)))
    untouched = data(ctl("-f", "json", "list_vhosts"))
    finished = ctl("-f", "json", "import_definitions", str(EXPORT))

    assert untouched == [{"name": "/"}]
    assert [row["name"] for row in dry if row["action"] == "refused"] == ["x.history"]
    assert sum(row["action"] == "new" for row in dry) == 56
    assert finished.returncode == 1, "an entry was refused"
    check_report(json.loads(finished.stdout))
    check_moved(broker, ctl, theirs)


def test_importing_again_changes_nothing_and_survives_a_restart(broker, ctl):
    ctl("import_definitions", str(EXPORT))
    once = data(ctl("export_definitions"))

    again = ctl("-f", "json", "import_definitions", str(EXPORT))
    twice = data(ctl("export_definitions"))
    broker.restart()

    check_report(json.loads(again.stdout))
    assert twice == once
    there = data(Runner(f"http://127.0.0.1:{broker.ports['http']}")("export_definitions"))
    assert {kind: _sorted(there[kind]) for kind in SAME} == {kind: _sorted(once[kind]) for kind in SAME}


def _sorted(entries):
    return sorted(json.dumps(entry, sort_keys=True) for entry in entries)


def moved_back(rabbitmq, ours):
    """What a RabbitMQ exports that has lost everything and was given our export instead."""
    with estate.Management(rabbitmq.http_url) as api:
        for vhost in estate.VHOSTS:
            api.call("DELETE", "vhosts", vhost)
        for user in estate.USERS:
            api.call("DELETE", "users", user)
        api.call("POST", "definitions", **ours)
        return api.call("GET", "definitions")


def check_moved_back(theirs, back):
    """Nothing is lost on the way there and back but what this broker had refused."""
    for kind in SAME:
        there = set(_sorted(back[kind]))
        lost = [
            entry
            for entry in theirs[kind]
            if entry.get("name") != "x.history" and not there.intersection(_sorted([entry]))
        ]
        assert lost == [], kind


@pytest.mark.long
@pytest.mark.needs_program("rabbitmq-server")
def test_a_live_rabbitmq_moves_over(tmp_path, broker, ctl):
    """As above, from the node itself; what its export leaves out of virtual hosts
    comes from its list of them.
    """
    folder = tmp_path / "rabbitmq"
    folder.mkdir()
    with RabbitMQProcess(folder, plugins=estate.PLUGINS) as rabbitmq:
        estate.build(rabbitmq.http_url, rabbitmq.amqp_url)
        with estate.Management(rabbitmq.http_url) as api:
            theirs = api.call("GET", "definitions")

        dry = data(ctl("-f", "json", "import", "--from", rabbitmq.http_url, "--dry-run"))
        finished = ctl("-f", "json", "import", "--from", rabbitmq.http_url)
        wrong = ctl(
            "import", "--from", rabbitmq.http_url, "--from-user", "ann", GOMQ_CTL_FROM_PASSWORD="hush-hush"
        )
        back = moved_back(rabbitmq, data(ctl("export_definitions")))

    assert sum(row["action"] == "new" for row in dry) == 56
    assert finished.returncode == 1
    check_report(json.loads(finished.stdout))
    check_moved(broker, ctl, theirs)
    check_moved_back(theirs, back)
    assert {"name": "shop", "description": "the shop", "tags": ["eu", "production"]} in [
        {**row, "tags": sorted(row["tags"])}
        for row in data(ctl("-f", "json", "list_vhosts", "name", "description", "tags"))]
    assert wrong.returncode == 1 and "not authorised" in wrong.stderr and "hush" not in wrong.stderr


HASH = "+pHuxkR9fCyrrwXjOD4BP4XbzO3l8LJr8YkThMgJ0yVHFRE+"
# LavinMQ: tags as a list or as text, no version of RabbitMQ, apply-to with underscores,
# no internal exchanges.
LAVINMQ = {
    "lavinmq_version": "2.4.0",
    "users": [
        {"name": "ann", "password_hash": HASH, "hashing_algorithm": "sha256", "tags": ["administrator"]},
        {
            "name": "bob", "password_hash": HASH, "hashing_algorithm": "sha256",
            "tags": "management,monitoring",
        },
    ],
    "vhosts": [
        {"name": "/", "dir": "42099b4af021e53fd8fd4e056c2568d7c2e3ffa8"}, {"name": "shop", "dir": "x"}
    ],
    "permissions": [{"user": "ann", "vhost": "shop", "configure": ".*", "read": ".*", "write": ".*"}],
    "queues": [
        {
            "name": "q", "vhost": "shop", "durable": True, "auto_delete": False,
            "arguments": {"x-queue-type": "stream"},
        },
    ],
    "exchanges": [
        {
            "name": "x", "vhost": "shop", "type": "topic", "durable": True, "auto_delete": False,
            "internal": False, "arguments": {},
        },
    ],
    "bindings": [
        {
            "source": "x", "vhost": "shop", "destination": "q", "destination_type": "queue",
            "routing_key": "#", "arguments": {},
        },
    ],
    "policies": [
        {
            "vhost": "shop", "name": "p", "pattern": ".*", "apply-to": "classic_queues",
            "definition": {"max-length": 3}, "priority": 0,
        },
    ],
    "parameters": [
        {"component": "vhost-limits", "vhost": "shop", "name": "limits", "value": {"max-queues": 9}}
    ],
    "global_parameters": [],
}


def test_an_export_of_lavinmq_moves_over_whole(broker, ctl):
    finished = ctl("-f", "json", "import_definitions", "-", given=json.dumps(LAVINMQ))

    report = data(finished)
    assert (report["changed"], report["ignored"], report["refused"]) == ([], [], [])
    rows = data(ctl("-f", "json", "list_users"))
    tags = {row["name"]: sorted(row["tags"]) for row in rows if row["name"] != "guest"}
    assert tags == {"ann": ["administrator"], "bob": ["management", "monitoring"]}
    assert broker.is_running


def test_a_file_that_makes_no_sense_changes_nothing_and_is_one_line(ctl):
    before = data(ctl("export_definitions"))

    half = '{"vhosts": [{"name": "v"}], "queues": [{"vhost": "/"}]}'
    for given, code, text in (
        ("[]", 1, "definitions should be an object"), (half, 1, "lacks name"),
        ('{"vhosts": [', 2, "is no JSON"), ("\0", 2, "is no JSON"),
    ):
        finished = ctl("import_definitions", "-", given=given)
        assert finished.returncode == code and text in finished.stderr and "Traceback" not in finished.stderr

    assert data(ctl("export_definitions")) == before
