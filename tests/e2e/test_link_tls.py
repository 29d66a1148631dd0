"""TLS of shovels and federation: who is trusted, and what is told where an end is not what the URI says.

One broker in this process, which is both ends of its shovels; web servers in threads stand for what a client
of TLS must not speak with.
"""
import ssl
from types import SimpleNamespace

import pytest
import trustme

from gomq_py import Broker
from tests.support import certificates
from tests.support.hook_server import HookServer
from tests.support.shovels import Shovelled
from tests.support.waiting import wait_until


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    """The broker, the folder with files for URIs, and certificates."""
    folder = tmp_path_factory.mktemp("tls")
    authority = trustme.CA()
    between = authority.create_child_ca()
    here = certificates.make(folder / "here", authority=authority)
    far = certificates.write(folder / "far", authority, between.issue_cert("127.0.0.1"))
    elsewhere = certificates.make(folder / "elsewhere", "elsewhere.example", authority=authority)
    expired = certificates.make(folder / "expired", authority=authority, ends_in_days=-1)
    certificates.make(folder / "stranger")
    certificates.make_client(folder / "client", authority, common_name="guest")
    (folder / "broken.pem").write_text("no certificate")
    with Broker(
        http_port=0, sync=False, links_tls_folder=str(folder), links_http_hosts_allowed="127.0.0.0/8",
        amqps_port=0, tls_cert=str(here.certificate), tls_key=str(here.key), tls_verify_peer=True,
        tls_ca_cert=str(here.authority),
    ) as broker:
        yield SimpleNamespace(
            broker=broker, tls=broker.addresses["amqps"][1], plain=broker.addresses["amqp"][1],
            servers={
                "far": far, "elsewhere": elsewhere, "expired": expired, "here": here}, authority=here)


@pytest.fixture
def server(world, request):
    """A web server over TLS that shows the certificate of this name; what comes in is kept."""
    files = world.servers[request.param]
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(files.certificate, files.key)
    context.load_verify_locations(files.authority)
    context.verify_mode = ssl.CERT_OPTIONAL
    with HookServer(context=context) as server:
        yield server


@pytest.fixture
def shovel(world, request):
    shovelled = Shovelled(world.broker, request.node.name)
    yield shovelled
    shovelled.close()


def told(shovel, error):
    """What is shown of the shovel once its error says this."""
    return wait_until(
        lambda: shown if error in (shown := shovel.shown())["error"] else None, what=shovel.shown)


CLIENT = "certfile=client/certificate.pem&keyfile=client/key.pem"
OURS = f"cacertfile=here/authority.pem&{CLIENT}"


@pytest.mark.parametrize("options", [
    OURS, f"{OURS}&verify=verify_peer&depth=0&fail_if_no_peer_cert=true", f"verify=verify_none&{CLIENT}",
    f"{OURS}&server_name_indication=localhost", f"{OURS}&server_name_indication=disable",
    f"verify=verify_none&depth=0&cacertfile=stranger/authority.pem&{CLIENT}",
])
def test_amqps_with_options_of_rabbitmqs_uris(world, shovel, options):
    shovel.start(f"amqps://guest:guest@127.0.0.1:{world.tls}/%2F?{options}", dest_queue=shovel.dead)

    shovel.numbers(3)

    wait_until(lambda: shovel.waiting(shovel.dead) == 3)
    shovel.wait_for(state="running", error="", dest_uri=f"amqps://127.0.0.1:{world.tls}/%2F")


