"""URIs of links: what they mean, what is refused, and that nothing shows a password."""
import os

import pytest

from gomq_py.links import uris
from gomq_py.links.uris import URIError

SECRET = "s3cr3t"


@pytest.mark.parametrize("text, host, port, tls", [
    ("amqp://h", "h", 5672, False),
    ("amqps://h", "h", 5671, True),
    ("AMQP://h:1234/", "h", 1234, False),
    ("amqp://[::1]:5/v", "::1", 5, False),
    ("amqp://b%C3%BCcher.example", "bücher.example", 5672, False),
])
def test_hosts_and_ports(text, host, port, tls):
    uri = uris.parse(text)

    assert (uri.host, uri.port, uri.tls, uri.is_local) == (host, port, tls, False)


def test_a_login_and_a_vhost_are_decoded():
    uri = uris.parse("amqp://an%40n:p%2F%3A%40@h/a%2Fb")
    parameters = uris.parameters(uri, "")

    assert (uri.user, uri.password, uri.path) == ("an@n", "p/:@", "a/b")
    assert (parameters.user, parameters.password, parameters.virtual_host) == ("an@n", "p/:@", "a/b")


def test_without_login_and_path_it_is_guest_and_the_first_vhost():
    parameters = uris.parameters(uris.parse("amqp://h"), "", "other")

    assert (parameters.user, parameters.password, parameters.virtual_host) == ("guest", "guest", "/")


@pytest.mark.parametrize("text, vhost", [
    ("amqp://", "mine"), ("amqp:///", "mine"), ("amqp:///%2f", "/"), ("amqp:///a%2Fb", "a/b"),
    ("amqp:///v?heartbeat=3&connection_timeout=10", "v"), ("amqp://?channel_max=3", "mine"),
])
def test_without_a_host_it_is_this_broker(text, vhost):
    uri = uris.parse(text)

    assert uri.is_local
    assert uris.parameters(uri, "", "mine").virtual_host == vhost


@pytest.mark.parametrize("text", [
    f"amqp://u:{SECRET}@", f"amqp://u:{SECRET}@/v", "amqp://u@/v", "amqp://@/v", "amqp://:5672/v", "amqps://",
    "amqps:///v",
    "amqp:///%ff", "amqp:///?verify=maybe",
])
def test_what_has_no_meaning_for_this_broker_is_refused(text):
    with pytest.raises(URIError) as raised:
        uris.parse(text)

    assert SECRET not in str(raised.value)


@pytest.mark.parametrize("text", [
    None, 7, b"amqp://h", "", "h", "amqp", "amqp:", "amqp:/h", "http://h", "mqtt://h", "amqp//h", "://h",
    f"amqp://u:{SECRET}/x@h", f"amqp://u:{SECRET}#x@h", f"amqp://u:{SECRET}@h#", f"amqp://u:{SECRET}?x@h",
    f"amqp://u:{SECRET}@h:x", f"amqp://u:{SECRET}@h:65536", f"amqp://u:{SECRET}@h:0",
    f"amqp://u:{SECRET}@h:-1",
    f"amqp://u:{SECRET}\n@h", f"amqp://u:{SECRET} @h", f"amqp://u:{SECRET}@[::1", f"amqp://u:{SECRET}@h%2f",
    f"amqp://u:{SECRET}@h%0a", f"amqp://u:%ff{SECRET}@h", "amqp://h/%ff", f"amqp://u:{SECRET}@h\u2100/",
    f"amqp://u:{SECRET}@h?heartbeat=x", "amqp://h?heartbeat=65536", "amqp://h?heartbeat=-1",
    "amqp://h?heartbeat=",
    f"amqp://h?heartbeat={'9' * 5000}", "amqp://h?connection_timeout=0", "amqp://h?frame_max=1",
    "amqp://h?frame_max=0", "amqp://h?channel_max=65536", "amqps://h?depth=101", "amqps://h?depth=-1",
    "amqp://h?verify=yes", "amqp://h?auth_mechanism=x",
    f"amqp://u:{SECRET}@h?unknown=1", "amqp://h?keyfile=k", "amqp://h?cacertfile=%ff",
    "amqp://" + "h" * uris.URI_OCTETS_MAX,
])
def test_what_cannot_be_used_is_refused_without_its_password(text):
    with pytest.raises(URIError) as raised:
        uris.parse(text)

    assert SECRET not in str(raised.value)
    assert raised.value.__cause__ is None
    assert raised.value.__suppress_context__ or raised.value.__context__ is None


