"""Upstreams and sets: what is refused, and what a policy makes of them."""
from types import SimpleNamespace

import pytest

from gomq_py.broker.policies.policy import Policy
from gomq_py.content.properties import Properties
from gomq_py.federation.parameters import check_set, check_upstream, upstreams_for
from gomq_py.federation.queue_link import QueueLink
from gomq_py.federation.supervisor import Federation
from tests.support.model import make_vhost

URI = "amqp://there"


def refuse_ftp(uri):
    if uri.startswith("ftp"):
        raise ValueError("no such scheme")


@pytest.mark.parametrize("value, text", [
    ({}, 'Key "uri" not found in u'), ("x", "u should be an object, actually was 'x'"),
    ({"uri": 1}, "uri should be a string, actually was 1"), ({"uri": []}, "uri should be a string"),
    ({"uri": [URI, "ftp://x"]}, "uri: no such scheme"), ({"uri": "ftp://x"}, "uri: no such scheme"),
    ({"uri": URI, "bogus": 1, "a": 2}, r"Unrecognised terms \['a', 'bogus'\] in u"),
    ({"uri": URI, "exchange": 1}, "exchange should be a string, actually was 1"),
    ({"uri": URI, "queue": "q" * 256}, "queue should have at most 255 bytes"),
    ({"uri": URI, "prefetch-count": "1"}, "prefetch-count should be a number, actually was '1'"),
    ({"uri": URI, "prefetch-count": True}, "prefetch-count should be a number, actually was True"),
    ({"uri": URI, "prefetch-count": 65536}, "prefetch-count should be a number from 0 to 65535"),
    ({"uri": URI, "reconnect-delay": -1}, "reconnect-delay should be a number from 0"),
    ({"uri": URI, "reconnect-delay": 1e300}, "reconnect-delay should be a number from 0"),
    ({"uri": URI, "max-hops": -1}, "max-hops should be a number from 0"),
    ({"uri": URI, "max-hops": 1.5}, "max-hops should be a number, actually was 1.5"),
    ({"uri": URI, "expires": 0}, "expires should be a number from 1"),
    ({"uri": URI, "message-ttl": -1}, "message-ttl should be a number from 0"),
    ({"uri": URI, "ack-mode": "x"}, "ack-mode should be one of no-ack, on-publish, on-confirm, actually was"),
    ({"uri": URI, "ack-mode": []}, "ack-mode should be one of"),
    ({"uri": URI, "trust-user-id": 1}, "trust-user-id should be a boolean, actually was 1"),
    ({"uri": URI, "bind-nowait": "x"}, "bind-nowait should be a boolean"),
    ({"uri": URI, "resource-cleanup-mode": "x"}, "resource-cleanup-mode should be one of default, never"),
    ({"uri": URI, "channel-use-mode": "x"}, "channel-use-mode should be one of multiple, single"),
    ({"uri": URI, "queue-type": "stream"}, "queue-type should be one of classic, quorum"),
    ({"uri": URI, "ha-policy": 1}, "ha-policy should be a string"),
])
def test_value_that_is_no_upstream_is_refused(value, text):
    with pytest.raises(ValueError, match=text):
        check_upstream("u", value, refuse_ftp)


@pytest.mark.parametrize("check, value", [
    (check_upstream, "amqp://u:hush@a"), (check_upstream, [{"uri": "amqp://u:hush@a"}]),
    (check_upstream, {"uri": [["amqp://u:hush@a"]]}), (check_upstream, {"uri": {"a": "amqp://u:hush@a"}}),
    (check_set, {"uri": "amqp://u:hush@a"}), (check_set, ["amqp://u:hush@a"]),
    (check_set, [[{"uri": "amqp://u:hush@a"}]]),
])
def test_refusal_repeats_no_password(check, value):
    with pytest.raises(ValueError) as refused:
        check("u", value, *([refuse_ftp] if check is check_upstream else []))
    assert "hush" not in str(refused.value)


def test_count_of_visits_that_no_broker_has_written_ends_no_link():
    """Whoever publishes may say that a message has been there 2**63 - 1 times."""
    place = {"uri": "amqp://a", "queue": "q"}
    link = SimpleNamespace(
        _received_from=lambda: dict(place), upstream=SimpleNamespace(trust_user_id=True))
    properties = Properties(headers={"x-received-from": [{**place, "visit-count": (1 << 63) - 1}]})

    edited = QueueLink._edit(
        link, properties, SimpleNamespace(redelivered=False, exchange="", routing_key="q"))

    assert Properties.decode(edited.encode()).headers["x-received-from"][0]["visit-count"] == (1 << 63) - 1


