"""Logins by OAuth 2 token, with a real broker, a real issuer over HTTP, pika and requests."""
import time
from urllib.parse import quote

import pika
import pika.exceptions
import pytest
import requests

from gomq_py import Broker
from gomq_py.client.errors import ConnectionClosed
from gomq_py.client.mqtt import MQTTClient
from gomq_py.mqtt.wire.packets import Will
from tests.support.broker_process import BrokerProcess
from tests.support.shovels import Shovelled
from tests.support.token_issuer import TokenIssuer
from tests.support.waiting import in_time, wait_until

# Of tokens that are to expire in a test: the next for a machine that was too slow for the one before.
LIFETIMES_S = (2, 6, 20)
ALL = "gomq.tag:administrator gomq.configure:*/* gomq.write:*/* gomq.read:*/*"


@pytest.fixture(scope="module")
def issuer():
    with TokenIssuer() as issuer:
        yield issuer


@pytest.fixture(scope="module")
def broker(issuer, tmp_path_factory):
    folder = tmp_path_factory.mktemp("tokens")
    config = folder / "gomq.ini"
    config.write_text(
        f"[main]\nauth_backends = local, oauth\n[oauth]\nissuer = {issuer.url}\nresource_server_id = gomq\n"
    )
    with BrokerProcess(folder / "data", config, http_port=0, mqtt_port=0) as process:
        yield process


def connect(broker, password, user=""):
    credentials = pika.PlainCredentials(user, password)
    return pika.BlockingConnection(
        pika.ConnectionParameters("127.0.0.1", broker.ports["amqp"], credentials=credentials)
    )


def connected_for_seconds(broker, issuer, lifetime_s):
    """A connection whose token lives for so long, and when it expires:
    for longer, if the machine has let it expire on the way in.
    """
    while True:
        expires = time.time() + lifetime_s
        try:
            return connect(broker, issuer.token(scope=ALL, exp=expires)), expires
        except pika.exceptions.AMQPError:
            assert time.time() > expires and lifetime_s < 30
        lifetime_s *= 3


def test_a_token_publishes_and_consumes_where_its_scopes_allow(broker, issuer):
    with connect(broker, issuer.token(scope=ALL)) as connection:
        channel = connection.channel()
        channel.queue_declare("tokens", durable=True)
        channel.confirm_delivery()
        channel.basic_publish("", "tokens", b"hello")

        assert channel.basic_get("tokens", auto_ack=True)[2] == b"hello"


def test_a_token_does_not_do_what_its_scopes_do_not_say(broker, issuer):
    with connect(broker, issuer.token(scope="gomq.read:%2F/*")) as connection:
        with pytest.raises(pika.exceptions.ChannelClosedByBroker) as refused:
            connection.channel().queue_declare("not-mine")

    assert refused.value.reply_code == 403
    assert (
        "configure access to queue 'not-mine' in vhost '/' refused for user 'ann'" in refused.value.reply_text
    )


def test_without_a_scope_for_the_vhost_there_is_no_way_in(broker, issuer):
    with pytest.raises(
        pika.exceptions.ProbableAccessDeniedError, match="access to vhost '/' refused for user 'ann'"
    ):
        connect(broker, issuer.token(scope="gomq.read:other/*"))


@pytest.mark.parametrize("token", [
    lambda issuer: issuer.token(lifetime_s=-5), lambda issuer: issuer.token(aud="x"), lambda issuer: "a.b.c"
])
def test_a_bad_token_is_a_bad_password(broker, issuer, token):
    with pytest.raises(
        pika.exceptions.ProbableAuthenticationError,
        match="Login was refused using authentication mechanism PLAIN",
    ):
        connect(broker, token(issuer))


def test_the_brokers_own_users_still_come_in(broker):
    connect(broker, "guest", "guest").close()


def test_when_the_token_expires_the_connection_is_closed(broker, issuer):
    connection, _ = connected_for_seconds(broker, issuer, 1.5)

    with pytest.raises(pika.exceptions.ConnectionClosedByBroker) as closed:
        connection.process_data_events(time_limit=30)
        connection.process_data_events(time_limit=30)

    assert (closed.value.reply_code, closed.value.reply_text) == (320, "CONNECTION_FORCED - token expired")


def test_a_newer_token_keeps_the_connection_open(broker, issuer):
    def renewed(lifetime_s):
        connection, expires = connected_for_seconds(broker, issuer, lifetime_s)
        try:
            connection.update_secret(issuer.token(scope=ALL), "expires soon")
        except pika.exceptions.AMQPError:
            assert time.time() > expires, "the first token was good for longer"
            return None
        return connection, expires

    connection, expires = next(found for lifetime_s in LIFETIMES_S if (found := renewed(lifetime_s)))
    wait_until(lambda: connection.process_data_events(0.05) or time.time() > expires + 0.5)

    connection.channel().queue_declare("still-here", exclusive=True)
    connection.close()


