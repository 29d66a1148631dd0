"""Shovels between broker processes: what is set by whatever tool moves messages, through restarts and kills
of every broker that takes part.
"""
import json
import random
import re
import shlex
import subprocess
import sys
from contextlib import ExitStack

import pytest
from pika import BasicProperties

from tests.support.broker_process import ROOT
from tests.support.command import run_module
from tests.support.federated import LOGIN, bodies, start_gomq
from tests.support.ports import reserve
from tests.support.programs import find
from tests.support.shovels import arrived, publish, put, shovel, value_of, wait_for
from tests.support.waiting import in_time, wait_until

COUNT = 200
PAGE = (ROOT / "docs" / "shovels.md").read_text(encoding="utf-8")
# The three ways to set one, and the commands about one that there is.
EXAMPLES = [
    line.replace("\\\n", " ") for line in re.findall(
        r"^    ((?:rabbitmqadmin|gomq-py-ctl add_shovel|curl)\b(?:.*\\\n)*.*)$", PAGE, re.MULTILINE)]
SECTION = re.search(r"\[shovel:archive\]\n(?:    .*\n)+", PAGE)[0]


@pytest.fixture(scope="module")
def peers(tmp_path_factory):
    """Three brokers that keep their ports: where messages are, where the shovel is, where they go."""
    with ExitStack() as stack:
        started = []
        for name in ("from", "by", "to"):
            peer = start_gomq(
                tmp_path_factory.mktemp(name) / "data", name, port=reserve(), http_port=reserve())
            stack.callback(lambda process=peer.process: process.is_running and process.stop())
            started.append(peer)
        yield started


@pytest.fixture
def vhost(peers, request):
    """A virtual host of the test's own, in each broker."""
    name = re.sub(r"\W", "-", request.node.name.removeprefix("test_"))[:100]
    for peer in peers:
        if not peer.process.is_running:
            peer.process.start()
        peer.make_vhost(name)
    yield name
    for peer in peers:
        peer.hang_up()
        peer.call("DELETE", "vhosts", name)


def by_http(peer, vhost, value):
    put(peer, vhost, value)


def by_rabbitmqadmin(peer, vhost, value):
    user, password = LOGIN
    subprocess.run(
        [
            sys.executable, find("rabbitmqadmin"), "-H", "127.0.0.1", "-P", peer.http_url.rpartition(":")[2],
            "-u", user, "-p", password, "-V", vhost, "declare", "parameter", "component=shovel", "name=s",
            f"value={json.dumps(value)}",
        ], check=True, capture_output=True, timeout=in_time(60))


def by_ctl(peer, vhost, value):
    ctl(peer, vhost, "add_shovel", "s", *(
        part for key, item in value.items() for part in (f"--{key}", str(item))))


def by_rabbitmqctl(peer, vhost, value):
    ctl(peer, vhost, "set_parameter", "shovel", "s", json.dumps(value))


def ctl(peer, vhost, *arguments):
    """What a command of gomq-py-ctl prints."""
    finished = run_module("gomq_py.ctl", "--uri", peer.http_url, "-p", vhost, *arguments)
    assert finished.returncode == 0, finished.stderr
    return finished.stdout


@pytest.mark.parametrize("set_by", [
    by_http, by_ctl, by_rabbitmqctl,
    pytest.param(by_rabbitmqadmin, marks=pytest.mark.needs_program("rabbitmqadmin")),
])
def test_a_shovel_moves_messages_of_one_broker_to_another_in_order(peers, vhost, set_by):
    source, shoveller, target = peers
    publish(source, vhost, range(COUNT))

    set_by(shoveller, vhost, value_of(source, target, vhost))

    assert arrived(target, vhost, COUNT) == list(range(COUNT))
    one = wait_for(shoveller, vhost, state="running", moved=COUNT, unconfirmed=0, error="")
    assert source.ready(vhost, "a") == 0
    assert (one["src_uri"], one["dest_uri"]) == (
        f"amqp://127.0.0.1:{source.process.port}/{vhost}", f"amqp://127.0.0.1:{target.process.port}/{vhost}")


def test_an_end_in_the_shovels_own_broker_needs_no_port(peers, vhost):
    _, shoveller, target = peers
    publish(shoveller, vhost, range(COUNT))

    put(shoveller, vhost, value_of(shoveller, target, vhost, src_uri="amqp://"))

    assert arrived(target, vhost, COUNT) == list(range(COUNT))


