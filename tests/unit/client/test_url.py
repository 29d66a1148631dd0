"""URLs of AMQP and MQTT: what each part means, and what is refused."""
import pytest

from gomq_py.client.url import MQTTParameters, Parameters, parse_mqtt_url, parse_url


@pytest.mark.parametrize(("url", "expected"), [
    ("amqp://", Parameters()),
    ("amqp://host", Parameters(host="host")),
    ("amqp://host/", Parameters(host="host", virtual_host="/")),
    ("amqp://host/%2f", Parameters(host="host", virtual_host="/")),
    ("amqp://host/a%2fb", Parameters(host="host", virtual_host="a/b")),
    (
        "amqp://user:pa%3Ass%40@host:123/v",
        Parameters(host="host", port=123, user="user", password="pa:ss@", virtual_host="v"),
    ),
    ("amqp://user:@host", Parameters(host="host", user="user", password="")),
    ("amqps://host", Parameters(host="host", port=5671, tls=True)),
    ("amqp://[::1]:5673", Parameters(host="::1", port=5673)),
    (
        "amqp://h?heartbeat=0&connection_timeout=500",
        Parameters(host="h", options={"heartbeat": 0, "connection_timeout": 500}),
    ),
    (
        "amqps://h?depth=2&server_name_indication=disable",
        Parameters(host="h", port=5671, tls=True, options={"depth": 2, "server_name_indication": "disable"}),
    ),
    (
        "amqp://h/v?name=n&auth_mechanism=AMQPLAIN",
        Parameters(host="h", virtual_host="v", options={"name": "n", "auth_mechanism": "AMQPLAIN"}),
    ),
])
def test_a_url_means_its_parts(url, expected):
    assert parse_url(url) == expected


@pytest.mark.parametrize(("url", "reason"), [
    ("http://host", "scheme is 'http'"), ("host:5672", "scheme is 'host'"), ("//host", "scheme is 'missing'"),
    ("amqp://host:70000", "port"),
    ("amqp://host:x", "port"), ("amqp://host?heartbeat=often", "heartbeat"),
    ("amqp://host?hartbeat=5", "hartbeat"),
])
def test_a_bad_url_is_refused_with_the_reason(url, reason):
    with pytest.raises(ValueError, match=reason):
        parse_url(url)


@pytest.mark.parametrize("host", ["host:x", "ho\u2100st", "[host", "[::1"])
def test_the_refusal_does_not_show_the_password(host):
    with pytest.raises(ValueError) as caught:
        parse_url(f"amqp://user:secret@{host}")

    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(("url", "expected"), [
    ("mqtt://", MQTTParameters()),
    ("mqtt://host", MQTTParameters(host="host")),
    ("mqtt://host/", MQTTParameters(host="host")),
    ("mqtt://u@host/%2f", MQTTParameters(host="host", user="u", virtual_host="/")),
    ("mqtt://u:pa%3Ass%40@host:123/a%2fb",
     MQTTParameters(host="host", port=123, user="u", password="pa:ss@", virtual_host="a/b")),
    ("mqtt://u:@host", MQTTParameters(host="host", user="u", password="")),
    ("mqtts://host", MQTTParameters(host="host", port=8883, tls=True)),
    ("mqtt://[::1]:1884", MQTTParameters(host="::1", port=1884)),
    (
        "mqtt://h?version=5&clean_start=false&keep_alive=9&client_id=a%20b",
        MQTTParameters(
            host="h", options={"version": 5, "clean_start": False, "keep_alive": 9, "client_id": "a b"}
        ),
    ),
    ("mqtt://h?version=3.1&session_expiry=60&cacertfile=/ca.pem",
     MQTTParameters(host="h", options={"version": 3, "session_expiry": 60, "cacertfile": "/ca.pem"})),
])
def test_an_mqtt_url_means_its_parts(url, expected):
    assert parse_mqtt_url(url) == expected


@pytest.mark.parametrize(("url", "user_name"), [
    ("mqtt://h", None), ("mqtt://u@h", "u"), ("mqtt://u@h/v", "v:u"), ("mqtt://u@h/%2f", "/:u"),
])
def test_the_virtual_host_goes_before_the_user_name(url, user_name):
    assert parse_mqtt_url(url).user_name == user_name


@pytest.mark.parametrize(("url", "reason"), [
    ("amqp://host", "scheme is 'amqp': mqtt and mqtts are known"), ("//host", "scheme is 'missing'"),
    ("mqtt://host:70000", "the port in the URL of host"),
    ("mqtt://host/vhost", "'vhost' in an MQTT URL without a user"),
    ("mqtt://host?keep_alive=often", "keep_alive in an MQTT URL is a number"),
    ("mqtt://host?keep_alive=65536", "at most 65535 seconds"),
    ("mqtt://host?session_expiry=4294967296", "at most 4294967295 seconds"),
    ("mqtt://host?version=4", "version in an MQTT URL is one of"),
    ("mqtt://host?clean_start=1", "clean_start in an MQTT URL is"),
    ("mqtt://host?heartbeat=5", "'heartbeat' is not a query key of an MQTT URL: keep_alive"),
])
def test_a_bad_mqtt_url_is_refused_with_the_reason(url, reason):
    with pytest.raises(ValueError, match=reason):
        parse_mqtt_url(url)


def test_the_refusal_of_an_mqtt_url_does_not_show_the_password():
    with pytest.raises(ValueError) as caught:
        parse_mqtt_url("mqtt://user:secret@host:x")

    assert "secret" not in str(caught.value)
