"""Definitions of shovels: what is taken, and what the texts of refusals say."""
import pytest

from gomq_py.links.uris import without_login
from gomq_py.shovel.definition import (
    ACK_MODES, Definition, DefinitionError, is_local, values_of, with_vhost,
)

PLAIN = {"src-uri": "amqp://", "src-queue": "from", "dest-uri": "amqp://other", "dest-queue": "to"}
SECTION = {"src-uri": "amqp://", "src-queue": "12", "dest-uri": "amqp://other", "dest-queue": "to"}


def test_what_is_not_given_has_its_default():
    definition = Definition(PLAIN)

    assert definition.src_uri == ("amqp://",) and definition.dest_uri == ("amqp://other",)
    assert (definition.src_queue, definition.src_exchange, definition.dest_queue) == ("from", None, "to")
    assert (definition.src_prefetch_count, definition.reconnect_delay, definition.ack_mode) == (
        1000, 5, "on-confirm"
    )
    assert definition.src_delete_after is None and definition.dest_refusal_limit == 0
    assert not definition.is_webhook


@pytest.mark.parametrize("key, value, kept", [
    ("src-uri", ["amqp://a", "amqps://b"], ("amqp://a", "amqps://b")),
    ("src-delete-after", "queue-length", "queue-length"), ("src-delete-after", "never", None),
    ("src-delete-after", 0, 0), ("src-delete-after", 17, 17),
    ("src-prefetch-count", 1, 1), ("src-prefetch-count", 65535, 65535),
    ("reconnect-delay", 0, 0), ("reconnect-delay", 0.5, 0.5),
    ("src-queue-args", {"x-queue-type": "stream"}, {"x-queue-type": "stream"}), ("src-queue-args", [], {}),
    ("src-consumer-args", {"x-stream-offset": "first"}, {"x-stream-offset": "first"}),
    ("dest-publish-properties", {"content-type": "t", "delivery_mode": 2, "headers": {"a": 1}},
     {"content_type": "t", "delivery_mode": 2, "headers": {"a": 1}}),
    *(("ack-mode", mode, mode) for mode in ACK_MODES),
])
def test_values_are_kept(key, value, kept):
    definition = Definition({**PLAIN, key: value})

    assert getattr(definition, key.replace("-", "_")) == kept


def test_rabbitmqs_older_names_are_taken():
    definition = Definition({
        **PLAIN, "prefetch-count": 7, "delete-after": 9, "add-forward-headers": True,
        "publish-properties": {"priority": 3}})

    assert (
        definition.src_prefetch_count, definition.src_delete_after, definition.dest_add_forward_headers,
        definition.dest_publish_properties,
    ) == (7, 9, True, {"priority": 3})


def test_a_webhook_is_a_destination_of_its_own():
    definition = Definition({
        "src-uri": "amqp://", "src-queue": "q", "dest-uri": "https://u:p@web/hook", "dest-secret": "s",
        "dest-timeout": 3})

    assert definition.is_webhook and (definition.dest_secret, definition.dest_timeout) == ("s", 3)
    assert definition.dest_tls == {}


def test_a_web_server_is_verified_as_the_query_of_an_amqp_uri_would_say():
    given = {
        "dest-cacertfile": "ca.pem", "dest-certfile": "c.pem", "dest-keyfile": "k.pem",
        "dest-verify": "verify_none", "dest-server-name-indication": "name", "dest-depth": 0}

    definition = Definition({"src-uri": "amqp://", "src-queue": "q", "dest-uri": ["HTTPS://web/"], **given})

    assert definition.dest_tls == {
        "cacertfile": "ca.pem", "certfile": "c.pem", "keyfile": "k.pem", "verify": "verify_none",
        "server_name_indication": "name", "depth": 0}