@pytest.mark.parametrize("which, end", [(0, "source"), (2, "destination")])
def test_a_shovel_goes_on_when_a_broker_is_back(peers, vhost, which, end):
    source, shoveller, target = peers
    put(shoveller, vhost, value_of(source, target, vhost))
    publish(source, vhost, range(10))
    assert arrived(target, vhost, 10) == list(range(10))
    for peer in peers:
        peer.hang_up()

    peers[which].process.stop()
    away = wait_until(
        lambda: shovel(shoveller, vhost) if shovel(shoveller, vhost)["state"] == "starting" else None)
    peers[which].process.start()
    publish(source, vhost, range(10, 20))

    assert away["error"].startswith(f"{end}: ")
    assert arrived(target, vhost, 10) == list(range(10, 20))
    wait_for(shoveller, vhost, state="running", error="")


def test_three_kills_of_the_shovels_own_broker_under_load_lose_nothing(peers, vhost):
    """Seed 13: the moments are chosen by how much has arrived."""
    source, shoveller, target = peers
    count, chance = 9000, random.Random(13)
    put(shoveller, vhost, value_of(source, target, vhost, src_prefetch_count=100))
    numbers = iter(range(count))

    for kill in range(3):
        publish(source, vhost, [next(numbers) for _ in range(count // 3)])
        least = kill * count // 3 + chance.randrange(count // 6)
        wait_until(lambda least=least: target.ready(vhost, "b") > least)
        shoveller.process.kill()
        shoveller.process.start()

    wait_until(lambda: source.ready(vhost, "a") == 0)
    wait_for(shoveller, vhost, state="running", unconfirmed=0)
    wait_until(lambda: {one["messages"] for one in source.call("GET", "queues", vhost)} == {0})
    got = arrived(target, vhost, target.ready(vhost, "b"))
    assert set(got) == set(range(count))
    firsts = list(dict.fromkeys(got))
    assert firsts == sorted(firsts)


@pytest.fixture
def pair(peers):
    """The shovel's broker and one that messages come from or go to."""
    _, shoveller, other = peers
    return shoveller, other


def test_a_paused_shovel_stays_so_over_a_restart_until_it_is_resumed(pair, vhost):
    shoveller, other = pair
    put(shoveller, vhost, value_of(shoveller, other, vhost, src_uri="amqp://"))
    wait_for(shoveller, vhost, state="running")

    ctl(shoveller, vhost, "pause_shovel", "s")
    publish(shoveller, vhost, range(3))
    shoveller.hang_up()
    shoveller.process.restart()
    paused = shovel(shoveller, vhost)
    waiting = shoveller.ready(vhost, "a")
    ctl(shoveller, vhost, "resume_shovel", "s")

    assert (paused["state"], waiting) == ("paused", 3)
    assert arrived(other, vhost, 3) == [0, 1, 2]
    ctl(shoveller, vhost, "restart_shovel", "s")
    wait_for(shoveller, vhost, state="running", moved=0)
    assert "running" in ctl(shoveller, vhost, "shovel_status")
    ctl(shoveller, vhost, "delete_shovel", "s")
    assert shoveller.call("GET", "shovels", vhost) == []
    assert shoveller.call("GET", "parameters", "shovel", vhost) == []


def test_from_exchange_to_exchange_routing_keys_are_kept_unless_another_is_given(pair, vhost):
    shoveller, other = pair
    shoveller.channel(vhost).exchange_declare("x", "topic", durable=True)
    channel = other.channel(vhost)
    channel.exchange_declare("y", "topic", durable=True)
    channel.queue_declare("b")
    channel.queue_bind("b", "y", "#")
    value = value_of(
        shoveller, other, vhost, src_queue=None, src_exchange="x", src_exchange_key="in.#", dest_queue=None,
        dest_exchange="y")
    put(shoveller, vhost, value)
    put(shoveller, vhost, {**value, "dest-exchange-key": "given"}, "t")
    for name in "st":
        wait_for(shoveller, vhost, name, state="running")

    publish(shoveller, vhost, [1], "out.side", "x")
    publish(shoveller, vhost, [2], "in.side", "x")

    got = bodies(channel, "b", 2)
    assert sorted((method.routing_key, body) for method, _, body in got) == [
        ("given", b"2"), ("in.side", b"2")]


def test_a_shovel_from_a_stream_goes_on_where_it_was_before_its_broker_ended(pair, vhost):
    shoveller, other = pair
    channel = other.channel(vhost)
    channel.queue_declare("a", durable=True, arguments={"x-queue-type": "stream"})
    publish_to_stream(other, vhost, range(COUNT))
    put(shoveller, vhost, value_of(
        other, shoveller, vhost, dest_uri="amqp://", src_consumer_args={"x-stream-offset": "first"}))
    first = arrived(shoveller, vhost, COUNT)
    wait_for(shoveller, vhost, moved=COUNT, unconfirmed=0)
    shoveller.hang_up()

    shoveller.process.restart()
    publish_to_stream(other, vhost, range(COUNT, COUNT + 10))

    assert first == list(range(COUNT))
    assert arrived(shoveller, vhost, 10) == list(range(COUNT, COUNT + 10))


def test_a_stream_elsewhere_is_known_by_what_it_delivers_and_gone_on_with(pair, vhost):
    """Nothing in the definition says that it is one."""
    shoveller, other = pair
    other.channel(vhost).queue_declare("a", durable=True, arguments={"x-queue-type": "stream"})
    put(shoveller, vhost, value_of(other, shoveller, vhost, dest_uri="amqp://"))
    wait_for(shoveller, vhost, state="running")
    publish_to_stream(other, vhost, range(5))
    assert arrived(shoveller, vhost, 5) == list(range(5))
    wait_for(shoveller, vhost, moved=5, unconfirmed=0)

    other.hang_up()
    other.process.restart()  # the link connects anew
    publish_to_stream(other, vhost, range(5, 10))
    assert arrived(shoveller, vhost, 5) == list(range(5, 10))
    wait_for(shoveller, vhost, moved=10, unconfirmed=0)
    shoveller.hang_up()
    shoveller.process.stop()
    publish_to_stream(other, vhost, range(10, 15))  # the shovel's broker is away
    shoveller.process.start()

    assert arrived(shoveller, vhost, 5) == list(range(10, 15))


def test_a_queue_elsewhere_whose_messages_have_come_from_a_stream_is_no_stream(pair, vhost):
    shoveller, other = pair
    put(shoveller, vhost, value_of(other, shoveller, vhost, dest_uri="amqp://"))
    wait_for(shoveller, vhost, state="running")
    for first in (0, 5):
        channel = other.channel(vhost)
        channel.queue_declare("a", durable=True)
        for number in range(first, first + 5):
            channel.basic_publish("", "a", b"%d" % number, BasicProperties(
                headers={"x-stream-offset": 1000 + number}, delivery_mode=2))
        assert arrived(shoveller, vhost, 5) == list(range(first, first + 5))
        wait_for(shoveller, vhost, unconfirmed=0)
        shoveller.call("PUT", "shovels", vhost, "s", "restart")


def publish_to_stream(peer, vhost, numbers):
    channel = peer.channel(vhost)
    channel.confirm_delivery()
    for number in numbers:
        channel.basic_publish("", "a", b"%d" % number)


@pytest.mark.parametrize("mode", ["on-publish", "no-ack"])
def test_modes_without_confirms_move_messages_as_well(pair, vhost, mode):
    shoveller, other = pair
    publish(other, vhost, range(COUNT))

    put(shoveller, vhost, value_of(other, shoveller, vhost, ack_mode=mode, dest_uri="amqp://"))

    assert arrived(shoveller, vhost, COUNT) == list(range(COUNT))
    wait_for(shoveller, vhost, state="running", moved=COUNT)


@pytest.mark.parametrize("after, moved", [("queue-length", 10), (7, 7), ("never", 10)])
def test_a_shovel_ends_with_its_parameter_when_it_has_moved_what_it_should(pair, vhost, after, moved):
    shoveller, other = pair
    publish(other, vhost, range(10))

    put(shoveller, vhost, value_of(other, shoveller, vhost, src_delete_after=after, dest_uri="amqp://"))

    assert arrived(shoveller, vhost, moved) == list(range(moved))
    there = shoveller.call("GET", "parameters", "shovel", vhost)
    if after == "never":
        assert [one["name"] for one in there] == ["s"]
    else:
        wait_until(lambda: not shoveller.call("GET", "parameters", "shovel", vhost))
        assert shoveller.call("GET", "shovels", vhost) == []
        wait_until(lambda: other.ready(vhost, "a") == 10 - moved)


def test_properties_are_given_and_headers_say_where_a_message_has_been(pair, vhost):
    shoveller, other = pair
    publish(other, vhost, [1])

    put(shoveller, vhost, value_of(
        other, shoveller, vhost, dest_uri="amqp://", dest_add_forward_headers=True,
        dest_add_timestamp_header=True,
        dest_publish_properties={"content_type": "text/plain", "headers": {"h": "v"}, "priority": 4}))

    channel = shoveller.channel(vhost)
    channel.queue_declare("b", durable=True)
    (_, properties, body), = bodies(channel, "b", 1)
    (passed,), stamp = properties.headers["x-shovelled"], properties.headers["x-shovelled-timestamp"]
    assert (body, properties.content_type, properties.priority, properties.headers["h"]) == (
        b"1", "text/plain", 4, "v")
    assert properties.delivery_mode == 2 and stamp > 1_700_000_000
    assert passed == {
        "shovelled-by": "by", "shovel-type": "dynamic", "shovel-name": "s", "shovel-vhost": vhost,
        "src-uri": f"amqp://127.0.0.1:{other.process.port}/{vhost}", "dest-uri": f"amqp:///{vhost}",
        "src-queue": "a", "dest-queue": "b"}


def test_what_others_declare_is_waited_for_and_what_is_missing_otherwise_is_made(pair, vhost):
    shoveller, other = pair
    put(shoveller, vhost, value_of(
        other, shoveller, vhost, dest_uri="amqp://", src_predeclared=True,
        dest_queue_args={"x-max-length": 5}))
    put(shoveller, vhost, value_of(
        other, shoveller, vhost, src_queue=None, src_exchange="none", dest_uri="amqp://"), "ends")
    wait_until(lambda: "no queue 'a'" in shovel(shoveller, vhost)["error"])

    publish(other, vhost, range(3))

    assert arrived_in_existing(shoveller, vhost, 3) == [0, 1, 2]
    made = shoveller.call("GET", "queues", vhost, "b")
    assert (made["arguments"], made["durable"]) == ({"x-max-length": 5}, True)
    ended = wait_for(shoveller, vhost, "ends", state="error")
    assert "source: " in ended["error"] and "no exchange 'none'" in ended["error"]


def arrived_in_existing(peer, vhost, count):
    wait_until(lambda: any(one["name"] == "b" for one in peer.call("GET", "queues", vhost)))
    return [int(body) for _, _, body in bodies(peer.channel(vhost), "b", count)]


def test_of_several_uris_one_that_works_is_found(pair, vhost):
    shoveller, other = pair
    publish(other, vhost, range(3))

    put(shoveller, vhost, value_of(
        other, shoveller, vhost, src_uri=["amqp://127.0.0.1:1", other.uri(vhost)], dest_uri="amqp://",
        reconnect_delay=0.01))

    assert arrived(shoveller, vhost, 3) == [0, 1, 2]


def test_lag_moved_and_state_are_shown_and_counted_while_somebody_looks(pair, vhost):
    shoveller, other = pair
    publish(other, vhost, range(20))

    put(shoveller, vhost, value_of(other, shoveller, vhost, dest_uri="amqp://"))

    wait_for(shoveller, vhost, state="running", moved=20, lag=0)
    samples = metrics(shoveller, f"detailed?family=gomq_shovels&vhost={vhost}")
    label = f'{{vhost="{vhost}",shovel="s"}}'
    assert samples[f"gomq_shovel_up{label}"] == 1 and samples[f"gomq_shovel_lag{label}"] == 0
    assert samples[f"gomq_shovel_messages_moved_total{label}"] == 20
    assert metrics(shoveller, "")['gomq_shovels{state="running"}'] >= 1


def metrics(peer, path):
    """{series: value}"""
    text = peer.session.get(f"{peer.http_url}/metrics/{path}".rstrip("/")).text
    lines = (line.rpartition(" ") for line in text.splitlines() if not line.startswith("#"))
    return {series: float(value) for series, _, value in lines}


def follow(peer, target, line):
    """Run a line of docs/shovels.md, with the addresses of these brokers; what it prints."""
    programs = {
        "rabbitmqadmin": [
            sys.executable, find("rabbitmqadmin"), "-H", "127.0.0.1", "-P", peer.http_url.rpartition(":")[2]],
        "gomq-py-ctl": [sys.executable, "-m", "gomq_py.ctl", "--uri", peer.http_url], "curl": ["curl", "-sf"],
    }
    line = line.replace("amqp://user:password@other/shop", target.uri("shop"))
    program, *arguments = shlex.split(line.replace("http://localhost:15672", peer.http_url))
    finished = subprocess.run(
        [*programs[program], *arguments], capture_output=True, text=True, timeout=in_time(60), cwd=ROOT,
        check=False)
    assert finished.returncode == 0, finished.stderr
    return finished.stdout


@pytest.mark.parametrize("number", [
    pytest.param(0, marks=pytest.mark.needs_program("rabbitmqadmin"), id="rabbitmqadmin"),
    pytest.param(1, id="gomq-py-ctl"), pytest.param(2, marks=pytest.mark.needs_program("curl"), id="curl"),
])
def test_what_the_page_says_is_so(peers, vhost, number):
    _, shoveller, target = peers
    target.make_vhost("shop")
    publish(shoveller, "/", range(COUNT))

    follow(shoveller, target, EXAMPLES[number])

    assert arrived(target, "shop", COUNT) == list(range(COUNT))
    if number == 1:
        section = PAGE.split("## Seeing")[1]
        commands = re.findall(r"^    (gomq-py-ctl \w+(?: s)?)(?: |$)", section, re.MULTILINE)
        status, pause, restart, delete = commands
        wait_for(shoveller, "/", state="running")
        assert "running" in follow(shoveller, target, status)
        follow(shoveller, target, pause)
        wait_for(shoveller, "/", state="paused")
        follow(shoveller, target, "gomq-py-ctl resume_shovel s")
        follow(shoveller, target, restart)
        wait_for(shoveller, "/", state="running")
        follow(shoveller, target, delete)
    else:
        shoveller.call("DELETE", "shovels", "/", "s")
    assert shoveller.call("GET", "shovels") == []
    target.hang_up()
    target.call("DELETE", "vhosts", "shop")


def test_the_section_of_the_page_is_a_shovel_that_cannot_be_deleted(peers, vhost, tmp_path):
    """It waits for nobody to set it: it tries on until the exchange that it takes from is there; a restart
    makes it try at once.
    """
    _, _, target = peers
    config = tmp_path / "gomq.ini"
    section = re.sub(r"^    ", "", SECTION, flags=re.MULTILINE)
    for host in ("one", "two"):
        section = section.replace(f"amqp://user:password@{host}/", target.uri(vhost))
    config.write_text(section)
    channel = target.channel(vhost)
    channel.exchange_declare("archive", "topic", durable=True)
    channel.queue_declare("b", durable=True)
    channel.queue_bind("b", "archive", "eu.#")
    here = start_gomq(tmp_path / "data", "here", config=config)
    try:
        wait_for(
            here, "/", "archive", state="starting",
            error="source: 404 NOT_FOUND - no exchange 'orders' in vhost '/'")
        channel = here.channel("/")
        channel.exchange_declare("orders", "topic", durable=True)
        ctl(here, "/", "restart_shovel", "archive")
        wait_for(here, "/", "archive", state="running")
        refused = here.request("DELETE", "shovels", "/", "archive")
        as_parameter = here.request("DELETE", "parameters", "shovel", "/", "archive")
        by_command = run_module("gomq_py.ctl", "--uri", here.http_url, "delete_shovel", "archive")
        for number, key in enumerate(("eu.new", "us.new", "eu.old")):
            channel.basic_publish("orders", key, b"%d" % number)

        assert arrived(target, vhost, 2) == [0, 2]
        assert (refused.status_code, as_parameter.status_code, by_command.returncode) == (400, 400, 1)
        for said in (refused.text, as_parameter.text, by_command.stderr):
            assert "in the configuration file, which owns it: take the section [shovel:archive] away" in said
        assert shovel(here, "/", "archive")["type"] == "static"
    finally:
        here.hang_up()
        here.process.stop()
