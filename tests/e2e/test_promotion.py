"""Two nodes as an operator has them: flags, a follower's doors, gomq-py-ctl, restarts."""
import shutil
import signal
import socket

import pika
import pytest
import requests
import trustme

from tests.ctl.running import Runner, done
from tests.support import certificates
from tests.support.broker_process import BrokerProcess
from tests.support.command import gomq_py as run
from tests.support.mirror import folder_content
from tests.support.ports import reserve
from tests.support.waiting import in_time, wait_until

SECRET = "a secret of the cluster"
COUNT = 300


def node(folder, **options):
    return BrokerProcess(
        folder, http_port=0, metrics_http_port=0, control_unix_path=f"{folder}.sock",
        environment={"GOMQ_CLUSTER_PASSWORD": SECRET}, **{"clustering_port": 0, **options})


def follower_of(leader, folder, **options):
    return node(folder, cluster_leader=f"127.0.0.1:{leader.ports['cluster']}", **options)


def ask(broker, path, door="http", **more):
    return requests.get(f"http://127.0.0.1:{broker.ports[door]}{path}", timeout=in_time(10), **more)


def wait_until_equal(follower, leader):
    """Everything that the leader told before this call is on the follower's disk; returns its figures."""
    position = ask(leader, "/api/cluster", auth=("guest", "guest")).json()["position"]

    def is_equal():
        figures = ask(follower, "/api/cluster").json()
        return figures["state"] == "streaming" and figures["flushed"] >= position and figures

    return wait_until(is_equal)


def whole_follower_of(leader):
    """What the leader says of its one follower, once that lacks nothing."""
    (shown,) = ask(leader, "/api/cluster", auth=("guest", "guest")).json()["followers"]
    return shown["state"] == "streaming" and shown["lag_bytes"] == 0 and shown


def publish(broker, count, queue="q"):
    """So many confirmed messages, which name their number."""
    with pika.BlockingConnection(pika.URLParameters(broker.amqp_url)) as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        channel.queue_declare(queue, durable=True)
        for number in range(count):
            channel.basic_publish("", queue, str(number), pika.BasicProperties(delivery_mode=2))


def taken(broker, count, queue="q"):
    """The bodies of the queue's messages, which are taken out."""
    with pika.BlockingConnection(pika.URLParameters(broker.amqp_url)) as connection:
        channel = connection.channel()
        return [channel.basic_get(queue, auto_ack=True)[2].decode() for _ in range(count)]


def complaint(finished):
    """The one line that a command which failed has said."""
    (line,) = finished.stderr.strip().splitlines()
    return line


def ctl(broker, *arguments):
    """What the command prints."""
    return done(Runner("")("--control-unix-path", f"{broker.data_dir}.sock", *arguments, bare=True))


def promote(follower):
    ctl(follower, "promote")
    assert ask(follower, "/api/cluster", auth=("guest", "guest")).json()["role"] == "leader"


def test_follower_leads_once_it_is_promoted_also_after_a_restart_and_the_old_leader_follows_it(tmp_path):
    with node(tmp_path / "first", cluster=True) as first:
        publish(first, COUNT)
        with follower_of(first, tmp_path / "second", cluster=True) as second:
            wait_until_equal(second, first)
            publish(first, 10, "later")
            figures = wait_until_equal(second, first)
            shown = wait_until(lambda: whole_follower_of(first))
            printed = ctl(first, "cluster_status")
            first.kill()
            promote(second)

            assert taken(second, COUNT) == [str(number) for number in range(COUNT)]
            second.kill()
            second.start()
            second.wait_for_log("this node leads, because it was promoted when it followed")
            assert taken(second, 10, "later") == [str(number) for number in range(10)]

            publish(second, 5)
            with follower_of(second, first.data_dir) as old:
                again = wait_until_equal(old, second)
                second.kill()
                promote(old)
                assert taken(old, 5) == list("01234")

    assert (figures["role"], figures["epoch"]) == ("follower", 1)
    assert shown["flushed"] >= figures["flushed"]
    assert "streaming" in printed
    assert (again["epoch"], again["cluster"]) == (2, figures["cluster"])


