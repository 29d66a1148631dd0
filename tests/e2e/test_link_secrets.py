"""What links are told in confidence is looked for everywhere that a broker tells something: its log at the
level debug, its events, a dump of its state, its API to every kind of user, metrics, commands.

Every secret here has "hush" in it. The ends fail in every way there is, and repeat what they are told.
"""
import json
import re
import signal
import socket
import threading
from contextlib import contextmanager
from urllib.parse import quote

import pytest

from gomq_py.amqp.wire.frames import PROTOCOL_HEADER
from gomq_py.amqp.wire.methods import ConnectionClose, ConnectionStart
from tests.ctl.running import in_process
from tests.management.description import described
from tests.support.federated import start_gomq
from tests.support.hook_server import HookServer
from tests.support.scripted_broker import Peer as ScriptedPeer
from tests.support.waiting import in_time, wait_until

SECRET = re.compile("hush", re.IGNORECASE)
HOOKS = ("mixed", "hook", "hooks", "path", "token")
ABOUT_LINKS = re.compile("/api/(shovel|federation|param|global|defin|connections|overview|vhosts|policies)")
TAGS = ("", "management", "policymaker", "monitoring", "administrator")
CONFIGURATION = """
[main]
event_exchange = true
log_exchange = true
[links]
tls_folder = {folder}
http_hosts_allowed = 127.0.0.0/8
[shovel:static]
src-uri = amqp://ann:hush-static@127.0.0.1:{refusing}/%2F
src-queue = q
dest-uri = https://ann:hush-static@127.0.0.1:1/in/hush-static?key=hush-static
dest-secret = hush-static
[shovel:mixed]
src-uri = amqp://
src-queue = q
dest-uri = http://ann:hush-mixed@127.0.0.1:{hook}/in?key=hush-mixed
dest-secret = hush-mixed
reconnect-delay = 1
"""


@contextmanager
def serving(serve):
    """A port whose connections are served in threads."""
    with socket.create_server(("127.0.0.1", 0), backlog=100) as listening:
        def serve_one(accepted):
            try:
                with accepted:
                    serve(accepted)
            except (OSError, TypeError):  # whoever called has left
                pass

        def accept():
            try:
                while True:
                    accepted, _ = listening.accept()
                    threading.Thread(target=serve_one, args=(accepted,), daemon=True).start()
            except OSError:
                pass

        accepting = threading.Thread(target=accept, daemon=True)
        accepting.start()
        yield listening.getsockname()[1]
        listening.shutdown(socket.SHUT_RDWR)
        accepting.join()


def refuse(sock):
    """A broker that repeats the login it refuses."""
    peer = ScriptedPeer(sock)
    assert peer.read_exactly(8) == PROTOCOL_HEADER
    peer.send(0, ConnectionStart(version_minor=9, server_properties={"p": "x"}, mechanisms=b"PLAIN AMQPLAIN",
                                 locales=b"en_US"))
    _, _, payload = peer.frame()
    said = bytes(payload).decode("latin-1")
    told = SECRET.search(said)
    peer.send(0, ConnectionClose(
        reply_code=530, reply_text=f"no login {said[told.start() - 5:told.start() + 40]}" if told else "no"))
    peer.frame()


def repeat(request):
    """A web server's answer: what it was told, and by whom."""
    login, path = request.headers.get("authorization", ""), request.path
    return f"HTTP/1.1 403 no {path} {login}\r\nContent-Length: 0\r\n\r\n".encode()


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    """(a broker with links of every kind, their names)."""
    folder = tmp_path_factory.mktemp("secrets")
    config = folder / "gomq.ini"
    with serving(refuse) as refusing, HookServer(repeat) as hook:
        config.write_text(CONFIGURATION.format(folder=folder, refusing=refusing, hook=hook.port))
        peer = start_gomq(
            folder / "data", "here", config=config, log_level="debug", metrics_http_port=0)
        try:
            yield peer, refusing, hook.port
        finally:
            peer.hang_up()
            peer.process.stop()


