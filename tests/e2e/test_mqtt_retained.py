"""Retained messages and wills from outside: paho-mqtt and pika."""
from queue import Empty, Queue

import paho.mqtt.client as paho
import pika
import pytest
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties
from paho.mqtt.reasoncodes import ReasonCode
from paho.mqtt.subscribeoptions import SubscribeOptions

from gomq_py import Broker
from tests.support.broker_process import BrokerProcess
from tests.support.waiting import in_time, wait_until

PATIENCE_S = in_time(30)
V3, V5 = paho.MQTTv311, paho.MQTTv5


@pytest.fixture(scope="module")
def broker(tmp_path_factory):
    with Broker(data_dir=str(tmp_path_factory.mktemp("data")), mqtt_port=0) as broker:
        yield broker


@pytest.fixture
def connect(broker):
    """A function that connects a client; all leave with the test."""
    made = []

    def connect(client_id, version=V5, at=None, **options):
        made.append(Client(at or broker, client_id, version, **options))
        return made[-1]

    yield connect
    for client in made:
        client.leave()


class Client:
    """``received``: a Queue of paho's messages. ``will``: (topic, payload, QoS, RETAIN), with
    ``will_properties``.
    """

    def __init__(
        self, broker, client_id, version, will=None, expiry_s=0, clean=True, user="guest", **will_properties
    ):
        self.received, self._answers = Queue(), Queue()
        is_5 = version == V5
        self.paho = paho.Client(
            paho.CallbackAPIVersion.VERSION2, client_id, protocol=version, reconnect_on_failure=False,
            **({} if is_5 else {"clean_session": clean}))
        self.paho.username_pw_set(user, "guest")
        self.paho.on_connect = lambda *_: self._answers.put("connected")
        self.paho.on_subscribe = lambda *_: self._answers.put("subscribed")
        self.paho.on_message = lambda _c, _d, message: self.received.put(message)
        options = {}
        if is_5:
            options = {"clean_start": clean, "properties": Properties(PacketTypes.CONNECT)}
            options["properties"].SessionExpiryInterval = expiry_s
        if will is not None:
            properties = None
            if will_properties:
                properties = Properties(PacketTypes.WILLMESSAGE)
                for name, value in will_properties.items():
                    setattr(properties, name, value)
            self.paho.will_set(*will, properties=properties)
        self.paho.connect("127.0.0.1", broker.addresses["mqtt"][1], **options)
        self.paho.loop_start()
        self._answers.get(timeout=PATIENCE_S)

    def subscribe(self, topic_filter, qos=2, **options):
        if options:
            self.paho.subscribe(topic_filter, options=SubscribeOptions(qos, **options))
        else:
            self.paho.subscribe(topic_filter, qos)
        self._answers.get(timeout=PATIENCE_S)
        return self

    def publish(self, topic, payload, qos=1, retain=True, **properties):
        wanted = None
        if properties:
            wanted = Properties(PacketTypes.PUBLISH)
            for name, value in properties.items():
                setattr(wanted, name, value)
        info = self.paho.publish(topic, payload, qos, retain, wanted)
        info.wait_for_publish(PATIENCE_S)
        assert info.is_published()
        return self

    def next(self):
        """(topic, payload, QoS, RETAIN)."""
        return about(self.received.get(timeout=PATIENCE_S))

    def all_up_to(self, topic):
        """The same of all that came before a message that is published to this topic now, and subscribed to.
        """
        self.subscribe(topic)
        self.publish(topic, b"mark", retain=False)
        found = []
        while (one := self.next())[0] != topic:
            found.append(one)
        return found

    def leave(self, **options):
        self.paho.disconnect(**options)
        self.paho.loop_stop()

    def vanish(self):
        """Without DISCONNECT."""
        self.paho.loop_stop()
        self.paho.socket().close()


def about(message):
    return message.topic, message.payload, message.qos, message.retain


@pytest.mark.parametrize("version", [V3, V5])
def test_who_subscribes_gets_the_last_message_of_each_topic(connect, version):
    name = f"last/{version}"
    publisher = connect(f"p{version}", version)
    for qos in (0, 1, 2):
        publisher.publish(f"{name}/{qos}", b"old", qos).publish(f"{name}/{qos}", b"new", qos)
    publisher.publish(f"{name}/deleted", b"x").publish(f"{name}/deleted", b"")

    subscriber = connect(f"s{version}", version).subscribe(f"{name}/#", 1)

    assert sorted(subscriber.all_up_to(f"mark/{version}")) == [
        (f"{name}/0", b"new", 0, True), (f"{name}/1", b"new", 1, True), (f"{name}/2", b"new", 1, True),
    ]


@pytest.mark.parametrize("qos", [0, 1])
def test_subscriber_that_is_there_gets_it_as_published_only_if_it_asks(connect, qos):
    """[MQTT-3.3.1-12], [MQTT-3.3.1-13]"""
    plain = connect(f"plain{qos}").subscribe(f"rap/{qos}", qos)
    asking = connect(f"asking{qos}").subscribe(f"rap/{qos}", qos, retainAsPublished=True)

    connect(f"rap{qos}").publish(f"rap/{qos}", b"x", qos)

    assert plain.next() == (f"rap/{qos}", b"x", qos, False)
    assert asking.next() == (f"rap/{qos}", b"x", qos, True)