def test_former_leader_is_no_leader_for_who_was_promoted(tmp_path):
    with node(tmp_path / "first", cluster=True) as first:
        publish(first, 1)
        with follower_of(first, tmp_path / "second") as second:
            wait_until_equal(second, first)
            promote(second)
        # another address than the one that it was promoted from
        with node(second.data_dir, cluster_leader=f"localhost:{first.ports['cluster']}") as other:
            wait_until(lambda: "epoch" in ask(other, "/api/cluster").json()["error"])


def test_who_was_promoted_follows_again_once_its_leader_was_promoted_after_it(tmp_path):
    """With the same settings all the time."""
    port = reserve()
    with node(tmp_path / "first", cluster=True, clustering_port=port) as first:
        publish(first, 1)
        with follower_of(first, tmp_path / "second", cluster=True) as second:
            wait_until_equal(second, first)
            first.kill()
            promote(second)
            with follower_of(second, first.data_dir, cluster=True, clustering_port=port) as old:
                wait_until_equal(old, second)
                second.kill()
                promote(old)
                publish(old, 2)

                second.start()
                wait_until_equal(second, old)
                assert ask(second, "/api/cluster").json()["epoch"] == 3


def test_follower_that_has_nothing_is_not_promoted(tmp_path):
    with node(tmp_path / "data", cluster_leader=f"127.0.0.1:{reserve()}") as follower:
        refused = Runner("")("--control-unix-path", f"{follower.data_dir}.sock", "promote", bare=True)

        assert refused.returncode == 1 and "nothing has been copied" in refused.stderr
        assert ask(follower, "/api/cluster").json()["role"] == "follower"


def test_leader_whose_folder_was_emptied_does_not_empty_its_followers(tmp_path):
    with node(tmp_path / "data", cluster=True) as leader:
        publish(leader, 1)
    for path in (tmp_path / "data").iterdir():
        if not path.name.startswith("."):
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    finished = run(
        "--data-dir", tmp_path / "data", "--log-level", "none", "--cluster", "yes", "--cluster-port", 0,
        "--cluster-password", SECRET)

    assert finished.returncode == 1 and "is empty, but belongs to a cluster" in complaint(finished)


def test_leader_that_has_found_damage_lets_nobody_sync_until_an_operator_accepts_it(tmp_path):
    with node(tmp_path / "first", cluster=True, clustering_port=reserve()) as first:
        publish(first, COUNT)
        with follower_of(first, tmp_path / "second") as second:
            wait_until_equal(second, first)
            first.kill()
            (segment,) = (tmp_path / "first" / "queues").glob("*/msgs.*")
            octets = bytearray(segment.read_bytes())
            octets[2000:2100] = bytes(100)
            segment.write_bytes(octets)
            sound = folder_content(tmp_path / "second")
            for _ in range(2):  # also the boot behind the one that has met it
                first.start()
                wait_until(lambda: "damage" in ask(second, "/api/cluster").json()["error"])
                first.kill()
            kept = folder_content(tmp_path / "second")
            first.start()
            ctl(first, "accept_damage")
            wait_until_equal(second, first)

    assert {path: kept[path] for path in kept if path.startswith("queues")} == {
        path: sound[path] for path in sound if path.startswith("queues")}


