"""Shovels between RabbitMQ and this broker, either of them the one that has the shovel."""
import pytest
from pika import BasicProperties

from tests.support.federated import bodies, start_gomq
from tests.support.programs import find
from tests.support.shovels import arrived, publish, put, shovel, value_of, wait_for
from tests.support.waiting import wait_until

pytestmark = [
    pytest.mark.needs_program("rabbitmq-server"),
    pytest.mark.skipif(not find("rabbitmq-server"), reason="needs the program rabbitmq-server"),
]
COUNT = 500


@pytest.fixture(scope="module")
def brokers(tmp_path_factory, shared_rabbitmq):
    """Ours, with RabbitMQ's certificate as its own, and RabbitMQ."""
    files, config = shared_rabbitmq.certificates, tmp_path_factory.mktemp("ours") / "gomq.ini"
    config.write_text(f"[links]\ntls_folder = {files.authority.parent}\n")
    ours = start_gomq(
        config.parent / "data", "ours", config=config, amqps_port=0, tls_cert=files.certificate,
        tls_key=files.key)
    ours.tls_port = ours.process.ports["amqps"]
    yield ours, shared_rabbitmq
    ours.process.stop()


@pytest.fixture
def vhost(brokers, request):
    """A virtual host of the test's own, in both."""
    name = request.node.name.removeprefix("test_").translate(str.maketrans("[]", "--"))[:100]
    for peer in brokers:
        peer.make_vhost(name)
    yield name
    for peer in brokers:
        peer.hang_up()
        peer.call("DELETE", "vhosts", name)


@pytest.mark.parametrize("source", ["ours", "theirs"])
@pytest.mark.parametrize("shoveller", ["ours", "theirs"])
def test_messages_go_both_ways_whoever_has_the_shovel(brokers, vhost, shoveller, source):
    ours, theirs = brokers
    from_, to = brokers if source == "ours" else (theirs, ours)
    has = ours if shoveller == "ours" else theirs
    publish(from_, vhost, range(COUNT))

    put(has, vhost, value_of(
        from_, to, vhost, reconnect_delay=1, dest_add_forward_headers=True, dest_add_timestamp_header=True))

    channel = to.channel(vhost)
    channel.queue_declare("b", durable=True)
    got = bodies(channel, "b", COUNT)
    assert [int(body) for _, _, body in got] == list(range(COUNT))
    passed, = got[0][1].headers["x-shovelled"]
    assert (passed["shovelled-by"], passed["shovel-name"], passed["src-queue"], passed["dest-queue"]) == (
        "ours" if shoveller == "ours" else "rabbit", "s", "a", "b")
    assert isinstance(got[0][1].headers["x-shovelled-timestamp"], int)
    wait_until(lambda: [one["state"] for one in has.call("GET", "shovels", vhost)] == ["running"])
    wait_until(lambda: from_.ready(vhost, "a") == 0)


@pytest.mark.parametrize("shoveller", ["ours", "theirs"])
def test_each_reaches_the_other_over_tls_with_the_same_uri(brokers, vhost, shoveller):
    has, other = brokers if shoveller == "ours" else brokers[::-1]
    authority = brokers[1].certificates.authority
    publish(has, vhost, range(COUNT))

    put(has, vhost, value_of(has, other, vhost, reconnect_delay=1, dest_uri=(
        f"amqps://guest:guest@127.0.0.1:{other.tls_port}/{vhost}?cacertfile={authority}&verify=verify_peer"
        "&depth=1&server_name_indication=localhost&fail_if_no_peer_cert=true")))

    assert arrived(other, vhost, COUNT) == list(range(COUNT))


@pytest.mark.parametrize("end", ["source", "destination"])
def test_rabbitmqs_ports_of_one_kind_and_the_other_are_told_apart(brokers, vhost, end):
    ours, theirs = brokers
    ours.channel(vhost).queue_declare("a", durable=True)
    key = "src_uri" if end == "source" else "dest_uri"

    for name, uri in (
        ("s", f"amqp://guest:guest@127.0.0.1:{theirs.tls_port}"),
        ("t", f"amqps://guest:guest@127.0.0.1:{theirs.process.port}"),
    ):
        put(ours, vhost, value_of(ours, ours, vhost, **{key: uri}), name)

    for name, error in (("s", "for TLS, the URL begins with amqps://"), ("t", "that port does not speak it")):
        wait_until(lambda name=name, error=error: error in shovel(ours, vhost, name)["error"],
                   what=lambda name=name: shovel(ours, vhost, name))
        assert shovel(ours, vhost, name)["error"].startswith(f"{end}: ")


def test_a_stream_of_rabbitmq_is_read_from_its_beginning_and_over_a_restart_of_the_shovel(brokers, vhost):
    ours, theirs = brokers
    theirs.channel(vhost).queue_declare("a", durable=True, arguments={"x-queue-type": "stream"})
    publish(theirs, vhost, range(COUNT), arguments={"x-queue-type": "stream"})

    put(ours, vhost, value_of(
        theirs, ours, vhost, dest_uri="amqp://", src_consumer_args={"x-stream-offset": "first"}))

    assert arrived(ours, vhost, COUNT) == list(range(COUNT))
    wait_for(ours, vhost, moved=COUNT)
    ours.call("PUT", "shovels", vhost, "s", "restart")
    publish(theirs, vhost, [COUNT], arguments={"x-queue-type": "stream"})
    assert arrived(ours, vhost, 1) == [COUNT]


def test_a_stream_of_rabbitmq_is_known_by_what_it_delivers(brokers, vhost):
    ours, theirs = brokers
    stream = {"x-queue-type": "stream"}
    theirs.channel(vhost).queue_declare("a", durable=True, arguments=stream)
    put(ours, vhost, value_of(theirs, ours, vhost, dest_uri="amqp://"))
    wait_for(ours, vhost, state="running")
    publish(theirs, vhost, range(5), arguments=stream)
    assert arrived(ours, vhost, 5) == list(range(5))
    wait_for(ours, vhost, moved=5)

    ours.call("PUT", "shovels", vhost, "s", "pause")
    wait_for(ours, vhost, state="paused")
    publish(theirs, vhost, range(5, 10), arguments=stream)
    ours.call("PUT", "shovels", vhost, "s", "resume")

    assert arrived(ours, vhost, 5) == list(range(5, 10))


@pytest.mark.parametrize("kind", ["classic", "quorum"])
def test_a_queue_of_rabbitmq_whose_messages_have_come_from_a_stream_is_no_stream(brokers, vhost, kind):
    ours, theirs = brokers
    channel = theirs.channel(vhost)
    channel.queue_declare("a", durable=True, arguments={"x-queue-type": kind})
    put(ours, vhost, value_of(theirs, ours, vhost, dest_uri="amqp://"))

    for number in range(2):
        channel.basic_publish(
            "", "a", b"%d" % number, BasicProperties(headers={"x-stream-offset": 1000}, delivery_mode=2))
        assert arrived(ours, vhost, 1) == [number]
        wait_for(ours, vhost, state="running", unconfirmed=0)
        ours.call("PUT", "shovels", vhost, "s", "restart")


def test_rabbitmqs_shovel_goes_when_it_has_moved_what_was_here(brokers, vhost):
    ours, theirs = brokers
    publish(ours, vhost, range(COUNT))

    put(theirs, vhost, value_of(ours, theirs, vhost, reconnect_delay=1, src_delete_after="queue-length"))

    assert arrived(theirs, vhost, COUNT) == list(range(COUNT))
    wait_until(lambda: theirs.call("GET", "parameters", "shovel", vhost) == [])
