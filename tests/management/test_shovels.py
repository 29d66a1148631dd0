"""Shovels over the API: set as parameters, listed, paused, resumed, restarted, deleted; who may do what."""
import pytest

from tests.management.description import validator
from tests.support.waiting import wait_until

# This machine's own addresses are for administrators' shovels.
ELSEWHERE = "amqp://ann:hush@nobody.invalid:1"


@pytest.fixture
def value():
    """A shovel to where nobody listens: it runs and tries again and again."""
    # port 1: the system gives it to nobody
    return {
        "src-uri": "amqp://", "src-queue": "from", "dest-queue": "to", "reconnect-delay": 3600,
        "dest-uri": "amqp://ann:hush@127.0.0.1:1",
    }


@pytest.fixture
def vhost(api, name):
    """A vhost of this test's own, which guest may use."""
    api.put(f"vhosts/{name}")
    yield name
    api.delete(f"vhosts/{name}")


@pytest.fixture
def user(api, vhost, name):
    """A function that makes a user of these tags with rights in the vhost, and returns its credentials."""
    made = []

    def make(tags, rights=".*"):
        user = f"{name[:40]}-{len(made)}"
        made.append(user)
        api.put(f"users/{user}", {"password": user, "tags": tags})
        api.put(f"permissions/{vhost}/{user}", {"configure": rights, "write": rights, "read": rights})
        return user, user

    yield make
    for user in made:
        api.delete(f"users/{user}")


def test_a_shovel_is_shown_with_rabbitmqs_fields_while_it_is_there(api, vhost, value):
    assert api.put(f"parameters/shovel/{vhost}/s", {"value": value}).status_code == 201

    (one,) = api.get(f"shovels/{vhost}").json()
    again = api.get(f"shovels/{vhost}/s").json()
    still = ("timestamp", "error", "reconnects", "lag")  # the others say what it is
    assert {**again, **{key: one[key] for key in still}} == one
    assert one["name"] in [each["name"] for each in api.get("shovels").json()]
    assert api.get(f"shovels/vhost/{vhost}/s").json()["name"] == "s"
    for path, shown in (("shovels", api.get("shovels").json()), ("shovels/{vhost}/{name}", again)):
        check = validator(f"/api/{path}", "GET", 200)
        assert [error.message for error in check.iter_errors(shown)] == []
    assert (one["type"], one["vhost"], one["src_queue"], one["dest_queue"], one["src_protocol"]) == (
        "dynamic", vhost, "from", "to", "amqp091"
    )
    assert one["dest_uri"] == f"amqp://127.0.0.1:1/{vhost}" and "hush" not in api.get("shovels").text

    assert api.delete(f"shovels/{vhost}/s").status_code == 204
    assert api.get(f"shovels/{vhost}/s").status_code == 404
    assert api.get(f"parameters/shovel/{vhost}/s").status_code == 404


def test_an_end_that_nobody_answers_at_is_said_and_which_one_it_is(api, vhost, value):
    api.put(f"parameters/shovel/{vhost}/s", {"value": value})

    wait_until(lambda: "destination" in api.get(f"shovels/{vhost}/s").json()["error"], what="it is said")

    assert api.get(f"shovels/{vhost}/s").json()["state"] == "starting"


def test_pause_resume_and_restart(api, vhost, value):
    api.put(f"parameters/shovel/{vhost}/s", {"value": value})

    assert api.put(f"shovels/{vhost}/s/resume").status_code == 422
    assert api.put(f"shovels/{vhost}/s/pause").status_code == 204
    assert api.put(f"shovels/{vhost}/s/pause").status_code == 422
    assert api.get(f"shovels/{vhost}/s").json()["state"] == "paused"
    assert api.put(f"shovels/{vhost}/s/resume").status_code == 204
    assert api.put(f"shovels/{vhost}/s/restart").status_code == 204
    assert api.delete(f"shovels/vhost/{vhost}/s/restart").status_code == 204
    assert api.get(f"shovels/{vhost}/s").json()["state"] == "starting"


@pytest.mark.parametrize("verb, path", [
    ("PUT", "pause"), ("PUT", "resume"), ("PUT", "restart"), ("DELETE", ""), ("GET", ""),
])
def test_a_shovel_that_is_not_there_is_not_found(api, vhost, verb, path):
    assert api.request(verb, f"shovels/{vhost}/none/{path}".rstrip("/")).status_code == 404
    assert api.request(verb, f"shovels/no-such-vhost/none/{path}".rstrip("/")).status_code == 404


@pytest.mark.parametrize("changes, text", [
    ({"src-queue": 5}, "src-queue is a name"), ({"dest-uri": "ftp://x"}, "dest-uri: a URI here begins with"),
    ({"ack-mode": "x"}, "ack-mode is one of"), ({"src-queue": None}, "src-queue or src-exchange is missing"),
    ({"dest-uri": "amqps://h?cacertfile=/etc/passwd"}, "dest-uri: cacertfile"),
])
def test_what_makes_no_shovel_is_400_with_the_keys_name(api, vhost, value, changes, text):
    refused = api.put(f"parameters/shovel/{vhost}/s", {"value": {**value, **changes}})

    assert refused.status_code == 400 and f"Validation failed\n\n{text}" in refused.json()["reason"]
    assert "hush" not in refused.text and api.get(f"shovels/{vhost}").json() == []