def test_what_follows_a_token_is_asked_with_its_rights_and_each_token_is_answered(broker, issuer):
    connection = connect(broker, issuer.token(scope="gomq.read:*/*"))
    answers = []
    connection._impl.callbacks.add(0, pika.spec.Connection.UpdateSecretOk, answers.append, one_shot=False)
    channel = connection.channel()
    for scope in ("gomq.read:*/*", ALL):
        connection._impl._send_method(
            0, pika.spec.Connection.UpdateSecret(issuer.token(scope=scope), "each at once")
        )

    channel.queue_declare("with-the-last-rights", exclusive=True)

    assert len(answers) == 2
    connection.close()


@pytest.mark.parametrize("secret", [
    lambda issuer: issuer.token(sub="bob"), lambda issuer: issuer.token(lifetime_s=-1),
    lambda issuer: "nothing",
])
def test_a_token_that_does_not_renew_closes_the_connection(broker, issuer, secret):
    connection = connect(broker, issuer.token(scope=ALL))

    with pytest.raises(pika.exceptions.ConnectionClosedByBroker) as closed:
        connection.update_secret(secret(issuer), "because")

    assert closed.value.reply_code == 403


def test_a_narrower_token_takes_rights_away_from_an_open_channel(broker, issuer):
    connection = connect(broker, issuer.token(scope=ALL))
    channel = connection.channel()
    channel.queue_declare("narrowed", exclusive=True)
    channel.confirm_delivery()
    channel.basic_publish("", "narrowed", b"1")

    connection.update_secret(issuer.token(scope="gomq.read:*/*"), "less")

    with pytest.raises(pika.exceptions.ChannelClosedByBroker) as refused:
        channel.basic_publish("", "narrowed", b"2")
    assert refused.value.reply_code == 403
    connection.close()


def test_the_management_api_takes_a_token(broker, issuer):
    url = f"http://127.0.0.1:{broker.ports['http']}/api/whoami"
    token = issuer.token(scope=ALL)

    as_bearer = requests.get(url, headers={"Authorization": f"Bearer {token}"}, timeout=in_time(60))
    as_password = requests.get(url, auth=("whoever", token), timeout=in_time(60))

    assert as_bearer.status_code == as_password.status_code == 200
    assert as_bearer.json()["name"] == as_password.json()["name"] == "ann"
    assert "administrator" in as_bearer.json()["tags"]


def test_the_management_api_refuses_a_bad_token_and_one_without_tags(broker, issuer):
    url = f"http://127.0.0.1:{broker.ports['http']}/api/overview"

    for token in (issuer.token(lifetime_s=-1), issuer.token(scope="gomq.read:*/*"), "x"):
        assert requests.get(
            url, headers={"Authorization": f"Bearer {token}"}, timeout=in_time(60)
        ).status_code == 401


def test_policy_that_hands_messages_on_is_set_by_a_token_of_administrators_alone(broker, issuer):
    """What another token allowed nobody knows when the policy acts."""
    url = f"http://127.0.0.1:{broker.ports['http']}/api/policies/%2F/of-a-token"

    def put(definition, tag):
        token = issuer.token(scope=f"gomq.tag:{tag} gomq.configure:*/* gomq.write:*/* gomq.read:*/*")
        return requests.put(
            url, json={"pattern": "^none$", "definition": definition}, timeout=in_time(60),
            headers={"Authorization": f"Bearer {token}"}).status_code

    dead_letters = {"dead-letter-exchange": "x"}
    assert (put(dead_letters, "policymaker"), put({"max-length": 1}, "policymaker")) == (400, 201)
    assert put(dead_letters, "administrator") == 204


# Of a token's user who is called as the local administrator.
FEW = "gomq.configure:*/none gomq.write:*/mqtt* gomq.read:*/none gomq.tag:management"


def device(broker, password, client_id, will=None):
    """Of user guest, local or not."""
    return MQTTClient(
        f"mqtt://guest:{password}@127.0.0.1:{broker.ports['mqtt']}", version=5, client_identifier=client_id,
        clean_start=False, properties={"session_expiry_interval": 3600}, will=will)


