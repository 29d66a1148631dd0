"""Three nodes and a real etcd: one is elected, another one takes over, and nothing confirmed is lost."""
import base64
import json
import os
import shutil
import signal

import pika
import pytest

from gomq_py.cluster import identity
from gomq_py.cluster.core.records import InSyncRecord
from gomq_py.storage.format.head import SEAL_AT, SYNCED_AT
from tests.ctl.running import Runner, done
from tests.support.elected import ELECTION_S, Client, Cluster
from tests.support.etcd_process import text
from tests.support.mirror import differing
from tests.support.waiting import in_time, wait_until


def ctl(node, *arguments):
    """What gomq-py-ctl prints on a node's machine."""
    return done(Runner("")("--control-unix-path", f"{node.data_dir}.sock", *arguments, bare=True))


def serving(cluster, count):
    """(leader of three nodes in sync, a Client that has published so many messages)."""
    leader = cluster.wait_in_sync(3)
    client = Client(cluster).connect()
    client.publish(count)
    return leader, client


def check(client):
    """Everything confirmed is there, once or, after a retry, in order."""
    numbers = client.take_all()
    assert set(numbers) >= set(client.confirmed)
    assert list(dict.fromkeys(numbers)) == sorted(set(numbers))
    client.close()


def test_killed_leader_is_replaced_and_readmitted_without_a_loss(cluster):
    first, client = serving(cluster, 200)

    first.kill()
    client.publish(200)
    second = cluster.leader(but=first)
    first.spawn()
    cluster.wait_in_sync(3)
    client.publish(50)
    second.kill()
    client.publish(50)

    check(client)


def test_older_copy_of_a_folder_of_the_same_epoch_leads_nobody(tmp_path, etcd):
    """It is put back while all nodes are down, and its node comes first."""
    with Cluster(tmp_path, etcd, environment={"GOMQ_TEST_NOTE_S": "0.1"}) as cluster:
        leader = cluster.wait_in_sync(3)
        node = next(node for node in cluster.nodes if node is not leader)
        client = Client(cluster).connect()
        client.publish(50)
        node.kill()  # a node at work notes its position while its folder is copied
        shutil.copytree(node.data_dir, tmp_path / "copy")
        copied = identity.read(tmp_path / "copy")
        node.spawn()
        assert cluster.wait_in_sync(3) is leader
        client.publish(200)
        wait_until(lambda: noted(etcd, copied.node_id.hex()) > copied.position, ELECTION_S)
        for other in cluster.nodes:  # at once: whoever is left would be elected, or remove the others
            other.process.kill()
        for other in cluster.nodes:
            other.kill()
        shutil.rmtree(node.data_dir)
        os.rename(tmp_path / "copy", node.data_dir)

        node.spawn()
        wait_until(
            lambda: "it was put back" in node.figures.get("reason", ""), ELECTION_S, lambda: node.log_text)
        for other in cluster.nodes:
            if other is not node:
                other.spawn()

        cluster.wait_in_sync(3)
        check(client)


def noted(etcd, node):
    """The position that `isr` has of a node."""
    (kept,) = etcd.call("kv/range", key=text(b"gomq/isr"))["kvs"]
    return InSyncRecord.decode(base64.b64decode(kept["value"])).positions.get(node, 0)


def test_followers_of_a_killed_leader_go_on_at_the_next_one_without_a_sync(cluster):
    first = cluster.wait_in_sync(3)
    client = Client(cluster).connect()
    client.publish(50)
    wait_until(
        lambda: (figures := first.figures) and {
            one["flushed"] for one in figures["followers"]} == {figures["position"]},
        ELECTION_S, cluster.describe)
    syncs = {node: node.log_text.count("with a sync") for node in cluster.nodes}

    first.kill()
    client.publish(50)

    second = cluster.leader(but=first)
    follower, = (node for node in cluster.running if node is not second)
    follower.wait_for_log("from position")
    assert follower.log_text.count("with a sync") == syncs[follower]
    wait_until(lambda: not differing(second.data_dir, follower.data_dir))
    check(client)