def uris(port, own, hook):
    """Forms of URIs: name: (URI, further keys). ``port`` repeats logins, ``own`` refuses them."""
    token = ".".join(("hushA", "hushB", "hushC"))
    return {
        "plain": (f"amqp://ann:hush-plain@127.0.0.1:{port}", {}),
        "refused": (f"amqp://ann:hush-refused@127.0.0.1:{own}/%2F", {}),
        "encoded": (f"amqp://ann:%68ush%2Fp%40ss%3A%23@127.0.0.1:{port}", {}),
        "upper": (f"AMQP://ann:hush-upper@127.0.0.1:{port}/", {}),
        "user": (f"amqp://{token}@127.0.0.1:{port}", {}),
        "user only": (f"amqp://hush-user:@127.0.0.1:{port}", {}),
        "nobody": (f"amqp://:{token}@127.0.0.1:{port}", {}),
        "colons": (f"amqp://ann:hush:colon:s@127.0.0.1:{port}", {}),
        "at": (f"amqp://ann:hush@a@127.0.0.1:{port}", {}),
        "key": (f"amqps://ann:hush-k@127.0.0.1:{own}/?certfile=c&keyfile=k&password=hush-key", {}),
        "tls": (f"amqps://ann:hush-tls@127.0.0.1:{own}", {}),
        "gone": ("amqp://ann:hush-gone@127.0.0.1:1", {}),
        "plainly": (f"amqp://ann:hush-amqplain@127.0.0.1:{port}?auth_mechanism=amqplain", {}),
        "list": ([f"amqp://a:hush-one@127.0.0.1:{port}", f"amqp://b:hush-two@127.0.0.1:{own}/none"], {}),
        "hook": (f"http://ann:hush%20basic@127.0.0.1:{hook}/in?key=hush%2Fquery&hushed", {
            "dest-secret": "hush-hmac", "dest-queue": None, "dest-refusal-limit": 2}),
        "hooks": ([f"http://127.0.0.1:{hook}/?token=hush-{n}" for n in range(2)], {
            "dest-secret": "hush-hmac", "dest-queue": None}),
        "no-hook": ("http://ann:hush-h@127.0.0.1:1/x?sig=hush-sig", {"dest-queue": None}),
        "path": (f"http://127.0.0.1:{hook}/services/T0/B0/hush-path", {
            "dest-queue": None, "dest-refusal-limit": 2,
            "dest-publish-properties": {"headers": {"x-api-key": "hush-api-key"}}}),
        "token": (f"http://hush-token@127.0.0.1:{hook}/hush", {"dest-queue": None}),
    }


@pytest.fixture(scope="module")
def told(world):
    """The broker, once each link has failed in its way; its events, and what its refusals said."""
    peer, port, hook = world
    channel = peer.channel("/")
    channel.queue_declare("q", durable=True)
    channel.queue_declare("events", durable=True)
    for exchange in ("amq.rabbitmq.event", "amq.rabbitmq.log"):
        channel.queue_bind("events", exchange, "#")
    channel.exchange_declare("fed", "fanout", durable=True)
    channel.queue_bind("q", "fed")
    for number in range(5):
        channel.basic_publish("", "q", b"%d" % number)
    forms = uris(port, peer.process.port, hook)
    refusals = []
    for name, (uri, more) in forms.items():
        value = {
            "src-uri": "amqp://", "src-queue": "q", "dest-uri": uri, "dest-queue": "p",
            "reconnect-delay": 0.2, **more}
        peer.call("PUT", "parameters", "shovel", "/", name, value={
            key: item for key, item in value.items() if item is not None})
        if "dest-queue" not in more:
            peer.call("PUT", "parameters", "shovel", "/", f"from {name}", value={
                **value, "src-uri": uri, "dest-uri": "amqp://"})
            peer.call("PUT", "parameters", "federation-upstream", "/", name, value={"uri": uri})
    peer.call("PUT", "parameters", "federation-upstream-set", "/", "some", value=[
        {"upstream": "plain", "exchange": "x"}, {"upstream": "list"}])
    peer.call(
        "PUT", "policies", "/", "fed", pattern="^(fed|q)$", definition={"federation-upstream-set": "all"})
    peer.call("PUT", "global-parameters", "kept", value={
        "uri": "amqp://a:hush-global@h", "token": "hush", "url": "https://h/hush", "api_key": "hush"})
    for component, value in (
        ("shovel", {"src-uri": "amqp://a:hush/x@h", "src-queue": "q", "dest-uri": "amqp://"}),
        ("shovel", {"src-uri": "amqp://a:hush#x@h", "src-queue": "q", "dest-uri": "amqp://"}),
        ("shovel", {"src-uri": "ftp://a:hush@h", "src-queue": "q", "dest-uri": "amqp://"}),
        ("shovel", {"src-uri": ["amqp://a:hush@h", 5], "src-queue": "q", "dest-uri": "amqp://"}),
        ("shovel", {"src-uri": "amqp://a:hush@h", "src-queue": "q", "dest-uri": "amqp://", "dest-secret": 5}),
        ("federation-upstream", {"uri": "amqp://a:hush@h?unknown=1"}),
        ("federation-upstream", {"uri": "amqp://a:hush@[h"}),
        ("federation-upstream", {"uri": "amqp://a:hush@h", "max-hops": "x"}),
        ("nothing", {"uri": "amqp://a:hush@h"}),
    ):
        said = peer.request("PUT", "parameters", component, "/", "refused definition", value=value)
        assert said.status_code == 400
        refusals.append(said.text)

    def errors():
        links = peer.call("GET", "shovels") + peer.call("GET", "federation-links")
        return [(one.get("name", one.get("upstream")), one.get("error", "")) for one in links]

    def have_failed():
        told = errors()
        # one that waits for a message that another one holds has nothing to say
        return all(error for name, error in told if name not in HOOKS) and any(
            error for name, error in told if name in HOOKS) and told
    refusals += [error for _, error in wait_until(have_failed, what=errors)]
    # Of now: links that fail again and again go on telling.
    count = channel.queue_declare("events", passive=True).method.message_count
    events = [str(channel.basic_get("events", auto_ack=True)) for _ in range(count)]
    return peer, events, refusals