def test_retain_handling(connect):
    connect("handling").publish("handling/1", b"x")
    client = connect("handled")

    for handling, expected in ((2, 0), (1, 0), (0, 1), (1, 0), (2, 0)):
        client.subscribe("handling/#", retainHandling=handling)
        got = client.all_up_to("mark/handling")
        assert len(got) == expected, handling
    assert len(connect("new").subscribe("handling/#", retainHandling=1).all_up_to("mark/new")) == 1


def test_properties_and_what_is_left_of_the_expiry_are_there(connect):
    connect("properties").publish(
        "properties/1", b"x", MessageExpiryInterval=100, ContentType="text", UserProperty=("k", "v"))

    message = connect("reader").subscribe("properties/1").received.get(timeout=PATIENCE_S)

    assert 0 < message.properties.MessageExpiryInterval <= 100
    assert (message.properties.ContentType, message.properties.UserProperty) == ("text", [("k", "v")])


def test_shared_subscription_gets_none(connect):
    """§4.8.2"""
    connect("share").publish("shared/1", b"x")

    assert connect("member").subscribe("$share/g/shared/#").all_up_to("mark/shared") == []


def test_what_amqp_publishes_with_the_header_is_retained(broker, connect):
    connection = pika.BlockingConnection(pika.URLParameters(broker.amqp_url))
    channel = connection.channel()
    channel.confirm_delivery()
    channel.basic_publish("amq.topic", "from.amqp", b"x", pika.BasicProperties(
        delivery_mode=2, headers={"mqtt.retain": True}))
    channel.basic_publish("amq.topic", "from.amqp", b"not retained", pika.BasicProperties(delivery_mode=2))
    connection.close()

    assert connect("of amqp").subscribe("from/#").next() == ("from/amqp", b"x", 1, True)


def test_many_retained_messages_come_to_a_client_with_a_small_window(connect):
    publisher = connect("many")
    for number in range(300):
        publisher.paho.publish(f"many/{number:03}", b"x", 0, True)
    publisher.publish("many/last", b"x")

    client = connect("slow").subscribe("many/#", 1)

    assert [client.next()[0] for _ in range(301)] == [
        *(f"many/{number:03}" for number in range(300)), "many/last"]


# wills

@pytest.mark.parametrize("version", [V3, V5])
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_will_of_a_client_that_vanishes(connect, version, qos):
    name = f"will/{version}/{qos}"
    watcher = connect(f"w{version}{qos}").subscribe(name)

    connect(f"v{version}{qos}", version, will=(name, b"gone", qos, True)).vanish()

    assert watcher.next() == (name, b"gone", qos, False)
    assert connect(f"l{version}{qos}").subscribe(name).next() == (name, b"gone", qos, True)


@pytest.mark.parametrize("version", [V3, V5])
def test_client_that_leaves_takes_its_will_with_it(connect, version):
    watcher = connect(f"watch{version}").subscribe(f"leave/{version}")

    connect(f"leaves{version}", version, will=(f"leave/{version}", b"gone")).leave()

    assert watcher.all_up_to(f"mark/leave/{version}") == []


def test_client_may_leave_and_leave_its_will(connect):
    """Reason code 0x04."""
    watcher = connect("watch4").subscribe("leave/4")

    connect("leaves4", will=("leave/4", b"gone")).leave(
        reasoncode=ReasonCode(PacketTypes.DISCONNECT, identifier=4))

    assert watcher.next()[:2] == ("leave/4", b"gone")


def test_properties_of_a_will(connect):
    watcher = connect("watch properties").subscribe("will/properties")

    connect(
        "with properties", will=("will/properties", b"gone"), ContentType="text", ResponseTopic="answer",
        CorrelationData=b"\0", MessageExpiryInterval=100, UserProperty=("k", "v"), PayloadFormatIndicator=1,
    ).vanish()

    message = watcher.received.get(timeout=PATIENCE_S).properties
    assert (message.ContentType, message.ResponseTopic, message.CorrelationData, message.UserProperty) == (
        "text", "answer", b"\0", [("k", "v")])
    assert 0 < message.MessageExpiryInterval <= 100 and message.PayloadFormatIndicator == 1
    assert not hasattr(message, "WillDelayInterval")


def test_delay_of_a_will(connect):
    watcher = connect("watch delay").subscribe("delay/#")
    connect("back", will=("delay/back", b"x"), expiry_s=100, WillDelayInterval=50).vanish()
    connect("ends", will=("delay/ends", b"x"), expiry_s=100, WillDelayInterval=50).vanish()
    connect("short", will=("delay/short", b"x"), expiry_s=1, WillDelayInterval=50).vanish()
    connect("waits", will=("delay/waits", b"x"), expiry_s=100, WillDelayInterval=1).vanish()

    connect("back", clean=False, expiry_s=100)
    connect("ends", clean=True)

    assert {watcher.next()[0] for _ in range(3)} == {"delay/ends", "delay/short", "delay/waits"}
    assert watcher.all_up_to("mark/delay") == []