def test_leader_that_was_damaged_in_a_sealed_segment_leaves_its_followers_copy_alone(tmp_path):
    """A boot does not read the segment. The mark stays, also after a restart."""
    with node(tmp_path / "first", cluster=True, clustering_port=reserve()) as first:
        publish(first, COUNT)
        with follower_of(first, tmp_path / "second", cluster=True) as second:
            wait_until_equal(second, first)
            first.stop()
            segment = min((tmp_path / "first" / "queues").glob("*/msgs.*"))
            octets = bytearray(segment.read_bytes())
            octets[octets.index(b"200")] ^= 1  # the body of a message
            segment.write_bytes(octets)
            logs = ""
            for _ in range(2):
                first.start()
                told = wait_until(lambda: "has found damage" in (
                    error := ask(second, "/api/cluster").json()["error"]) and error)
                assert "promote', with --force" in told
                logs += first.log_text
                assert ask(first, "/api/cluster", auth=("guest", "guest")).json()["damaged"]
                first.stop()
            assert f"{segment} is damaged (bytes" in logs
            ctl(second, "promote", "--force")  # the sync that has ended had begun

            assert taken(second, COUNT) == [str(number) for number in range(COUNT)]


def test_acks_of_two_leaders_are_told_apart(tmp_path):
    """Records with a checksum of their own leave the CRC of a block as it was."""
    with node(tmp_path / "first", cluster=True) as first:
        publish(first, 20)
        with follower_of(first, tmp_path / "second", cluster=True) as second:
            wait_until_equal(second, first)
            second.kill()
            take_every_other(first, 0)
            first.kill()
            second.start()
            promote(second)
            take_every_other(second, 10)
            with follower_of(second, first.data_dir) as old:
                wait_until_equal(old, second)
                second.kill()
                promote(old)

                left = [str(number) for number in range(20) if number not in (11, 13, 15, 17, 19)]
                assert taken(old, 15) == left


def take_every_other(broker, first):
    """Of the twenty messages of the queue, ten from this one on: the odd ones of them are acknowledged."""
    with pika.BlockingConnection(pika.URLParameters(broker.amqp_url)) as connection:
        channel = connection.channel()
        tags = [channel.basic_get("q")[0].delivery_tag for _ in range(20)]
        for number in range(first, first + 10):
            if number % 2 == (1 if first else 0):
                channel.basic_ack(tags[number])


@pytest.fixture(scope="module")
def pair(tmp_path_factory):
    """A leader, and a follower of it."""
    folder = tmp_path_factory.mktemp("pair")
    with node(folder / "leader", cluster=True) as leader:
        publish(leader, 1)
        with follower_of(leader, folder / "follower") as follower:
            wait_until_equal(follower, leader)
            yield leader, follower


def test_follower_is_alive_and_not_in_service(pair):
    follower = pair[1]
    assert ask(follower, "/api/health/checks/alarms").json() == {"status": "ok"}
    refused = ask(follower, "/api/health/checks/ready-to-serve-clients")
    assert refused.status_code == 503 and "follows" in refused.json()["reason"]


def test_follower_says_at_every_other_path_whom_to_ask(pair):
    leader, follower = pair
    for path in ("/", "/api/queues", "/api/cluster/promote"):
        answer = ask(follower, path, auth=("guest", "guest"))
        assert answer.status_code == 503
        assert f"follows 127.0.0.1:{leader.ports['cluster']}" in answer.json()["reason"]


def test_follower_is_promoted_by_its_own_machine_alone(pair):
    follower = pair[1]
    answer = requests.post(
        f"http://127.0.0.1:{follower.ports['http']}/api/cluster/promote", auth=("guest", "guest"),
        timeout=in_time(10))
    assert answer.status_code == 503
    assert ask(follower, "/api/cluster").json()["role"] == "follower"


def test_both_tell_prometheus_how_far_the_copy_is(pair):
    leader, follower = pair
    assert "gomq_cluster_is_leader 1.0" in (of_leader := ask(leader, "/metrics", "metrics").text)
    assert "gomq_cluster_followers_streaming 1.0" in of_leader
    (shown,) = ask(leader, "/api/cluster", auth=("guest", "guest")).json()["followers"]
    labels = f'follower="{socket.gethostname()}",node="{shown["node"]}"'
    assert f"gomq_cluster_follower_lag_bytes{{{labels}}}" in of_leader
    of_follower = ask(follower, "/metrics", "metrics").text
    assert "gomq_cluster_is_leader 0.0" in of_follower and "gomq_cluster_is_streaming 1.0" in of_follower