def test_tags_decide_who_sees_and_who_sets(api, vhost, value, user):
    value["dest-uri"] = ELSEWHERE
    api.put(f"parameters/shovel/{vhost}/s", {"value": value})

    expected = {"management": (401, 401, 401), "monitoring": (200, 401, 401), "policymaker": (200, 204, 204)}
    for tag, wanted in expected.items():
        theirs = api.as_user(*user(tag))
        assert (
            theirs.get(f"shovels/{vhost}").status_code,
            theirs.put(f"shovels/{vhost}/s/pause").status_code,
            theirs.put(f"parameters/shovel/{vhost}/s", {"value": value}).status_code,
        ) == wanted, tag


def test_a_local_end_needs_the_rights_of_who_sets_it(api, vhost, value, user):
    value["dest-uri"] = ELSEWHERE
    theirs = api.as_user(*user("policymaker", "^mine"))

    refused = theirs.put(f"parameters/shovel/{vhost}/s", {"value": value})

    assert refused.status_code == 400
    assert f"access to queue 'from' in vhost '{vhost}' refused for user" in refused.json()["reason"]


def test_a_definition_written_back_as_it_was_shown_keeps_its_password(api, vhost, value):
    api.put(f"parameters/shovel/{vhost}/s", {"value": value})
    shown = api.get(f"parameters/shovel/{vhost}/s").json()["value"]
    assert "***" in shown["dest-uri"]

    api.put(f"parameters/shovel/{vhost}/s", {"value": {**shown, "src-prefetch-count": 5}})

    (entry,) = api.get(f"definitions/{vhost}").json()["parameters"]
    assert entry["value"] == {**value, "src-prefetch-count": 5}


@pytest.fixture
def local(api, vhost, user):
    """A shovel between two queues of this broker that a policymaker has set, and that user's name."""
    name, password = user("policymaker")
    value = {
        "src-uri": "amqp://", "src-queue": "from", "dest-uri": "amqp://", "dest-queue": "to",
        "reconnect-delay": 0.1}
    answer = api.as_user(name, password).put(f"parameters/shovel/{vhost}/s", {"value": value})
    assert answer.status_code == 201
    _wait(api, vhost, "running")
    return name


def _wait(api, vhost, state):
    def is_so():
        one = api.get(f"shovels/{vhost}/s").json()
        return one if one["state"] == state else None
    return wait_until(is_so, what=lambda: api.get(f"shovels/{vhost}/s").text)


@pytest.mark.parametrize("withdrawn, text", [
    ({"configure": ".*", "write": ".*", "read": "^to$"}, "access to queue 'from' in vhost '{vhost}' refused"),
    ({"configure": ".*", "write": "^from$", "read": ".*"}, "access to exchange 'amq.default' in vhost"),
    (None, "access to vhost '{vhost}' refused for user '{user}'"),
])
def test_a_shovel_stops_when_its_users_rights_are_withdrawn_and_goes_on_when_they_are_back(
    api, vhost, local, withdrawn, text
):
    path = f"permissions/{vhost}/{local}"

    api.put(path, withdrawn) if withdrawn else api.delete(path)

    assert text.format(vhost=vhost, user=local) in _wait(api, vhost, "error")["error"]
    wait_until(lambda: not [one for one in api.get("connections").json() if one["vhost"] == vhost])
    api.put(path, {"configure": ".*", "write": ".*", "read": ".*"})
    assert _wait(api, vhost, "running")["error"] == ""


def test_a_shovel_stops_with_the_user_who_set_it_and_another_may_take_it_over(api, vhost, local):
    api.delete(f"users/{local}")

    assert "or was deleted" in _wait(api, vhost, "error")["error"]
    value = api.get(f"parameters/shovel/{vhost}/s").json()["value"]
    api.put(f"parameters/shovel/{vhost}/s", {"value": value})
    _wait(api, vhost, "running")


def test_a_shovel_stops_when_its_user_is_no_policymaker_any_more(api, vhost, local):
    api.put(f"users/{local}", {"password": local, "tags": "management"})

    assert f"user '{local}', who set the shovel, has not the tag policymaker" in _wait(
        api, vhost, "error")["error"]


def test_a_shovel_that_fails_is_no_fault_of_the_nodes(api, vhost, value):
    api.put(f"parameters/shovel/{vhost}/s", {"value": value})
    wait_until(lambda: "destination" in api.get(f"shovels/{vhost}/s").json()["error"])

    for check in ("alarms", "local-alarms", "virtual-hosts", "node-is-quorum-critical"):
        assert api.get(f"health/checks/{check}").status_code == 200