@pytest.mark.parametrize("uri, state, error", [
    ("amqps://guest:guest@127.0.0.1:{plain}", "starting",
     "TLS: that port does not speak it (WRONG_VERSION_NUMBER): the URI begins with amqp:// or http://, or "
     "names the port that does"),
    ("amqp://guest:guest@127.0.0.1:{tls}", "starting",
     "before it said anything: if that port is for TLS, the URL begins with amqps://"),
    (f"amqps://guest:guest@127.0.0.1:{{tls}}?cacertfile=stranger/authority.pem&{CLIENT}", "error",
     "cacertfile names the authority that has signed it"),
    (f"amqps://guest:guest@127.0.0.1:{{tls}}?{CLIENT}", "error", "cacertfile names the authority"),
    (f"amqps://guest:guest@127.0.0.1:{{tls}}?{OURS}&server_name_indication=other.host", "error",
     "Hostname mismatch, certificate is not valid for 'other.host'.: the URI, or server_name_indication, has "
     "a name that it is for"),
    ("amqps://guest:guest@127.0.0.1:{tls}?cacertfile=here/authority.pem", "starting",
     "TLS: that end refuses our certificate, or wants one: certfile and keyfile name it"),
    ("amqps://guest:guest@127.0.0.1:{tls}?cacertfile=missing.pem", "starting", "No such file or directory"),
    ("amqps://guest:guest@127.0.0.1:{tls}?cacertfile=broken.pem", "starting", "cacertfile: ["),
], ids=lambda value: "" if len(value) > 9 else value)
@pytest.mark.parametrize("end", ["source", "destination"])
def test_an_end_that_cannot_be_trusted_is_named_with_what_to_do(world, shovel, end, uri, state, error):
    """The shovel is shown so, and the certificate that is wrong ends it: no waiting mends that."""
    uri = uri.format(tls=world.tls, plain=world.plain)
    ends = {"src-uri": uri, "dest-uri": "amqp://"} if end == "source" else {"dest-uri": uri}

    shovel.start(**{"uri": "amqp://", "dest_queue": shovel.dead, **ends})

    one = told(shovel, error)
    assert one["error"].startswith(f"{end}: ") and "guest:" not in one["error"]
    assert one["state"] == state
    shovel.numbers(1)
    assert shovel.waiting() == 1


@pytest.mark.parametrize("server, error", [
    ("elsewhere", "certificate is not valid for '127.0.0.1'"),
    ("expired", "certificate has expired: it is to be renewed there"),
    ("far", "certificate chain too long: 1, and depth is 0: depth allows more authorities in between"),
], indirect=["server"])
def test_certificates_that_are_for_others_or_too_old_or_too_far_away(world, shovel, server, error):
    uri = f"amqps://ann:hush-hush@127.0.0.1:{server.port}?cacertfile=here/authority.pem&depth=0"
    shovel.start("amqp://", dest_queue=shovel.dead, **{"src-uri": uri})

    shown = told(shovel, error)

    assert shown["error"].startswith("source: TLS: the certificate of that end is refused: ")
    # a certificate is renewed, a clock set: that is waited for
    assert shown["state"] == ("starting" if "expired" in error else "error")


@pytest.mark.parametrize("server, more", [
    ("here", {}), ("far", {"dest-depth": 1}), ("elsewhere", {"dest-server-name-indication": "disable"}),
    ("elsewhere", {"dest-server-name-indication": "elsewhere.example"}),
    ("expired", {"dest-verify": "verify_none"}),
    ("here", {"dest-certfile": "client/certificate.pem", "dest-keyfile": "client/key.pem"}),
], indirect=["server"], ids=str)
def test_a_webhook_over_tls_posts_to_whom_it_may_trust(world, shovel, server, more):
    shovel.start(server.url(), **{"dest-cacertfile": "here/authority.pem", **more})

    shovel.numbers(3)

    server.wait_for(3)
    assert server.arrived == [0, 1, 2]
    shovel.wait_for(state="running", error="", moved=3)


@pytest.mark.parametrize("server, more, error", [
    ("here", {}, "cacertfile names the authority"),
    ("here", {"dest-cacertfile": "stranger/authority.pem"}, "cacertfile names the authority"),
    ("elsewhere", {"dest-cacertfile": "here/authority.pem"}, "not valid for '127.0.0.1'"),
    ("expired", {"dest-cacertfile": "here/authority.pem"}, "has expired: it is to be renewed there"),
    ("far", {"dest-cacertfile": "here/authority.pem", "dest-depth": 0}, "depth allows more authorities"),
], indirect=["server"], ids=str)
def test_a_web_server_that_cannot_be_trusted_is_told_nothing(world, shovel, server, more, error):
    shovel.numbers(1)

    shovel.start(server.url(), **more)

    shown = told(shovel, error)
    assert shown["error"].startswith("destination: TLS: the certificate of that end is refused: ")
    shovel.call("DELETE", "shovels", "/", shovel.name)  # one that tries again takes the message each time
    wait_until(lambda: shovel.waiting() == 1)
    assert server.requests == []


