"""MQTT clients that others wrote, against our broker: paho-mqtt, aiomqtt, gmqtt, MQTT.js and Mosquitto's
tools; paho-mqtt and MQTT.js over WebSocket, too.
"""
import asyncio
import contextlib
import json
import os
import queue
import subprocess
import threading
from pathlib import Path

import aiomqtt
import gmqtt
import paho.mqtt.client as paho
import pytest
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties
from paho.mqtt.subscribeoptions import SubscribeOptions

from tests.support.broker_process import BrokerProcess
from tests.support.programs import find
from tests.support.waiting import TIMEOUT_S, in_time

FOREIGN = Path(__file__).parent / "foreign"
MQTT_JS = "/usr/share/nodejs/mqtt"
VERSIONS = pytest.mark.parametrize("version", [3, 4, 5])
TRANSPORTS = pytest.mark.parametrize("transport", ["tcp", "websockets"])


@pytest.fixture(scope="module")
def broker(tmp_path_factory):
    with BrokerProcess(tmp_path_factory.mktemp("mqtt") / "data", mqtt_port=0, http_port=0) as process:
        yield process


class Paho:
    """A client of paho's whose network thread runs."""

    def __init__(self, broker, version, client_id, transport="tcp", kept=False, will=None):
        self.messages: queue.Queue = queue.Queue()
        self.answers: queue.Queue = queue.Queue()
        options = {} if version == 5 else {"clean_session": not kept}
        self.paho = paho.Client(
            paho.CallbackAPIVersion.VERSION2, client_id, protocol=version, transport=transport, **options)
        self.paho.username_pw_set("guest", "guest")
        self.paho.on_connect = lambda _c, _d, flags, reason, properties: self.answers.put(
            ("connected", flags.session_present, reason, properties))
        self.paho.on_subscribe = lambda _c, _d, _m, reasons, _p: self.answers.put(("subscribed", reasons))
        self.paho.on_unsubscribe = lambda _c, _d, _m, reasons, _p: self.answers.put(("unsubscribed", reasons))
        self.paho.on_message = lambda _c, _d, message: self.messages.put(message)
        if will:
            self.paho.will_set(*will)
        if transport == "websockets":
            self.paho.ws_set_options(path="/mqtt")
        connecting = {}
        if version == 5:
            connecting["clean_start"] = not kept
            if kept:
                connecting["properties"] = properties_of(PacketTypes.CONNECT, SessionExpiryInterval=600)
        self.paho.connect(
            "127.0.0.1", broker.ports["http" if transport == "websockets" else "mqtt"], **connecting)
        self.paho.loop_start()
        _, self.session_present, reason, _ = self.answer()
        assert not reason.is_failure, reason

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.paho.disconnect()
        self.paho.loop_stop()

    def answer(self):
        return self.answers.get(timeout=TIMEOUT_S)

    def subscribe(self, *arguments, **options):
        self.paho.subscribe(*arguments, **options)
        what, reasons = self.answer()
        assert what == "subscribed"
        return [reason.value for reason in reasons]

    def publish(self, *arguments, **options):
        sent = self.paho.publish(*arguments, **options)
        sent.wait_for_publish(TIMEOUT_S)
        assert sent.is_published()

    def message(self):
        return self.messages.get(timeout=TIMEOUT_S)

    def lose(self):
        """The connection is gone without DISCONNECT, and paho does not try again."""
        self.paho.loop_stop()
        self.paho.socket().close()


def properties_of(kind, **values):
    made = Properties(kind)
    for name, value in values.items():
        setattr(made, name, value)
    return made


@VERSIONS
@TRANSPORTS
def test_paho_receives_what_it_publishes_in_order(broker, version, transport):
    with Paho(broker, version, f"o{version}{transport}", transport) as client:
        prefix = f"order/{version}/{transport}"
        assert client.subscribe([(f"{prefix}/{qos}", qos) for qos in (0, 1, 2)]) == [0, 1, 2]

        for number in range(50):
            for qos in (0, 1, 2):
                client.paho.publish(f"{prefix}/{qos}", b"%d" % number, qos)
        found = [client.message() for _ in range(150)]

    for qos in (0, 1, 2):
        mine = [int(one.payload) for one in found if (one.topic, one.qos) == (f"{prefix}/{qos}", qos)]
        assert mine == list(range(50))