def test_stopped_leader_hands_over_at_once(cluster):
    first, client = serving(cluster, 50)

    first.stop()
    client.publish(50)

    assert cluster.leader() is not first
    check(client)


def test_leader_that_stood_still_delivers_nothing_and_follows_its_successor(cluster):
    """SIGSTOP beyond the lease: on waking it is fenced before it reads a socket, then begins anew, in the
    same process.
    """
    first, client = serving(cluster, 50)
    consumer = pika.BlockingConnection(pika.URLParameters(first.amqp_url))
    got = []
    channel = consumer.channel()
    channel.queue_declare("other", durable=True)
    channel.basic_consume("other", lambda *delivery: got.append(delivery[3]), auto_ack=True)
    pid = first.pid

    first.signal(signal.SIGSTOP)
    second = cluster.leader(but=first)
    client.publish(50)
    first.signal(signal.SIGCONT)

    with pytest.raises(pika.exceptions.AMQPError):
        wait_until(lambda: consumer.process_data_events(0.01), in_time(30))
    assert got == []
    cluster.wait_in_sync(3)
    assert cluster.leader() is second and first.pid == pid and first.is_running
    first.wait_for_log("begins anew as a follower")
    check(client)


def test_etcd_that_is_away_fences_the_leader_and_disconnects_nobody(cluster, etcd):
    leader, client = serving(cluster, 50)
    connection = client._connection

    etcd.kill()
    wait_until(lambda: leader.figures.get("fenced"), ELECTION_S, "the leader is fenced")
    etcd.start()

    client.publish(50)
    assert client._connection is connection and connection.is_open
    assert cluster.wait_in_sync(3) is leader
    check(client)


def test_emptied_etcd_stops_everything_until_an_operator_adopts_the_cluster(cluster, etcd):
    leader, client = serving(cluster, 20)

    etcd.call("kv/deleterange", key="AA==", range_end="AA==")
    wait_until(lambda: leader.figures.get("fenced"), ELECTION_S, "the leader is fenced")
    leader.wait_for_log("cluster_adopt")
    ctl(leader, "cluster_adopt")

    client.publish(20)
    assert cluster.wait_in_sync(3) is leader
    check(client)


def test_leadership_is_transferred_on_demand(cluster):
    first, client = serving(cluster, 50)

    ctl(first, "transfer_leadership")
    second = cluster.leader(but=first)
    client.publish(50)

    assert second is not first
    cluster.wait_in_sync(3)
    check(client)


def test_node_that_is_not_in_sync_leads_only_by_force(cluster):
    leader, client = serving(cluster, 20)
    others = [node for node in cluster.nodes if node is not leader]
    for node in others:
        node.kill()
    client.publish(20)
    wait_until(lambda: len(leader.figures["in_sync"]) == 1, ELECTION_S)
    leader.kill()

    others[0].spawn()
    others[0].wait_for_log("this node is not in sync", ELECTION_S)
    ctl(others[0], "cluster_force_leader")

    assert cluster.leader() is others[0]
    assert len(client.take_all()) >= 20


def test_status_tells_who_is_in_sync(cluster):
    leader = cluster.wait_in_sync(3)
    follower = next(node for node in cluster.nodes if node is not leader)

    told = leader.figures
    shown = json.loads(ctl(follower, "-f", "json", "cluster_status"))

    assert len(told["nodes"]) == 3 and all(node["in_sync"] for node in told["nodes"])
    assert follower.figures["role"] == "follower" and follower.figures["leader_node"] == told["node_id"]
    assert shown


def test_too_few_nodes_in_sync_confirm_nothing(tmp_path, etcd):
    with Cluster(tmp_path, etcd, clustering_min_isr=2) as cluster:
        leader, client = serving(cluster, 20)
        others = [node for node in cluster.nodes if node is not leader]
        for node in others:
            node.kill()

        wait_until(lambda: "in-sync followers alarm" in leader.log_text, ELECTION_S)
        others[0].spawn()

        client.publish(20)
        check(client)