def test_a_web_server_behind_another_kind_of_port(world, shovel):
    shovel.start(f"{world.broker.http_url.replace('http:', 'https:')}/")

    wait_until(
        lambda: "destination: TLS: that port does not speak it" in shovel.shown()["error"], what=shovel.shown)


@pytest.mark.parametrize("server", ["here"], indirect=True)
def test_plain_http_to_a_port_of_tls(world, shovel, server):
    shovel.numbers(1)
    shovel.start(f"http://127.0.0.1:{server.port}/")

    wait_until(lambda: "the URI begins with https://" in shovel.shown()["error"], what=shovel.shown)
    assert server.requests == []


@pytest.mark.parametrize("server", ["here"], indirect=True)
def test_the_wrong_kind_of_port_is_no_messages_fault(world, shovel, server):
    """The shovel connects again and again, and no message is given up."""
    shovel.numbers(3)
    shovel.start(
        f"http://127.0.0.1:{server.port}/", **{"dest-refusal-limit": 1, "reconnect-delay": 0.05})

    error = f"destination: 127.0.0.1:{server.port}: what answers speaks TLS: the URI begins with https://"
    wait_until(lambda: (shown := shovel.shown())["reconnects"] >= 3 and shown["state"] == "starting"
               and shown["error"] == error, what=shovel.shown)
    shown = shovel.shown()
    assert (shown["refused"], shown["set_aside"], shown["moved"]) == (0, 0, 0)
    shovel.call("DELETE", "shovels", "/", shovel.name)
    wait_until(lambda: shovel.waiting() == 3)


@pytest.mark.parametrize("uri, more, text", [
    ("https://h/", {"dest-cacertfile": "/etc/ssl/cert.pem"}, "dest-uri: cacertfile names a file that is not"),
    ("https://h/", {"dest-keyfile": "client/key.pem"}, "dest-keyfile is given without dest-certfile"),
    ("https://h/", {"dest-verify": "no"}, "dest-verify is verify_peer or verify_none"),
    ("http://h/", {"dest-cacertfile": "here/authority.pem"}, "dest-cacertfile is of TLS"),
    ("amqps://h/", {"dest-cacertfile": "here/authority.pem"},
     "dest-cacertfile is of web servers: dest-uri is a broker, whose URI says it in its query"),
    ("amqps://h/?depth=101", {}, "depth in the URI is a number from 0 to 100"),
], ids=str)
def test_what_no_end_could_be_verified_by_is_refused(world, shovel, uri, more, text):
    said = shovel.put(uri, **more)

    assert said.status_code == 400 and text in said.json()["reason"]


def test_a_federation_link_says_it_as_well(world, shovel):
    name = shovel.name
    shovel.channel.exchange_declare(name, "fanout", durable=True)
    shovel.channel.queue_bind(name, name)
    for upstream, uri in (
        ("plain", f"amqps://guest:guest@127.0.0.1:{world.plain}"),
        ("stranger", f"amqps://guest:guest@127.0.0.1:{world.tls}?cacertfile=stranger/authority.pem"),
        ("right", f"amqps://guest:guest@127.0.0.1:{world.tls}?{OURS}"),
    ):
        shovel.call("PUT", "parameters", "federation-upstream", "/", upstream, value={"uri": uri})
    shovel.call(
        "PUT", "policies", "/", name, pattern=f"^{name}$", definition={"federation-upstream-set": "all"})

    def errors():
        links = shovel.call("GET", "federation-links", "/").json()
        return {link["upstream"]: link.get("error", "") for link in links}
    try:
        wait_until(lambda: len(errors()) == 3 and all(errors().values()), what=errors)
        assert errors()["plain"].startswith("source: TLS: that port does not speak it")
        assert "cacertfile names the authority that has signed it" in errors()["stranger"]
        # this broker itself, which it could only find out by logging in
        assert "is called" in errors()["right"] and "as this one is" in errors()["right"]
    finally:
        shovel.call("DELETE", "policies", "/", name)
        for upstream in ("plain", "stranger", "right"):
            shovel.call("DELETE", "parameters", "federation-upstream", "/", upstream)
        shovel.channel.exchange_delete(name)