def leaks(place, text):
    """Where the text tells a secret."""
    return [
        f"{place}: ...{text[max(0, found.start() - 80):found.end() + 40]}..."
        for found in SECRET.finditer(text)]


def test_neither_log_nor_events_nor_refusals_tell_a_secret(told):
    peer, events, refusals = told
    peer.process.signal(signal.SIGUSR1)
    peer.process.wait_for_log("end of the dump")

    assert any("shovel.worker.status" in event for event in events)
    assert any("403 no" in text for text in refusals), "no web server was asked"
    assert any("no login" in text for text in refusals), "no broker was asked"
    for place, texts in (("log", peer.process.log), ("event", events), ("refusal", refusals)):
        assert [leak for text in texts for leak in leaks(place, text)] == []


def paths(peer):
    """Every path that can be asked for, with names that there are, and those of links with each of theirs."""
    shovels = [quote(one["name"], safe="") for one in peer.call("GET", "shovels")]
    node = peer.call("GET", "overview")["node"]
    for path, methods in described()["paths"].items():
        if "get" not in methods:
            continue
        path = path.replace("{vhost}", "%2F").replace("{component}", "shovel")
        names = shovels if path.startswith(("/api/shovels", "/api/parameters/shovel")) else ["q"]
        for beginning, name in (
            ("/api/users", "guest"), ("/api/vhosts", "%2F"), ("/api/global-parameters", "kept"),
            ("/api/exchanges", "fed"), ("/api/policies", "fed"),
            ("/api/nodes", node),
        ):
            names = [name] if path.startswith(beginning) else names
        for name in names:
            yield re.sub(r"\{\w+\}", "q", path.replace("{name}", name))
    for component in ("federation-upstream", "federation-upstream-set"):
        yield f"/api/parameters/{component}"
        for one in peer.call("GET", "parameters", component, "/"):
            yield f"/api/parameters/{component}/%2F/{quote(one['name'], safe='')}"


@pytest.mark.parametrize("tag", TAGS)
def test_no_path_of_the_api_tells_a_secret_to_who_is_not_to_have_it(told, tag):
    """An administrator who exports definitions is: they are for making the broker again. Administrators see
    all that there is; to the others no more is shown, and they ask for what is about links.
    """
    peer = told[0]
    user = f"asks as {tag or 'nobody'}"
    peer.call("PUT", "users", user, password="asks for it", tags=tag)
    peer.call("PUT", "permissions", "/", user, configure=".*", write=".*", read=".*")
    session, found, answered = peer.as_user(user, "asks for it").session if tag else peer.session, [], 0
    if not tag:
        session = type(session)()
        session.auth = (user, "asks for it")

    for path in sorted(set(paths(peer))):
        if tag != "administrator" and not ABOUT_LINKS.match(path):
            continue
        if tag == "administrator" and path.startswith("/api/definitions"):
            continue
        answer = session.get(peer.http_url + path, timeout=in_time(60))
        answered += answer.status_code == 200
        found += leaks(f"{path} ({answer.status_code})", answer.text)
    session.close()

    assert found == []
    assert answered >= {"administrator": 80, "monitoring": 20}.get(tag, 1 if tag else 0), answered


def test_definitions_are_whole_for_administrators_alone(told):
    peer = told[0]
    whole = peer.call("GET", "definitions")

    assert len(SECRET.findall(json.dumps(whole))) > 20
    for tag in ("management", "policymaker", "monitoring"):
        user = f"exports as {tag}"
        peer.call("PUT", "users", user, password="asks for it", tags=tag)
        peer.call("PUT", "permissions", "/", user, configure=".*", write=".*", read=".*")
        for path in (("definitions",), ("definitions", "/")):
            assert peer.as_user(user, "asks for it").request("GET", *path).status_code == 401


def test_neither_metrics_nor_commands_tell_a_secret(told):
    peer = told[0]
    found = []
    for where in (peer.http_url, f"http://127.0.0.1:{peer.process.ports['metrics']}"):
        for path in ("metrics", "metrics/detailed", "metrics/per-object"):
            found += leaks(path, peer.session.get(f"{where}/{path}").text)
    for command in (
        ["shovel_status"], ["list_shovels"], ["federation_status"], ["list_federations"], ["list_parameters"],
        ["list_connections"], ["list_channels"], ["list_consumers"], ["list_policies"], ["status"],
        ["doctor"],
        ["restart_shovel", "plain"], ["pause_shovel", "hook"], ["resume_shovel", "hook"],
        ["set_parameter", "shovel", "x", '{"src-uri": "amqp://a:hush#x@h"}'],
        ["add_shovel", "x", "--src-uri", "amqp://", "--src-queue", "q", "--dest-uri", "amqp://a:hush@h?x=1"],
        ["add_federation", "x", "--uri", "amqp://a:hush@h?x=1"], ["delete_shovel", "from plain"],
    ):
        for form in ("table", "json"):
            finished = in_process(peer.http_url, "-f", form, *command)
            found += leaks(" ".join(command[:2]), finished.output)

    assert found == []