def test_follower_takes_the_signals_of_every_broker(pair):
    follower = pair[1]
    follower.signal(signal.SIGHUP)
    follower.wait_for_log("configuration reloaded|nothing to reload|reload")
    follower.signal(signal.SIGUSR1)
    follower.wait_for_log("dump")
    wait_until_equal(follower, pair[0])


def test_follower_stops_in_order(pair, tmp_path):
    with follower_of(pair[0], tmp_path / "data") as other:
        wait_until_equal(other, pair[0])
        assert other.stop() == 0


def test_wrong_secret_is_said_and_tried_again(pair, tmp_path):
    other = follower_of(pair[0], tmp_path / "data")
    other._environment["GOMQ_CLUSTER_PASSWORD"] = "another secret, which is wrong"
    with other:
        wait_until(lambda: ask(other, "/api/cluster").json()["error"])
        assert ask(other, "/api/cluster").json()["state"] == "connecting"
    pair[0].wait_for_log("refused")


def test_leader_and_follower_know_each_other_by_certificates(tmp_path):
    authority = trustme.CA()
    mine = certificates.make(tmp_path / "tls", authority=authority)
    both = f"tls_cert = {mine.certificate}\ntls_key = {mine.key}\ntls_ca_cert = {mine.authority}\n"
    (tmp_path / "both.ini").write_text(f"[clustering]\n{both}")
    (tmp_path / "none.ini").write_text(f"[clustering]\ntls_ca_cert = {mine.authority}\n")
    (tmp_path / "plain.ini").write_text("")
    with node(tmp_path / "leader", cluster=True, config=tmp_path / "both.ini") as leader:
        publish(leader, 1)
        with follower_of(leader, tmp_path / "follower", config=tmp_path / "both.ini") as follower:
            wait_until_equal(follower, leader)
        for name in ("none", "plain"):
            with follower_of(leader, tmp_path / name, config=tmp_path / f"{name}.ini") as other:
                wait_until(lambda: ask(other, "/api/cluster").json()["error"])
                assert ask(other, "/api/cluster").json()["state"] == "connecting"


@pytest.mark.parametrize("flag, value", [("--cluster", "yes"), ("--cluster-leader", "127.0.0.1:5679")])
def test_cluster_without_a_secret_ends_the_boot_in_one_line(tmp_path, flag, value):
    finished = run("--data-dir", tmp_path, flag, value)

    assert finished.returncode == 2
    assert complaint(finished).startswith(f"gomq-py: {flag}: ") and "secret_file" in complaint(finished)


@pytest.mark.parametrize("content", [b"short", b"x" * 5000, None])
def test_secret_file_that_is_none_ends_the_boot_in_one_line(tmp_path, content):
    if content is not None:
        (tmp_path / "secret").write_bytes(content)
    finished = run(
        "--data-dir", tmp_path / "data", "--port", 0, "--log-level", "none", "--cluster", "yes",
        "--cluster-port", 0, "--cluster-secret-file", tmp_path / "secret")

    assert finished.returncode == 1
    assert str(tmp_path / "secret") in complaint(finished)


def test_folder_with_other_data_never_follows(tmp_path):
    with BrokerProcess(tmp_path / "data") as broker:
        publish(broker, 1)
    finished = run(
        "--data-dir", tmp_path / "data", "--log-level", "none", "--cluster-leader", "127.0.0.1:1",
        "--cluster-password", SECRET)

    assert finished.returncode == 1
    assert "belongs to no cluster" in complaint(finished)
    with broker:
        assert taken(broker, 1) == ["0"]