@pytest.mark.parametrize("changes, text", [
    ({"src-uri": None}, "src-uri is missing"),
    ({"dest-uri": None}, "dest-uri is missing"),
    ({"src-queue": None}, "src-queue or src-exchange is missing"),
    ({"src-exchange": "x"}, "src-queue and src-exchange are both given"),
    ({"dest-exchange": "x"}, "dest-queue and dest-exchange are both given"),
    ({"src-exchange-key": "k"}, "src-exchange-key is about src-exchange"),
    ({"src-uri": 5}, "src-uri: a URI is a string"), ({"src-uri": []}, "src-uri: a list of URIs has"),
    ({"src-uri": ["amqp://"] * 101}, "1 to 100"), ({"src-uri": "http://web"}, "src-uri: a URI here begins"),
    ({"src-uri": "amqp://h:99999"}, "src-uri: the URI has no host or port that can be read"),
    ({"src-uri": "amqps://"}, "src-uri: the URI has no host"), ({"dest-uri": "http://"}, "no host"),
    ({"dest-uri": ["amqp://a", "http://b"]}, "one kind"),
    ({"dest-uri": "http://b", "dest-queue": None, "dest-depth": 1}, "dest-depth is of TLS"),
    ({"dest-uri": "https://b", "dest-queue": None, "dest-depth": -1}, "dest-depth is a whole number"),
    ({"dest-uri": "https://b", "dest-queue": None, "dest-keyfile": "k"}, "without dest-certfile"),
    ({"dest-uri": "https://b", "dest-queue": None, "dest-cacertfile": ""}, "dest-cacertfile is the name"),
    ({"dest-verify": "verify_peer"}, "whose URI says it in its query"),
    ({"dest-uri": "http://b"}, "dest-queue is of brokers"), ({"dest-secret": "s"}, "web servers"),
    ({"src-queue": ""}, "src-queue is a name"), ({"src-queue": "x" * 256}, "255"),
    ({"src-queue": "ü" * 128}, "255"), ({"src-queue": 5}, "src-queue is a name"),
    ({"src-prefetch-count": 0}, "1 to 65535"), ({"src-prefetch-count": 65536}, "65535"),
    ({"src-prefetch-count": True}, "whole number"), ({"src-prefetch-count": 1.5}, "whole number"),
    ({"src-prefetch-count": "10"}, "whole number"),
    ({"src-delete-after": "soon"}, "never, queue-length or a number"),
    ({"src-delete-after": -1}, "never"), ({"src-delete-after": True}, "never"),
    ({"src-delete-after": 1 << 63}, "never"), ({"src-delete-after": []}, "never"),
    ({"ack-mode": "sometimes"}, "on-confirm, on-publish, no-ack"), ({"ack-mode": {}}, "on-confirm"),
    ({"reconnect-delay": -1}, "seconds"), ({"reconnect-delay": float("nan")}, "seconds"),
    ({"reconnect-delay": float("inf")}, "seconds"), ({"reconnect-delay": "5"}, "seconds"),
    ({"reconnect-delay": 10 ** 400}, "seconds"),
    ({"src-protocol": "amqp10"}, "src-protocol may be amqp091 only"),
    ({"dest-protocol": "local"}, "dest-protocol may be amqp091 only"),
    ({"src-queue-args": "x"}, "object"), ({"src-consumer-args": [1]}, "object"),
    ({"dest-publish-properties": {"color": "red"}}, "color in dest-publish-properties is no property"),
    ({"dest-publish-properties": {"priority": 256}}, "priority in dest-publish-properties"),
    ({"dest-publish-properties": {"delivery_mode": 3}}, "delivery_mode"),
    ({"dest-publish-properties": {"headers": "x"}}, "headers in dest-publish-properties"),
    ({"src-predeclared": "yes"}, "true or false"),
    ({"src-adress": "x"}, "'src-adress' is no key of a shovel; there are src-protocol, src-uri"),
    ({"prefetch-count": 5, "src-prefetch-count": 5}, "given twice"),
])
def test_what_cannot_be_is_refused_with_a_text_that_names_the_key(changes, text):
    with pytest.raises(DefinitionError, match=None) as refused:
        Definition({**PLAIN, **changes})

    assert text in str(refused.value) and "\n" not in str(refused.value)