@VERSIONS
@TRANSPORTS
def test_session_of_paho_has_what_was_published_meanwhile(broker, version, transport):
    name = f"s{version}{transport}"
    with Paho(broker, version, name, transport, kept=True) as client:
        client.subscribe(f"session/{name}", 2)
    with Paho(broker, version, f"{name}p", transport) as sender:
        for number in range(40):
            sender.publish(f"session/{name}", b"%d" % number, 1 + number % 2)
    with Paho(broker, version, name, transport, kept=True) as client:
        assert client.session_present == (version > 3)
        found = [client.message() for _ in range(40)]
        for qos in (1, 2):  # paho gives those of QoS 2 out at PUBREL, and so behind others
            assert [int(one.payload) for one in found if one.qos == qos] == list(range(qos - 1, 40, 2))
        client.paho.unsubscribe(f"session/{name}")
        assert client.answer()[0] == "unsubscribed"


@VERSIONS
def test_wills_and_retained_messages_of_paho(broker, version):
    with Paho(broker, version, f"w{version}") as client:
        client.subscribe(f"will/{version}", 1)
        Paho(broker, version, f"wl{version}", will=(f"will/{version}", b"gone", 1, True)).lose()
        message = client.message()
        assert (message.payload, message.qos, message.retain) == (b"gone", 1, False)
    with Paho(broker, version, f"r{version}") as client:
        client.subscribe(f"will/{version}", 1)
        message = client.message()
        assert (message.payload, message.qos, message.retain) == (b"gone", 1, True)
        client.publish(f"will/{version}", b"", 1, True)


@TRANSPORTS
def test_properties_and_subscription_options_of_paho(broker, transport):
    sent = {
        "ContentType": "text/plain", "ResponseTopic": "r", "CorrelationData": b"\0\xff",
        "PayloadFormatIndicator": 1,
        "UserProperty": [("a", "1"), ("a", "2")],
    }
    topic = f"properties/{transport}"
    with Paho(broker, 5, f"p{transport}", transport) as client, Paho(broker, 5, f"pp{transport}") as sender:
        client.subscribe(
            topic, options=SubscribeOptions(qos=1, noLocal=True, retainAsPublished=True),
            properties=properties_of(PacketTypes.SUBSCRIBE, SubscriptionIdentifier=268435455))
        client.publish(topic, b"own", 1)
        sender.publish(topic, b"x", 1, True, properties_of(PacketTypes.PUBLISH, **sent))
        message = client.message()
        sender.publish(topic, b"", 1, True)

    assert (message.payload, message.retain) == (b"x", True)
    assert {name: getattr(message.properties, name) for name in sent} == sent
    assert message.properties.SubscriptionIdentifier == [268435455]


def test_paho_in_two_threads_requests_and_responds(broker):
    with Paho(broker, 5, "service") as service, Paho(broker, 5, "caller") as caller:
        service.subscribe("rpc/square", 1)
        caller.subscribe("answers/caller", 1)

        def serve():
            for _ in range(20):
                request = service.message()
                service.paho.publish(
                    request.properties.ResponseTopic, str(int(request.payload) ** 2).encode(), 1,
                    properties=properties_of(
                        PacketTypes.PUBLISH, CorrelationData=request.properties.CorrelationData))

        thread = threading.Thread(target=serve)
        thread.start()
        for number in range(20):
            caller.paho.publish("rpc/square", b"%d" % number, 1, properties=properties_of(
                PacketTypes.PUBLISH, ResponseTopic="answers/caller", CorrelationData=b"%d" % number))
        answers = [caller.message() for _ in range(20)]
        thread.join(TIMEOUT_S)

    assert sorted(int(one.payload) for one in answers) == [number ** 2 for number in range(20)]
    assert all(int(one.properties.CorrelationData) ** 2 == int(one.payload) for one in answers)


@pytest.mark.parametrize("version", [aiomqtt.ProtocolVersion.V311, aiomqtt.ProtocolVersion.V5])
def test_aiomqtt_publishes_and_iterates(broker, version):
    async def talk():
        topic = f"aiomqtt/{version.name}"
        async with aiomqtt.Client(
            "127.0.0.1", broker.ports["mqtt"], username="guest", password="guest", protocol=version,
            will=aiomqtt.Will(topic, b"unused", 1), identifier=f"aio-{version.name}",
        ) as client:
            await client.subscribe(f"{topic}/#", 2)
            for number in range(50):
                await client.publish(f"{topic}/{number % 3}", number, qos=number % 3)
            found = []
            async for message in client.messages:
                found.append((int(message.payload), message.qos, str(message.topic)))
                if len(found) == 50:
                    break
            await client.unsubscribe(f"{topic}/#")
        return found

    found = asyncio.run(asyncio.wait_for(talk(), TIMEOUT_S))

    topics = [f"aiomqtt/{version.name}/{number % 3}" for number in range(50)]
    assert sorted(found) == [(number, number % 3, topics[number]) for number in range(50)]