def test_boot_that_takes_longer_than_the_lease_is_not_cut_short(tmp_path, etcd):
    with Cluster(tmp_path, etcd, clustering_lease_ttl=2, environment={"GOMQ_TEST_BOOT_S": "4"}) as cluster:
        first, client = serving(cluster, 20)

        first.kill()
        second = cluster.leader(but=first)
        client.publish(20)

        assert second.figures["epoch"] == 2
        check(client)


def test_commands_run_when_a_node_begins_and_ceases_to_lead(tmp_path, etcd):
    notes = tmp_path / "notes"
    commands = {f"clustering_on_leader_{what}": f"echo {what} >> {notes}" for what in ("elected", "lost")}
    with Cluster(tmp_path, etcd, count=2, **commands) as cluster:
        first = cluster.wait_in_sync(2)
        wait_until(notes.exists)

        ctl(first, "transfer_leadership")
        cluster.leader(but=first)

        wait_until(lambda: sorted(notes.read_text().split()) == ["elected", "elected", "lost"], ELECTION_S)


def test_node_that_finds_damage_hands_over_to_a_sound_one(cluster):
    leader, client = serving(cluster, 50)
    for node in cluster.nodes:
        node.kill()
    segment = max(leader.data_dir.glob("queues/*/msgs.*"), key=lambda path: path.stat().st_size)
    content = bytearray(segment.read_bytes())
    at = content.index(b"guest") if b"guest" in content else content.index(b"25")
    content[at] ^= 0xff
    segment.write_bytes(content)

    leader.spawn()
    leader.wait_for_log("damage was found in this data folder", ELECTION_S)
    for node in cluster.nodes:
        if node is not leader:
            node.spawn()

    assert cluster.leader() is not leader
    cluster.wait_in_sync(3)
    check(client)


@pytest.mark.parametrize("at", [1000, 30_000])
def test_damage_that_the_boot_of_the_next_leader_does_not_read_costs_no_message(tmp_path, etcd, at):
    """In a sealed segment: the leader meets it when the other node syncs, or, of a queue's first message,
    soon after its boot, and hands over.
    """
    with Cluster(tmp_path, etcd, count=2, clustering_min_isr=2) as cluster:
        damaged = cluster.wait_in_sync(2)
        bodies = [bytes([number]) * 20_000 for number in b"abcdef"]  # more than the first segment holds
        with pika.BlockingConnection(pika.URLParameters(damaged.amqp_url)) as connection:
            channel = connection.channel()
            channel.confirm_delivery()
            channel.queue_declare("large", durable=True)
            for body in bodies:
                channel.basic_publish("", "large", body, pika.BasicProperties(delivery_mode=2))
        for node in cluster.nodes:
            wait_until(lambda node=node: any(sealed(node).read_bytes()[SEAL_AT:SYNCED_AT]))
        for node in cluster.nodes:
            node.kill()
        content = bytearray(sealed(damaged).read_bytes())
        content[at] ^= 1
        sealed(damaged).write_bytes(content)

        damaged.spawn()
        damaged.wait_for_log("this node leads now", ELECTION_S)
        other, = (node for node in cluster.nodes if node is not damaged)
        other.spawn()

        cluster.leader(but=damaged)
        assert "damaged: " in damaged.log_text
        cluster.wait_in_sync(2)
        with pika.BlockingConnection(pika.URLParameters(other.amqp_url)) as connection:
            channel = connection.channel()
            assert [channel.basic_get("large", auto_ack=True)[2] for _ in bodies] == bodies


def sealed(node):
    """The first segment of the queue with large messages, which is sealed when the next one is begun."""
    return next(node.data_dir.glob("queues/*/msgs.0000000001"))


def test_elected_node_that_boots_for_long_is_not_taken_for_one_that_is_gone(tmp_path, etcd):
    """Its cluster port refuses connections until it has read its folder."""
    with Cluster(tmp_path, etcd, clustering_lease_ttl=2, environment={"GOMQ_TEST_BOOT_S": "4"}) as cluster:
        first, client = serving(cluster, 20)

        first.stop()
        second = cluster.leader(but=first)

        assert second.figures["epoch"] == 2
        assert not any("nobody listens at the leader's address" in node.log_text for node in cluster.nodes)
        client.publish(20)
        check(client)
