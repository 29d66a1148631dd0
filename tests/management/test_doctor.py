"""/api/doctor, /api/closed, previews of policies and differences of definitions: what is wrong, why something
ended, and what a change would do before it is made.
"""
from urllib.parse import quote

import pika
import pytest

from tests.support.waiting import wait_until


def findings(api):
    answer = api.get("doctor")
    assert answer.status_code == 200
    return [(one["level"], one["kind"], one["name"]) for one in answer.json()["findings"]]


def found(api, finding, absent=False):
    wait_until(lambda: (finding in findings(api)) is not absent, what=f"{finding} in the doctor's answer")


# what is wrong

def test_the_doctor_tells_of_queues_that_do_not_run_with_a_remedy(api, name):
    api.put(f"vhosts/{name}")
    api.put(f"queues/{name}/still")
    api.put(f"queues/{name}/still/pause")

    found(api, ("warning", "queue", "still"))

    row = [one for one in api.get("doctor").json()["findings"] if one["name"] == "still"][0]
    assert (row["vhost"], row["text"], row["remedy"]) == (name, "paused", "resume_queue delivers again")
    api.put(f"queues/{name}/still/resume")
    found(api, ("warning", "queue", "still"), absent=True)
    api.delete(f"vhosts/{name}")


def test_the_doctor_shows_a_user_what_lists_would(api, name):
    api.put(f"vhosts/{name}")
    api.put(f"queues/{name}/still")
    api.put(f"queues/{name}/still/pause")
    api.put("users/outsider", {"password": "outsider", "tags": "management"})
    found(api, ("warning", "queue", "still"))

    assert findings(api.as_user("outsider", "outsider")) == []

    api.put(f"permissions/{name}/outsider", {"configure": "", "write": "", "read": ""})
    assert findings(api.as_user("outsider", "outsider")) == [("warning", "queue", "still")]
    api.delete(f"vhosts/{name}")


# why something ended

def closed(api, **query):
    answer = api.get("closed", params=query)
    assert answer.status_code == 200
    return answer.json()


def test_a_closed_channel_and_connection_are_told_with_their_reasons(api, managed, name):
    parameters = pika.URLParameters(managed.amqp_url)
    parameters.client_properties = {"connection_name": name}
    connection = pika.BlockingConnection(parameters)
    with pytest.raises(pika.exceptions.ChannelClosedByBroker):
        connection.channel().queue_declare("no-such-queue", passive=True)
    mine = next(
        one["name"] for one in api.get("connections").json() if one["user_provided_name"] == name)

    channel = closed(api, name=mine, kind="channels")[0]
    api.delete(f"connections/{quote(mine, safe='')}", headers={"X-Reason": "was in the way"})
    with pytest.raises(pika.exceptions.AMQPError):
        connection.process_data_events(5)
        connection.channel()
    wait_until(
        lambda: closed(api, name=mine, kind="connections"), what="the connection among those that ended")

    ended = closed(api, name=mine)[0]
    assert (channel["what"], channel["channel"]) == ("channel", 1) and "no-such-queue" in channel["reason"]
    assert (ended["what"], ended["user_provided_name"]) == ("connection", name)
    assert "was in the way" in ended["reason"]
    assert ended["connected_at"] <= ended["closed_at"]


def test_others_connections_are_told_to_whom_lists_show_them(api, managed, name):
    api.put("users/alone", {"password": "alone", "tags": "management"})
    pika.BlockingConnection(pika.URLParameters(managed.amqp_url)).close()
    wait_until(lambda: closed(api), what="a connection that ended")

    assert closed(api.as_user("alone", "alone")) == []
    assert api.get("closed?kind=queues").status_code == 400


# what a policy would change

def test_a_preview_tells_what_a_policy_would_match_and_change_and_changes_nothing(api, name):
    api.put(f"vhosts/{name}")
    for queue in ("one", "two", "other"):
        api.put(f"queues/{name}/{queue}")
    api.put(f"policies/{name}/old", {"pattern": "^one$", "definition": {"max-length": 5}, "priority": 1})
    wanted = {"pattern": "^(one|two)$", "definition": {"max-length": 9}, "apply-to": "queues", "priority": 2}

    preview = api.post(f"policies/{name}/new/preview", wanted).json()

    assert (preview["matched"], preview["changed"]) == ({"queues": 2, "exchanges": 0}, 2)
    assert {(one["name"], one["policy_before"], one["policy_after"]) for one in preview["changes"]} == {
        ("one", "old", "new"), ("two", None, "new")
    }
    one = next(one for one in preview["changes"] if one["name"] == "one")
    assert one["settings"] == [{"key": "max-length", "before": 5, "after": 9}]
    assert [policy["name"] for policy in api.get(f"policies/{name}").json()] == ["old"]
    assert api.get(f"queues/{name}/one").json()["policy"] == "old"

    capped = api.post(f"operator-policies/{name}/cap/preview", {
        "pattern": "one", "definition": {"max-length": 2}}).json()
    assert [one["settings"] for one in capped["changes"]] == [
        [{"key": "max-length", "before": 5, "after": 2}]]
    # one that would be beaten by the policy there is
    beaten = api.post(f"policies/{name}/weak/preview", {**wanted, "pattern": "one", "priority": 0}).json()
    assert (beaten["matched"]["queues"], beaten["changed"]) == (1, 0)
    api.delete(f"vhosts/{name}")