def test_every_key_of_rabbitmq_is_taken():
    check_upstream("u", {
        "uri": [URI, "amqps://two/v"], "exchange": "x", "queue": "", "consumer-tag": "t",
        "prefetch-count": 0, "reconnect-delay": 0.5, "ack-mode": "no-ack", "max-hops": 3,
        "expires": 3600000, "message-ttl": 0, "trust-user-id": True, "bind-nowait": True,
        "channel-use-mode": "single", "resource-cleanup-mode": "never", "queue-type": "quorum",
        "ha-policy": "all"}, refuse_ftp)


@pytest.mark.parametrize("value, text", [
    ({}, "s should be a list, actually was {}"), (["u"], "s should be an object, actually was 'u'"),
    ([{}], 'Key "upstream" not found in s'), ([{"upstream": 1}], "upstream should be a string"),
    ([{"upstream": "u", "uri": URI}], r"Unrecognised terms \['uri'\] in s"),
    ([{"upstream": "u", "max-hops": "2"}], "max-hops should be a number"),
])
def test_value_that_is_no_set_is_refused(value, text):
    with pytest.raises(ValueError, match=text):
        check_set("s", value)


@pytest.fixture
def vhost():
    vhost, _, _ = make_vhost()
    vhost.declare_exchange("fed", "topic")
    return vhost


def under(vhost, **definition):
    """The upstreams of exchange fed under a policy that says this."""
    definition = {key.replace("_", "-"): value for key, value in definition.items()}
    vhost.policies.user.put(Policy("p", "^fed", definition))
    vhost.policies.changed()
    return upstreams_for(vhost, vhost.exchange("fed"))


def define(vhost, name, component="federation-upstream", value=None):
    vhost.parameters[component, name] = {"uri": f"amqp://{name}"} if value is None else value


def test_policy_names_one_upstream_a_set_or_those_that_match(vhost):
    for name in ("b", "a", "c1"):
        define(vhost, name)
    define(vhost, "s", "federation-upstream-set", [{"upstream": "c1"}, {"upstream": "gone"}])

    found = [
        [upstream.name for upstream in under(vhost, **definition)] for definition in (
            {"federation_upstream": "a"}, {"federation_upstream": "gone"}, {"federation_upstream_set": "s"},
            {"federation_upstream_set": "all"}, {"federation_upstream_set": "gone"},
            {"federation_upstream_pattern": "^[ab]$"}, {"message_ttl": 1})]

    assert found == [["a"], [], ["c1"], ["a", "b", "c1"], [], ["a", "b"], []]


def test_set_called_all_may_be_defined_after_all(vhost):
    define(vhost, "a")
    define(vhost, "b")
    define(vhost, "all", "federation-upstream-set", [{"upstream": "b"}])

    assert [upstream.name for upstream in under(vhost, federation_upstream_set="all")] == ["b"]


def test_entry_of_a_set_wins_over_its_upstream_and_one_upstream_may_be_there_twice(vhost):
    define(vhost, "a", value={"uri": "amqp://a", "exchange": "x", "max-hops": 2})
    define(vhost, "s", "federation-upstream-set", [
        {"upstream": "a"}, {"upstream": "a", "exchange": "y"}, {"upstream": "a", "exchange": "y"}])

    found = under(vhost, federation_upstream_set="s")

    assert [(each.exchange, each.max_hops) for each in found] == [("x", 2), ("y", 2)]


def test_defaults_are_rabbitmqs(vhost):
    define(vhost, "a", value={"uri": "amqp://a", "exchange": ""})

    upstream, = under(vhost, federation_upstream="a")

    assert (upstream.exchange, upstream.queue, upstream.consumer_tag) == ("fed", "fed", "federation-link-a")
    assert (upstream.prefetch_count, upstream.reconnect_delay_s, upstream.max_hops) == (None, 1, 1)
    assert (upstream.ack_mode, upstream.expires_ms, upstream.message_ttl_ms) == ("on-confirm", None, None)
    assert upstream.cleans_up and not upstream.trust_user_id and not upstream.bind_nowait


@pytest.mark.parametrize("uri, meant", [
    ("amqp://u:p@h:1", "amqp://u:p@h:1/%2F"), ("amqp://h/?heartbeat=1", "amqp://h/%2F?heartbeat=1"),
    ("amqp://h/v", "amqp://h/v"), ("amqp://", "amqp://"), ("amqp:///v", "amqp:///v"),
])
def test_uri_without_a_vhost_means_the_one_of_the_same_name(vhost, uri, meant):
    define(vhost, "a", value={"uri": uri})

    assert under(vhost, federation_upstream="a")[0].uris == (meant,)