def test_query_keys_of_rabbitmq():
    uri = uris.parse(
        "amqps://h?heartbeat=5&connection_timeout=1500&channel_max=3&auth_mechanism=AMQPLAIN"
        "&verify=verify_none"
        "&fail_if_no_peer_cert=true&idle_time_out=5&depth=2&server_name_indication=x&frame_max=8192")

    assert uris.parameters(uri, "").options == {
        "heartbeat": 5, "connection_timeout": 1500, "channel_max": 3, "auth_mechanism": "amqplain",
        "verify": "verify_none", "server_name_indication": "x", "frame_max": 8192, "password": "", "depth": 2,
    }


def test_http_only_where_it_may_stand():
    with pytest.raises(URIError, match="amqp://, amqps://"):
        uris.parse("https://h")

    uri = uris.parse("https://u:p@h/a%20b?x=1&y", uris.DESTINATIONS)

    assert (uri.host, uri.port, uri.user, uri.password, uri.path) == ("h", 443, "u", "p", "/a%20b?x=1&y")
    assert uris.parse("http://h", uris.DESTINATIONS).path == ""
    with pytest.raises(URIError):
        uris.parse("http:///x", uris.DESTINATIONS)


def test_lists():
    assert [uri.host for uri in uris.parse_list(["amqp://a", "amqp://b"])] == ["a", "b"]
    assert [uri.host for uri in uris.parse_list("amqp://a")] == ["a"]
    for value in ([], ["amqp://a"] * (uris.URIS_MAX + 1), [1], [["amqp://a"]], {}, None):
        with pytest.raises(URIError):
            uris.parse_list(value)


def test_files_come_from_the_folder_alone(tmp_path):
    folder = tmp_path / "tls"
    folder.mkdir()
    (folder / "ca.pem").write_text("x")
    (tmp_path / "secret.pem").write_text("x")
    os.symlink(tmp_path / "secret.pem", folder / "link.pem")

    assert uris.file_in(str(folder), "ca.pem", "cacertfile") == str(folder / "ca.pem")
    assert uris.file_in(str(folder), str(folder / "ca.pem"), "cacertfile") == str(folder / "ca.pem")
    assert uris.file_in(str(folder), "sub/../ca.pem", "cacertfile") == str(folder / "ca.pem")
    outside_of_it = ("../secret.pem", "link.pem", str(tmp_path / "secret.pem"), "/etc/passwd", "../tlsx/ca")
    for outside in outside_of_it:
        with pytest.raises(URIError, match="not in tls_folder"):
            uris.file_in(str(folder), outside, "cacertfile")
    with pytest.raises(URIError, match="no name of a file"):
        uris.file_in(str(folder), "a\0", "cacertfile")
    with pytest.raises(URIError, match="tls_folder in .links. is not set"):
        uris.parameters(uris.parse("amqps://h?cacertfile=ca.pem"), "")


@pytest.mark.parametrize("given, asked", [(4096, 4096), (131072, 131072), (1048576, 131072)])
def test_no_larger_frames_are_agreed_on_than_a_link_reads(given, asked):
    assert uris.parameters(uris.parse(f"amqp://h?frame_max={given}"), "").options["frame_max"] == asked


def test_no_repr_shows_a_password():
    uri = uris.parse(f"amqps://u:{SECRET}@h?password={SECRET}")

    assert SECRET not in repr(uri)
    assert SECRET not in repr(uris.parameters(uri, ""))