@pytest.mark.parametrize("body", [
    {}, {"pattern": "(", "definition": {"max-length": 1}}, {"pattern": "a", "definition": {"nosuch": 1}},
    {"pattern": "a", "definition": {}}, {"pattern": 7, "definition": {"max-length": 1}},
])
def test_a_preview_refuses_what_setting_would_refuse(api, body):
    assert api.post("policies/%2F/new/preview", body).status_code == 400


def test_a_preview_shows_a_policy_with_the_rights_of_whoever_asks_and_others_with_their_setters(api, name):
    api.put(f"vhosts/{name}")
    for queue in ("mine", "secret"):
        api.put(f"queues/{name}/{queue}")
    for user in ("anna", "bob"):
        api.put(f"users/{user}", {"password": user, "tags": "policymaker"})
        api.put(f"permissions/{name}/{user}", {"configure": "", "write": "^mine", "read": "^mine"})
    handing_on = {"pattern": "^(mine|secret)$", "definition": {"dead-letter-exchange": "mine"}}
    api.as_user("anna", "anna").put(f"policies/{name}/annas", handing_on).raise_for_status()
    bob = api.as_user("bob", "bob")

    changes = bob.post(f"policies/{name}/p/preview", {**handing_on, "priority": 1}).json()["changes"]
    by_operator = api.post(f"operator-policies/{name}/o/preview", {
        "pattern": "secret", "definition": {"max-length": 1}}).json()["changes"]

    assert {one["name"]: one["settings"] for one in changes} == {"mine": [], "secret": []}
    assert [one["settings"] for one in by_operator] == [[{"key": "max-length", "before": None, "after": 1}]]
    refused = bob.post(
        f"policies/{name}/p/preview", {"pattern": "", "definition": {"dead-letter-exchange": "x"}})
    assert (refused.status_code, "refused for user 'bob'" in refused.json()["reason"]) == (400, True)
    api.delete(f"vhosts/{name}")


# what an import would change

def test_a_difference_tells_what_an_import_would_do_and_does_nothing(api, name):
    api.put(f"vhosts/{name}")
    api.put(f"queues/{name}/here", {"durable": True})
    there = {
        "vhosts": [{"name": name}],
        "queues": [
            {"name": "here", "vhost": name, "durable": False, "arguments": {}},
            {"name": "new", "vhost": name, "durable": True, "arguments": {}},
        ],
        "exchanges": [{"name": "odd", "vhost": name, "type": "x-nosuch"}],
        "users": [{"name": "guest", "tags": ["administrator"]}],
    }

    answer = api.post("definitions/difference", there).json()

    assert {(one["action"], one["kind"], one["name"]) for one in answer["differences"]} == {
        ("differs", "queues", "here"), ("new", "queues", "new"), ("refused", "exchanges", "odd"),
    }
    assert answer["counts"] == {"differs": 1, "new": 1, "refused": 1}
    assert [one["name"] for one in api.get(f"queues/{name}").json()] == ["here"]

    inside = {"queues": [{"name": "here", "durable": True, "arguments": {}}, {"name": "new"}]}
    answer = api.post(f"definitions/{name}/difference", inside).json()
    assert [(one["action"], one["name"]) for one in answer["differences"]] == [("new", "new")]
    api.delete(f"vhosts/{name}")


@pytest.mark.parametrize("body", [
    {"queues": 7}, {"queues": [7]}, {"queues": [{"name": ["x"]}]},
    {"queues": [{"name": "guest", "vhost": {"a": 1}}]}, {"users": [{"name": "guest", "tags": 7}]},
])
def test_a_difference_from_nonsense_is_refused(api, body):
    assert api.post("definitions/difference", body).status_code == 400