def test_user_of_a_token_has_nothing_of_the_local_user_of_its_name(broker, issuer):
    url, few = f"http://127.0.0.1:{broker.ports['http']}/api", issuer.token(sub="guest", scope=FEW)

    def ask(path, method="GET", **login):
        return requests.request(
            method, f"{url}/{path}", timeout=in_time(60),
            **login or {"headers": {"Authorization": f"Bearer {few}"}})

    with device(broker, "guest", "local") as local, device(broker, few, "other"):
        with pytest.raises(ConnectionClosed, match="Not authorized"):
            device(broker, few, "local")
        everybody = ask("connections", auth=("guest", "guest")).json()
        (name,) = [one["name"] for one in everybody if one.get("client_id") == "local"]
        seen = [
            {one["client_id"] for one in ask(path).json()}
            for path in ("connections", "mqtt/connections", "mqtt/sessions")]
        refused = [
            ask(path, "DELETE").status_code
            for path in (f"connections/{quote(name, safe='')}", "mqtt/sessions/%2F/local")]
        local.publish("still/there", b"", qos=1)
    wait_until(lambda: name in {one["name"] for one in ask("closed", auth=("guest", "guest")).json()})

    assert (seen, refused) == ([{"other"}] * 3, [404, 404])
    assert name not in {one["name"] for one in ask("closed").json()}


def test_will_of_a_token_is_not_published_after_a_kill(issuer, tmp_path):
    """Nobody knows then what the token allowed; the local user of its name may publish it."""
    config = tmp_path / "gomq.ini"
    config.write_text(
        f"[main]\nauth_backends = local, oauth\n[mqtt]\nwill_grace = 0\n"
        f"[oauth]\nissuer = {issuer.url}\nresource_server_id = gomq\n")
    with BrokerProcess(tmp_path / "data", config, http_port=0, mqtt_port=0) as broker:
        few = issuer.token(sub="guest", scope=FEW)
        will = Will(topic="secret", payload=b"of the token", qos=1, retain=True)
        client = device(broker, few, "leaves-a-will", will)
        broker.kill()
        client.abort()
        broker.start()

        broker.wait_for_log("will of client 'leaves-a-will' is not published: what the token of")
        url = f"http://127.0.0.1:{broker.ports['http']}/api/mqtt/retained/%2F"
        assert requests.get(url, auth=("guest", "guest"), timeout=in_time(60)).json()["topics"] == []


def test_no_token_is_in_the_log(broker, issuer):
    bad = issuer.token(lifetime_s=-7)
    with pytest.raises(pika.exceptions.ProbableAuthenticationError):
        connect(broker, bad, "someone")

    wait_until(lambda: "Signature has expired" in broker.log_text)
    assert not any(part in broker.log_text for part in bad.split("."))


@pytest.mark.parametrize("lines, complaint", [
    ("auth_backends = ldap\n", "there are local and oauth"),
    ("auth_backends = oauth\n", "set issuer in [oauth]"),
    (
        "auth_backends = oauth\n[oauth]\nissuer = https://issuer.invalid\n",
        "set audience or resource_server_id",
    ),
])
def test_settings_that_cannot_work_are_said_at_boot(tmp_path, lines, complaint):
    config = tmp_path / "gomq.ini"
    config.write_text("[main]\n" + lines)
    process = BrokerProcess(tmp_path / "data", config)

    with pytest.raises(AssertionError):
        process.start()

    assert complaint in process.log_text and "Traceback" not in process.log_text


@pytest.fixture
def here():
    """A broker that has a shovel."""
    with Broker(http_port=0, sync=False) as here:
        yield here


def test_a_shovels_token_expires_and_another_takes_its_place_without_a_loss(broker, issuer, here, request):
    """What is at the other end stays there; the state tells what to do, and no token is told."""
    there, shovelled = connect(broker, "guest", "guest"), Shovelled(here, request.node.name)
    channel = there.channel()
    channel.queue_declare("from", durable=True)
    channel.confirm_delivery()

    def start(lifetime_s):
        token = issuer.token(scope=ALL, lifetime_s=lifetime_s)
        uri = f"amqp://:{token}@127.0.0.1:{broker.ports['amqp']}/%2F"
        shovelled.start("amqp://", dest_queue=shovelled.name, **{"src-uri": uri, "src-queue": "from"})
        return token

    def publish(*numbers):
        for number in numbers:
            channel.basic_publish("", "from", b"%d" % number)

    publish(0, 1)
    for lifetime_s in LIFETIMES_S:
        first = start(lifetime_s)
        if wait_until(lambda: shovelled.shown()["moved"] or "expired" in shovelled.shown()["error"]) == 2:
            break
    wait_until(lambda: "the token in the URI has expired at " in shovelled.shown()["error"])
    publish(2, 3)
    shown = shovelled.call("GET", "shovels").text
    start(600)

    assert first not in shown and '"state":"starting"' in shown.replace(" ", "")
    wait_until(lambda: shovelled.waiting() == 4, what=shovelled.shown)
    shovelled.wait_for(state="running", error="")
    assert channel.queue_declare("from", passive=True).method.message_count == 0
    shovelled.close()
    there.close()
