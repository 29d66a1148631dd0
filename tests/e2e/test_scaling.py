"""docs/scaling.md and docs/federation.md: each of their examples is run as it stands there, on brokers of the
names that it uses.
"""
import re
import shlex
import subprocess
import sys
from contextlib import ExitStack

import paho.mqtt.client as paho
import pytest

from tests.ctl.running import in_process
from tests.support.broker_process import ROOT
from tests.support.federated import LOGIN, bodies, start_gomq
from tests.support.programs import find
from tests.support.waiting import TIMEOUT_S, in_time, wait_until

PAGE, FEDERATION = (
    (ROOT / "docs" / name).read_text(encoding="utf-8") for name in ("scaling.md", "federation.md"))
# Which broker plays which machine of the examples.
PLAYS = {
    "entry": 0, "core": 0, "home": 0, "one": 1, "edge1": 1, "two": 2, "edge2": 2,
    "london": 0, "paris": 1, "lyon": 2,
}


@pytest.fixture(scope="module")
def peers(tmp_path_factory):
    with ExitStack() as stack:
        started = []
        for name in ("first", "second", "third"):
            peer = start_gomq(tmp_path_factory.mktemp(name), name, mqtt_port=0)
            stack.callback(peer.process.stop)
            stack.callback(peer.hang_up)
            started.append(peer)
        yield started


def blocks_of(page, heading):
    """(kind, text) of each block of the section, in order."""
    section = page.split(f"\n## {heading}")[1].split("\n## ")[0]
    return re.findall(r"```(sh|python)\n(.*?)```", section, re.DOTALL)


def follow(peers, heading):
    """Do what the section of docs/scaling.md says."""
    for kind, block in blocks_of(PAGE, heading):
        carry_out(peers, kind, block)


def carry_out(peers, kind, block):
    """Do what one block says: the names that lines of Python make, or what lines of a shell print."""
    if kind == "python":
        name = re.match(r"# at (\w+)", block)[1]
        made = {"channel": peers[PLAYS[name]].channel("/")}
        exec(block, made)  # the page's own lines
        return made
    return "".join(run_line(peers, line) for line in block.splitlines())


def run_line(peers, line):
    """What it prints."""
    def there(uri):
        login, host = uri[1], uri[2]
        return f"{login}127.0.0.1:{peers[PLAYS[host]].process.port}"
    program, *arguments = [
        re.sub(r"(amqp://\w+:\w+@)(\w+)", there, word) for word in shlex.split(line)]
    if program == "gomq-py-ctl":
        peer = peers[PLAYS[re.fullmatch(r"http://(\w+):15672", arguments[1])[1]]]
        finished = in_process(peer.http_url, *arguments[2:])
        assert finished.exit_code == 0, finished.output
        return finished.stdout
    if program == "rabbitmqadmin":
        assert arguments[0] == "-H"
        port = peers[PLAYS[arguments[1]]].http_url.rpartition(":")[2]
        command = [sys.executable, find("rabbitmqadmin"), "-H", "127.0.0.1", "-P", port, "-u", LOGIN[0],
                   "-p", LOGIN[1], *arguments[2:]]
    else:
        command = [program, *(re.sub(
            r"http://(\w+):15672", lambda host: peers[PLAYS[host[1]]].http_url, word) for word in arguments)]
    finished = subprocess.run(
        command, capture_output=True, text=True, timeout=in_time(60), cwd=ROOT, check=False)
    assert finished.returncode == 0, finished.stdout + finished.stderr
    return finished.stdout


def clear(peers):
    for peer in peers:
        peer.hang_up()
        for policy in peer.call("GET", "policies", "/"):
            peer.call("DELETE", "policies", "/", policy["name"])
        for one in peer.call("GET", "parameters", "federation-upstream", "/"):
            peer.call("DELETE", "parameters", "federation-upstream", "/", one["name"])
    wait_until(lambda: not any(peer.links("/") for peer in peers), TIMEOUT_S)


def test_consistent_hash_exchange_over_brokers_keeps_what_belongs_together_in_order(peers):
    entry, *workers = peers
    follow(peers, "A consistent-hash exchange over several brokers")
    for worker, number in zip(workers, "12"):
        worker.wait_for_links("/", 1)
        wait_until(lambda number=number: len(entry.bindings("/", f"orders.{number}")) == 1, TIMEOUT_S)
    channel = entry.channel("/")

    for number in range(200):
        channel.basic_publish("orders", f"customer {number % 20}", str(number).encode())
    wait_until(
        lambda: sum(worker.ready("/", "orders") for worker in workers) == 200, TIMEOUT_S,
        lambda: str([worker.ready("/", "orders") for worker in workers]))

    customers = []
    for worker in workers:
        got = bodies(worker.channel("/"), "orders", worker.ready("/", "orders"))
        of_customer = {}
        for method, _, body in got:
            of_customer.setdefault(method.routing_key, []).append(int(body))
        assert all(numbers == sorted(numbers) and len(numbers) == 10 for numbers in of_customer.values())
        customers.append(set(of_customer))
    assert len(customers[0]) + len(customers[1]) == 20 and all(customers)
    clear(peers)


