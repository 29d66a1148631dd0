"""Passwords in texts and values."""
import time

import pytest

from gomq_py.observability.secrets import restored, shown, without_keys, without_passwords

SHOVEL = {
    "src-uri": ["amqp://ann:pass%20word@host/v", "amqps://bob:x:y@other:5671"],
    "dest-uri": "amqps://c@h/v?password=key&verify=verify_peer",
    "src-queue": "q", "prefetch": 5, "http": {"client_secret": "s", "password": ""},
}
SHOWN = {
    "src-uri": ["amqp://ann:***@host/v", "amqps://bob:***@other:5671"],
    "dest-uri": "amqps://***@h/v?password=***&verify=verify_peer",
    "src-queue": "q", "prefetch": 5, "http": {"client_secret": "***", "password": ""},
}


@pytest.mark.parametrize("text, told", [
    ("amqp://u:p@h/v", "amqp://u:***@h/v"), ("amqp://:p@h", "amqp://:***@h"),
    ("no uri: a:b@c", "no uri: a:b@c"),
    ("amqp://h:5672/v", "amqp://h:5672/v"),
    ("two http://a:b@c and AMQPS://d:e@f", "two http://a:***@c and AMQPS://d:***@f"),
    ("http://h/?token=abc#x", "http://h/?token=***#x"),
    ("to https://h/in?key=abc&x=&sig, 'http://g/?k'", "to https://h/in?key=***&x=***&*** 'http://g/?***'"),
    ("amqp://h/v?heartbeat=5", "amqp://h/v?heartbeat=5"),
    ("amqp://u:p@ss@h/v", "amqp://u:***@h/v"), ("amqp://u:p/w?x#y@h/v", "amqp://u:***@h/v"),
    ("amqp://t.o.ken@h/v", "amqp://***@h/v"), ("https://a@b@h:1/x", "https://***@h:1/x"),
    ("amqp://u:@h", "amqp://***:@h"), ("AMQP://h, http://t@g", "AMQP://h, http://***@g"),
    ("amqps://h/v?x-api-key=abc&y=1", "amqps://h/v?x-api-key=***&y=1"),
    ("http://h:8080/~me@home", "http://h:8080/~me@home"), ("amqp://[::1]:5672/v@x", "amqp://[::1]:5672/v@x"),
    ("amqp://a:1@b,amqp://c:2@d;amqps://e:x/4@f", "amqp://a:***@b,amqp://c:***@d;amqps://e:***@f"),
    # could be a port
    ("('amqp://u:p/q@h', 'x@y')", "('amqp://u:***@h', 'x@y')"), ("amqp://u:1/2@h", "amqp://u:1/2@h"),
])
def test_passwords_of_uris_are_hidden(text, told):
    assert without_passwords(text) == told


def test_a_value_is_shown_without_its_secrets_and_stays_as_it_is():
    before = repr(SHOVEL)

    assert shown(SHOVEL) == SHOWN
    assert repr(SHOVEL) == before


def test_what_comes_back_as_it_was_shown_is_what_it_was():
    assert restored(SHOWN, SHOVEL) == SHOVEL
    assert restored(
        {**SHOWN, "prefetch": 6, "src-uri": ["amqp://ann:new@host/v", SHOWN["src-uri"][1]]}, SHOVEL
    ) == {
        **SHOVEL, "prefetch": 6, "src-uri": ["amqp://ann:new@host/v", SHOVEL["src-uri"][1]]}


def test_asterisks_from_elsewhere_are_no_password():
    """Another host must not be told the password of this one."""
    assert restored({"src-uri": "amqp://ann:***@elsewhere/v"}, {"src-uri": "amqp://ann:p@host/v"}) == {
        "src-uri": "amqp://ann:***@elsewhere/v"
    }
    assert restored(SHOWN, None) == SHOWN


def test_secret_that_was_shown_is_for_the_place_it_was_set_for():
    before = {"dest-uri": "https://hooks/in?key=k", "dest-secret": "s", "src-queue": "q"}

    assert restored({**shown(before), "src-queue": "p"}, before) == {**before, "src-queue": "p"}
    for changed in ({"dest-uri": "https://elsewhere/in?key=***"}, {"src-uri": "amqp://"}):
        with pytest.raises(ValueError, match="dest-secret: give it anew, for (dest|src)-uri has changed"):
            restored({**shown(before), **changed}, before)
    anew = {**before, "dest-uri": "https://elsewhere", "dest-secret": "t"}
    assert restored(anew, before) == anew


@pytest.mark.parametrize("uri, told", [
    ("https://hooks.slack.com/services/T0/B0/XyZ", "https://hooks.slack.com/***"),
    ("https://u:p/w@h:1/a/b?c=d", "https://u:***@h:1/***?c=***"), ("HTTP://h/a", "HTTP://h/***"),
    ("https://h", "https://h"), ("https://h/", "https://h/"), ("https://h/?c=d", "https://h/?c=***"),
    ("amqp://h/vhost", "amqp://h/vhost"),
])
def test_path_of_a_web_server_is_hidden_in_a_uri(uri, told):
    for field in ("uri", "dest-uri", "url", "WebHook_URL"):
        assert shown({field: uri}) == {field: told}
        assert shown({field: [uri, uri]}) == {field: [told, told]}
        assert restored(shown({field: [uri]}), {field: [uri]}) == {field: [uri]}
    assert told in without_keys(f"to {uri} and on")
    assert restored({"uri": "https://g/***"}, {"uri": uri}) == {"uri": "https://g/***"}


def test_secret_is_not_kept_for_another_path_of_its_web_server():
    before = {"dest-uri": "https://h/mine", "dest-secret": "s"}

    assert restored(shown(before), before) == before
    with pytest.raises(ValueError, match="dest-secret: give it anew, for dest-uri has changed"):
        restored({"dest-uri": "https://h/theirs", "dest-secret": "***"}, before)


@pytest.mark.parametrize("field, is_hidden", [
    ("password", True), ("src-password", True), ("Client_Secret", True), ("access_token", True),
    ("apikey", True), ("api_key", True), ("X-Api-Key", True), ("Authorization", True), ("access-key", True),
    ("Set-Cookie", True), ("src-exchange-key", False), ("routing_key", False), ("key", False),
    ("tokens", False), ("secretary", False), (5, False),
])
def test_names_of_fields_tell_secrets(field, is_hidden):
    assert shown({field: "x"}) == {field: "***" if is_hidden else "x"}
    assert restored(shown({field: "x"}), {field: "x"}) == {field: "x"}


@pytest.mark.parametrize("text", ["a://b:c" * 20_000, "a." * 60_000 + "://", "a://" + "?" * 120_000])
def test_text_of_many_uris_takes_no_time(text):

    began = time.thread_time()

    assert without_passwords(text) == text
    assert time.thread_time() - began < 2
