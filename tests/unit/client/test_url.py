"""AMQP URLs: what each part means, and what is refused."""
import pytest

from gomq_py.client.url import Parameters, parse_url


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