def test_rights_count_when_the_will_is_published(broker, connect):
    """As they are then, whatever they were when the client connected."""
    def let_write(launcher, pattern):
        launcher.broker.users.set_user("author", "guest")
        launcher.broker.users.set_permission("author", "/", ".*", pattern, ".*")

    def is_there(launcher, client_id):
        return client_id in launcher.broker.vhosts["/"].extras["mqtt"].by_client

    watcher = connect("watch rights").subscribe("rights/#")
    for number, (before, after) in enumerate((("", ".*"), (".*", ""), (".*", ".*"))):
        broker.call(let_write, before)
        author = connect(f"author{number}", will=(f"rights/{number}", b"x"), user="author")
        broker.call(let_write, after)
        author.vanish()
        wait_until(lambda number=number: not broker.call(is_there, f"author{number}"), PATIENCE_S)

    assert [topic for topic, *_ in watcher.all_up_to("mark/rights")] == ["rights/0", "rights/2"]


# restarts

def test_retained_messages_and_wills_over_a_restart(tmp_path):
    """A broker that stops publishes the wills of those it disconnects, to sessions that are kept."""
    with Broker(data_dir=str(tmp_path), mqtt_port=0) as broker:
        watcher = Client(broker, "watcher", V5, expiry_s=1000).subscribe("stop/#")
        watcher.leave()
        Client(broker, "publisher", V5).publish("kept/1", b"x").leave()
        Client(broker, "delayed", V5, ("stop/delayed", b"x", 1), 1000, WillDelayInterval=1000)
        leaver = Client(broker, "lost", V5, ("stop/lost", b"x", 1))
    leaver.paho.loop_stop()

    with Broker(data_dir=str(tmp_path), mqtt_port=0) as broker:
        again = Client(broker, "watcher", V5, expiry_s=1000, clean=False)
        assert again.next()[:3] == ("stop/lost", b"x", 1)
        assert again.subscribe("kept/#").next() == ("kept/1", b"x", 1, True)
        with pytest.raises(Empty):
            again.received.get_nowait()
        again.leave()


def test_retained_messages_and_wills_over_a_kill(tmp_path):
    """The broker is killed: who was connected is lost, unless it is back before the grace is over."""
    config = tmp_path / "gomq.ini"
    config.write_text(f"[mqtt]\nwill_grace = {in_time(5):.0f}\n")  # in which one has to be back
    with BrokerProcess(tmp_path / "data", config, mqtt_port=0) as broker:
        at = Process(broker)
        watcher = Client(at, "watcher", V5, expiry_s=1000).subscribe("kill/#")
        watcher.leave()
        publisher = Client(at, "publisher", V5).publish("kept/1", b"x").publish("kept/2", b"x")
        publisher.publish("kept/2", b"").leave()
        lost = Client(at, "lost", V5, ("kill/lost", b"x", 2, True))
        back = Client(at, "back", V5, ("kill/back", b"x", 2), expiry_s=1000)
        broker.kill()
        for client in (lost, back):
            client.paho.loop_stop()
        broker.start()

        back = Client(at, "back", V5, expiry_s=1000, clean=False)
        again = Client(at, "watcher", V5, expiry_s=1000, clean=False)

        assert again.next()[:3] == ("kill/lost", b"x", 2)
        assert sorted(again.subscribe("kept/#").all_up_to("mark/kill")) == [("kept/1", b"x", 1, True)]
        assert again.subscribe("kill/lost").next() == ("kill/lost", b"x", 2, True)
        for client in (again, back):
            client.leave()


def test_wills_are_published_though_clients_may_come_over_websocket_only(tmp_path):
    """And none has come yet: what is bound over AMQP gets them."""
    config = tmp_path / "gomq.ini"
    config.write_text("[mqtt]\nwill_grace = 0\n")
    with BrokerProcess(tmp_path / "data", config, mqtt_port=0) as broker:
        lost = Client(Process(broker), "lost", V5, ("kill/lost", b"x", 2))
        with pika.BlockingConnection(pika.URLParameters(broker.amqp_url)) as connection:
            channel = connection.channel()
            channel.queue_declare("wills", durable=True)
            channel.queue_bind("wills", "amq.topic", "kill.#")
        broker.kill()
        lost.paho.loop_stop()
    with BrokerProcess(tmp_path / "data", config, mqtt_port=-1, http_port=0) as broker:
        with pika.BlockingConnection(pika.URLParameters(broker.amqp_url)) as connection:
            consumed = connection.channel().consume("wills", auto_ack=True, inactivity_timeout=in_time(30))
            assert next(consumed)[2] == b"x"


class Process:
    """The addresses of a BrokerProcess, as Broker has them."""

    def __init__(self, process):
        self._process = process

    @property
    def addresses(self):
        return {"mqtt": ("127.0.0.1", self._process.ports["mqtt"])}
