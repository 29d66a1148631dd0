"""Who may do what with shovels, upstreams and links: each route, each tag, with and without rights in the
virtual host; and that no answer tells the password of a URI.
"""
import pytest
import requests

from tests.support.waiting import in_time, wait_until

VHOST = "link rights"
UPSTREAM = {"uri": "amqp://ann:hush@nobody.invalid:1"}
SHOVEL = {"src-uri": UPSTREAM["uri"], "src-queue": "a", "dest-uri": UPSTREAM["uri"]}
LOCAL = {**SHOVEL, "src-uri": "amqp://", "dest-queue": "b"}
TAGS = ("", "impersonator", "management", "monitoring", "policymaker", "administrator")
LOOKS, CHANGES, SEES_VALUES = ("monitoring", "policymaker"), ("policymaker",), ("policymaker",)
# verb, path, body, tags besides administrator that it is for
ROUTES = (
    ("GET", "shovels/{v}", None, LOOKS), ("GET", "shovels/{v}/s", None, LOOKS),
    ("GET", "shovels/vhost/{v}/s", None, LOOKS), ("GET", "federation-links/{v}", None, LOOKS),
    ("GET", "federation-links/{v}/state/down", None, LOOKS),
    ("GET", "parameters/shovel/{v}", None, SEES_VALUES),
    ("GET", "parameters/shovel/{v}/s", None, SEES_VALUES),
    ("GET", "parameters/federation-upstream/{v}/u", None, SEES_VALUES),
    ("GET", "parameters/federation-upstream-set/{v}/t", None, SEES_VALUES),
    ("PUT", "shovels/{v}/s/pause", None, CHANGES), ("PUT", "shovels/{v}/s/resume", None, CHANGES),
    ("PUT", "shovels/{v}/s/restart", None, CHANGES),
    ("DELETE", "shovels/vhost/{v}/s/restart", None, CHANGES),
    ("PUT", "federation-links/vhost/{v}/{link}/restart", None, CHANGES),
    ("DELETE", "federation-links/vhost/{v}/{link}/node/restart", None, CHANGES),
    ("PUT", "parameters/shovel/{v}/s", SHOVEL, CHANGES),
    ("PUT", "parameters/federation-upstream/{v}/u", UPSTREAM, CHANGES),
    ("PUT", "parameters/federation-upstream-set/{v}/t", [{"upstream": "u"}], CHANGES),
    ("DELETE", "parameters/shovel/{v}/s", None, CHANGES),
    ("DELETE", "parameters/federation-upstream/{v}/u", None, CHANGES),
    ("DELETE", "parameters/federation-upstream-set/{v}/t", None, CHANGES),
    ("DELETE", "shovels/{v}/s", None, CHANGES),
)


@pytest.fixture(scope="module")
def ask(managed):
    """A function (verb, path, body, user) that returns the answer, as guest where no user is named."""
    base = f"http://127.0.0.1:{managed.ports['http']}/api"
    sessions = {}
    for name in ["guest"] + [f"{tag or 'none'} {rights}" for tag in TAGS for rights in ("in", "out")]:
        sessions[name] = requests.Session()
        sessions[name].auth = (name, name)

    def ask(verb, path, body=None, user="guest"):
        return sessions[user].request(
            verb, f"{base}/{path.replace('{v}', 'link%20rights')}", timeout=in_time(60),
            json={"value": body} if body is not None else {} if verb == "PUT" else None)

    guest, everything = sessions["guest"], {"configure": ".*", "write": ".*", "read": ".*"}
    ask("PUT", "vhosts/{v}")
    for tag in TAGS:
        for rights in ("in", "out"):
            name = f"{tag or 'none'} {rights}"
            guest.put(f"{base}/users/{name}", json={"password": name, "tags": tag}, timeout=in_time(60))
            where = "link%20rights" if rights == "in" else "%2F"
            guest.put(f"{base}/permissions/{where}/{name}", json=everything, timeout=in_time(60))
    guest.put(f"{base}/exchanges/link%20rights/fed", json={"type": "fanout"}, timeout=in_time(60))
    guest.put(f"{base}/policies/link%20rights/p", timeout=in_time(60), json={
        "pattern": "^fed$", "definition": {"federation-upstream": "u"}})
    yield ask
    ask("DELETE", "vhosts/{v}")
    for name, session in sessions.items():
        session.close()
        if name != "guest":
            ask("DELETE", f"users/{name}")


def furnish(ask):
    """A shovel, an upstream with a link, a set; the link's id."""
    for component, name, value in (
        ("shovel", "s", SHOVEL), ("federation-upstream", "u", UPSTREAM),
        ("federation-upstream-set", "t", [{"upstream": "u"}]),
    ):
        assert ask("PUT", f"parameters/{component}/{{v}}/{name}", value).status_code in (201, 204)
    return wait_until(lambda: ask("GET", "federation-links/{v}").json())[0]["id"]


@pytest.mark.parametrize(
    "verb, path, body, tags", ROUTES, ids=lambda part: part if isinstance(part, str) else "")
def test_route_is_for_whose_tag_and_rights_reach_it(ask, verb, path, body, tags):
    """Monitoring sees every virtual host, administrators see and set in every one, without rights there."""
    for tag in TAGS:
        for rights in ("in", "out"):
            link = furnish(ask)
            may = tag == "administrator" or tag in tags and (rights == "in" or tag == "monitoring")

            answer = ask(verb, path.replace("{link}", link), body, f"{tag or 'none'} {rights}")

            done = (200, 201, 204, 422) if path.endswith("resume") else (200, 201, 204)
            assert answer.status_code in (done if may else (401,)), (tag, rights, answer.text)
            assert "hush" not in answer.text
            if verb == "GET" or not may:
                shown = ask("GET", "parameters/shovel/{v}/s")
                assert shown.status_code == 200 and shown.json()["value"]["src-queue"] == "a"
            if path.endswith("pause") and may:
                assert ask("PUT", "shovels/{v}/s/resume").status_code == 204


@pytest.mark.parametrize("path", ["shovels", "federation-links", "parameters", "parameters/shovel",
                                  "parameters/federation-upstream"])
def test_lists_of_all_virtual_hosts_show_those_that_the_user_sees(ask, path):
    furnish(ask)
    for tag in ("monitoring", "policymaker", "administrator"):
        for rights in ("in", "out"):
            answer = ask("GET", path, None, f"{tag} {rights}")
            if tag == "monitoring" and path.startswith("parameters"):
                assert answer.status_code == 401
                continue
            shown = [one for one in answer.json() if one["vhost"] == VHOST]
            assert bool(shown) is (rights == "in" or tag != "policymaker"), (tag, rights)
            assert "hush" not in answer.text


def test_local_end_needs_rights_of_whoever_sets_it_administrators_too(ask):
    for tag in ("policymaker", "administrator"):
        assert ask("PUT", "parameters/shovel/{v}/s", LOCAL, f"{tag} in").status_code in (201, 204)
    refused = ask("PUT", "parameters/shovel/{v}/s", LOCAL, "administrator out")

    assert refused.status_code == 400
    assert f"access to vhost '{VHOST}' refused for user 'administrator out'" in refused.json()["reason"]
    for tag in ("management", "monitoring", "policymaker"):
        assert ask("GET", "definitions/{v}", None, f"{tag} in").status_code == 401