def test_core_gets_from_the_edge_what_it_asks_for(peers):
    core, *edges = peers
    follow(peers, "Brokers at the edge with MQTT, and one core")
    core.wait_for_links("/", 2)
    for edge in edges:
        wait_until(lambda edge=edge: edge.bindings("/", "amq.topic") == ["plant.*.alarm"], TIMEOUT_S)

    for number, edge in enumerate(edges):
        device = paho.Client(paho.CallbackAPIVersion.VERSION2, client_id=f"device{number}")
        device.username_pw_set("guest", "guest")
        device.connect("127.0.0.1", edge.process.ports["mqtt"])
        device.loop_start()
        for topic in ("temperature", "alarm"):
            device.publish(f"plant/{number}/{topic}", topic, qos=1).wait_for_publish(TIMEOUT_S)
        device.disconnect()
        device.loop_stop()
    got = bodies(core.channel("/"), "alarms", 2)

    assert sorted((method.routing_key, body) for method, _, body in got) == [
        ("plant.0.alarm", b"alarm"), ("plant.1.alarm", b"alarm")]
    assert core.ready("/", "alarms") == 0
    clear(peers)


def test_queue_is_drained_from_several_machines(peers):
    home, *workers = peers
    follow(peers, "One queue drained from several machines")
    for worker in workers:
        worker.wait_for_links("/", 1)
    channel = home.channel("/")
    taken = {worker.name: [] for worker in workers}
    serving = []
    for worker in workers:
        there = worker.channel("/")
        there.basic_qos(prefetch_count=1)

        def work(channel, method, _properties, body, done=taken[worker.name]):
            done.append(int(body))
            channel.basic_ack(method.delivery_tag)
        there.basic_consume("jobs", work)
        serving.append(there)
    # the first link that asks for messages would have all of them
    wait_until(lambda: channel.queue_declare("jobs", passive=True).method.consumer_count == 2, TIMEOUT_S)

    for number in range(200):
        channel.basic_publish("", "jobs", str(number).encode())

    def is_done():
        for there in serving:
            there.connection.process_data_events(0.005)
        return sum(map(len, taken.values())) == 200
    wait_until(is_done, TIMEOUT_S, lambda: str({name: len(done) for name, done in taken.items()}))

    assert sorted(sum(taken.values(), [])) == list(range(200))
    assert all(taken.values()), "one machine did it all"
    clear(peers)


@pytest.mark.needs_program("rabbitmqadmin")
@pytest.mark.needs_program("curl")
def test_walk_through_federation_does_what_its_page_says(peers):
    london, paris, lyon = peers
    (_, users), (_, here), bind, (_, define), publish, read = blocks_of(FEDERATION, "An exchange")
    for block in (users, here):
        carry_out(peers, "sh", block)
    carry_out(peers, *bind)
    assert "news" in carry_out(peers, "sh", define)
    paris.wait_for_links("/", 1)
    wait_until(lambda: london.bindings("/", "news") == ["sport.#"], TIMEOUT_S)
    carry_out(peers, *publish)
    got = carry_out(peers, *read)
    assert got["body"] == b"tonight"
    assert got["properties"].headers["x-received-from"][0]["cluster-name"] == london.name

    (several,) = blocks_of(FEDERATION, "Several upstreams")
    carry_out(peers, *several)
    links = paris.wait_for_links("/", 2)
    assert {(link["exchange"], link["upstream"]) for link in links} == {("news", "london"), ("news", "lyon")}

    declare, publish, read = blocks_of(FEDERATION, "A queue")
    carry_out(peers, *declare)
    paris.wait_for_links("/", 3)
    carry_out(peers, *publish)
    assert carry_out(peers, *read)["body"] == b"bake"

    define, take_back = blocks_of(FEDERATION, "With other tools")
    carry_out(peers, *define)
    links = paris.wait_for_links("/", 2)
    assert {(link["type"], link["upstream"]) for link in links} == {("exchange", "london"), ("queue", "lyon")}
    carry_out(peers, *take_back)
    wait_until(lambda: not paris.links("/"), TIMEOUT_S)
    assert paris.call("GET", "parameters") == [] == paris.call("GET", "policies")
    for peer in (london, lyon):
        wait_until(lambda peer=peer: not [
            queue for queue in peer.call("GET", "queues", "/") if queue["name"].startswith("federation: ")],
            TIMEOUT_S)