@pytest.mark.parametrize("value", [None, 5, "x", [], [PLAIN], True])
def test_what_is_no_object_is_refused(value):
    with pytest.raises(DefinitionError, match="a shovel is an object"):
        Definition(value)


def test_no_refusal_repeats_a_password():
    for uri in (
            "amqp://u:hush@h:99999", "http://u:hush@h", "amqp://u:hush@[h", "amqp://u:hu sh@h",
            "u:hush@h", "amqp://u:hush@h:0"):
        with pytest.raises(DefinitionError) as refused:
            Definition({**PLAIN, "src-uri": uri})
        assert "hush" not in str(refused.value)


@pytest.mark.parametrize("uri, local, whole, bare", [
    ("amqp://", True, "amqp:///a%2Fb", "amqp://"),
    ("amqp:///v", True, "amqp:///v", "amqp:///v"),
    ("amqp://?heartbeat=5", True, "amqp:///a%2Fb?heartbeat=5", "amqp://"),
    ("amqp://h", False, "amqp://h/a%2Fb", "amqp://h"),
    ("amqp://h/", False, "amqp://h/", "amqp://h/"),
    ("amqps://u:p@h:5/v?password=x", False, "amqps://u:p@h:5/v?password=x", "amqps://h:5/v"),
    ("http://u:p@h/hook", False, "http://u:p@h/hook", "http://h/***"),
])
def test_uris_are_told_apart_and_get_the_vhost_of_the_shovel(uri, local, whole, bare):
    assert is_local(uri) == local
    assert with_vhost(uri, "a/b") == whole
    assert without_login(uri) == bare


def test_add_timestamp_header_has_its_old_name():
    value = {"src-uri": "amqp://", "src-queue": "a", "dest-uri": "amqp://", "add-timestamp-header": True}

    assert Definition(value).dest_add_timestamp_header


# sections of the configuration, read as parameters are

def test_text_becomes_what_the_key_may_be():
    vhost, value = values_of({
        **SECTION, "vhost": "shop", "dest-uri": "amqp://a, amqp://b", "src-prefetch-count": "7",
        "reconnect-delay": "0.5", "src-delete-after": "queue-length", "dest-predeclared": "yes",
        "src-consumer-args": '{"x-stream-offset": 5}'})

    assert vhost == "shop"
    assert value == {
        **SECTION, "dest-uri": ["amqp://a", "amqp://b"], "src-prefetch-count": 7, "reconnect-delay": 0.5,
        "src-delete-after": "queue-length", "dest-predeclared": True,
        "src-consumer-args": {"x-stream-offset": 5}}
    assert Definition(value).src_queue == "12"  # a name, whatever it looks like


def test_every_key_of_a_parameter_is_read_by_what_it_wants():
    """One that came later was not: its number stayed a text, and was refused."""
    to_hook = {key: text for key, text in SECTION.items() if key != "dest-queue"}
    _, value = values_of({**to_hook, "dest-uri": "https://hook", "dest-depth": "2", "dest-timeout": "1.5"})

    assert (value["dest-depth"], value["dest-timeout"]) == (2, 1.5)


@pytest.mark.parametrize("changes, text", [
    ({"src-consumer-args": "{"}, "src-consumer-args is an object as JSON"),
    ({"src-prefetch-count": "many"}, "src-prefetch-count is a whole number"),
    ({"src-prefetch-count": "9" * 5000}, "src-prefetch-count is a whole number"),
    ({"dest-predeclared": "maybe"}, "dest-predeclared is true or false"),
    ({"color": "red"}, "'color' is no key of a shovel"),
    ({"src-consumer-args": "[" * 100000}, "src-consumer-args is an object"),
])
def test_what_cannot_be_is_refused(changes, text):
    with pytest.raises(DefinitionError) as refused:
        values_of({**SECTION, **changes})

    assert text in str(refused.value)