@pytest.mark.parametrize("version", [4, 5])
def test_gmqtt_publishes_and_receives(broker, version):
    async def talk():
        found: asyncio.Queue = asyncio.Queue()
        subscribed = asyncio.Event()
        client = gmqtt.Client(f"gmqtt-{version}", session_expiry_interval=60) if version == 5 else (
            gmqtt.Client(f"gmqtt-{version}"))
        client.set_auth_credentials("guest", "guest")
        client.on_message = lambda _client, topic, payload, qos, properties: (
            found.put_nowait((topic, payload, qos, properties)) or 0)
        client.on_subscribe = lambda *_: subscribed.set()
        await client.connect("127.0.0.1", broker.ports["mqtt"], version=version)
        client.subscribe(f"gmqtt/{version}/#", qos=2)
        await subscribed.wait()
        more = {"user_property": ("key", "value"), "content_type": "json"} if version == 5 else {}
        for qos in (0, 1, 2):
            client.publish(f"gmqtt/{version}/{qos}", {"qos": qos}, qos=qos, **more)
        messages = [await found.get() for _ in range(3)]
        await client.disconnect()
        return messages

    messages = asyncio.run(asyncio.wait_for(talk(), TIMEOUT_S))

    assert sorted((topic, json.loads(payload), qos) for topic, payload, qos, _ in messages) == [
        (f"gmqtt/{version}/{qos}", {"qos": qos}, qos) for qos in (0, 1, 2)
    ]
    if version == 5:
        assert all(
            each["user_property"] == [("key", "value")] and each["content_type"] == ["json"]
            for *_, each in messages
        )


@pytest.mark.needs_program("node")
@pytest.mark.needs_program(MQTT_JS)
@pytest.mark.parametrize("version", [4, 5])
@pytest.mark.parametrize("transport", ["mqtt", "ws"])
def test_mqtt_js(broker, version, transport):
    url = f"{transport}://127.0.0.1:" + (
        f"{broker.ports['mqtt']}" if transport == "mqtt" else f"{broker.ports['http']}/mqtt")
    done = subprocess.run(
        [find("node"), str(FOREIGN / "smoke_mqtt.js"), url, str(version)], capture_output=True, text=True,
        check=False, timeout=in_time(60), env={
            **os.environ, "NODE_PATH": "/usr/share/nodejs", "PATIENCE_MS": f"{TIMEOUT_S * 1000:.0f}"})

    assert done.returncode == 0 and "ok the end" in done.stdout, done.stdout + done.stderr


@pytest.mark.needs_program("mosquitto_sub")
@VERSIONS
def test_mosquittos_tools(broker, version):
    name = {3: "mqttv31", 4: "mqttv311", 5: "mqttv5"}[version]
    login = ("-p", str(broker.ports["mqtt"]), "-u", "guest", "-P", "guest", "-V", name)

    def publish(*arguments, given=None):
        done = subprocess.run(
            [find("mosquitto_pub"), *login, *arguments], input=given, capture_output=True, text=True,
            timeout=TIMEOUT_S, check=False)
        assert done.returncode == 0, done.stderr

    topic = f"tools/{version}"
    publish("-t", f"{topic}/kept", "-r", "-q", "1", "-m", "kept")
    subscriber = subprocess.Popen(
        [find("mosquitto_sub"), *login, "-t", f"{topic}/#", "-q", "2", "-C", "22", "-F", "%t %q %r %p"],
        stdout=subprocess.PIPE, text=True)
    try:
        assert subscriber.stdout.readline() == f"{topic}/kept 1 1 kept\n"
        publish("-t", f"{topic}/a", "-q", "2", "-m", "one")
        publish("-t", f"{topic}/b", "-q", "1", "-l", given="".join(f"{number}\n" for number in range(20)))
        lines = subscriber.stdout.read().splitlines()
        assert subscriber.wait(TIMEOUT_S) == 0
    finally:
        with contextlib.suppress(OSError):
            subscriber.kill()
        subscriber.wait()
        subscriber.stdout.close()
    publish("-t", f"{topic}/kept", "-r", "-n", "-q", "1")

    assert lines == [f"{topic}/a 2 0 one", *(f"{topic}/b 1 0 {number}" for number in range(20))]