def test_stored_values_that_are_no_upstream_or_set_keep_nothing_else_from_starting(vhost):
    define(vhost, "a")
    for name, value in (("bad", {}), ("worse", "text"), ("worst", {"uri": "amqp://x", "max-hops": "many"})):
        define(vhost, name, value=value)
    define(vhost, "s", "federation-upstream-set", {"no": "list"})

    found = {each.name: each.fault for each in under(vhost, federation_upstream_set="all")}
    in_set, = under(vhost, federation_upstream_set="s")

    assert found == {
        "a": None, "bad": 'Key "uri" not found in bad',
        "worse": "worse should be an object, actually was 'text'",
        "worst": "max-hops should be a number, actually was 'many'"}
    assert (in_set.name, in_set.fault) == ("s", "s should be a list, actually was an object")


@pytest.mark.parametrize("key, value", [
    ("federation-upstream", []), ("federation-upstream", {}), ("federation-upstream", 1 << 70),
    ("federation-upstream-set", [["s"]]), ("federation-upstream-pattern", "("),
    ("federation-upstream-pattern", 5), ("federation-upstream-pattern", None),
])
def test_stored_policies_that_name_nothing_sound_make_no_link(vhost, key, value):
    """Of an earlier version, which took them; those of other exchanges are looked at all the same."""
    define(vhost, "a")

    entity = SimpleNamespace(name="fed", in_force=SimpleNamespace(
        policy=SimpleNamespace(name="p"), definition={key: value}))
    assert Federation._upstreams_for(vhost, entity) == []


@pytest.mark.parametrize("value", [
    {"uri": "amqp://x:99999999"}, {"uri": ["amqp://x"] * 101}, {"uri": "amqp://[x"},
    {"uri": "amqp://x", "refusal-limit": -1}, {"uri": "amqp://x", "prefetch-count": 1 << 70},
    {"uri": "amqp://x", "reconnect-delay": 1 << 2000}, {"uri": "amqp://x", "max-hops": 1e308},
    {"uri": "amqp://x", "ack-mode": {}}, {"uri": "amqp://x", "exchange": "\ud800"}, {"uri": {}},
], ids=lambda value: str(value)[-50:])
def test_bad_upstreams_that_are_stored_make_no_link(vhost, value):
    define(vhost, "a")
    define(vhost, "bad", value=value)

    sound, bad = under(vhost, federation_upstream_set="all")
    assert (sound.name, sound.fault, bad.name, bad.uris) == ("a", None, "bad", ())
    assert bad.fault and not bad.waiting


def test_reason_of_a_stored_upstream_repeats_no_password(vhost):
    define(vhost, "bad", value={"uri": "amqp://u:hush@[x:hush"})

    bad, = under(vhost, federation_upstream="bad")

    assert bad.fault.startswith("uri: the URI has no host or port") and "hush" not in bad.fault


def test_keys_without_effect_are_told_and_make_no_other_link(vhost):
    define(vhost, "a")
    before, = under(vhost, federation_upstream="a")
    define(vhost, "a", value={"uri": "amqp://a", "ha-policy": "all", "channel-use-mode": "single"})
    after, = under(vhost, federation_upstream="a")

    assert (before.ignored, after.ignored) == ((), ("ha-policy", "channel-use-mode"))
    assert after == before


def test_what_was_set_while_nothing_acted_on_it_waits(vhost):
    define(vhost, "a")
    define(vhost, "b")
    vhost.waiting.add(("federation-upstream", "a"))

    upstreams = under(vhost, federation_upstream_set="all")
    vhost.waiting.add(("policy", "p"))
    under_waiting = under(vhost, federation_upstream_set="all")

    assert [(upstream.name, upstream.waiting) for upstream in upstreams] == [
        ("a", (("federation-upstream", "a"),)), ("b", ())]
    assert "federation-upstream 'a': it was set while nothing acted on it" in upstreams[0].fault
    assert [upstream.waiting for upstream in under_waiting] == [
        (("policy", "p"), ("federation-upstream", "a")), (("policy", "p"),)]


def test_link_at_the_place_of_another_takes_over_what_that_has_made(vhost):
    define(vhost, "a", value={"uri": "amqp://u:old@h/v"})
    before, = under(vhost, federation_upstream="a")
    places = []
    for value in (
        {"uri": "amqp://u:new@h/v", "prefetch-count": 5}, {"uri": "amqp://elsewhere/v"},
        {"uri": "amqp://h/v", "exchange": "another"},
    ):
        define(vhost, "a", value=value)
        after, = under(vhost, federation_upstream="a")
        assert after != before
        places.append(after.is_at_the_place_of(before))

    assert places == [True, False, False]
