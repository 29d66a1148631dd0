"""What operators see of a cluster and have it do: commands, checks, metrics, warnings."""
import json

import pika
import requests

from tests.cluster_nodes.test_failover import ctl
from tests.ctl.running import Runner
from tests.support.broker_process import BrokerProcess
from tests.support.elected import ACK_TIMEOUT_S, LEASE_TTL_S, Client, Cluster
from tests.support.waiting import in_time, wait_until


def tried(node, *arguments):
    """The finished process of gomq-py-ctl on a node's machine."""
    return Runner("")("--control-unix-path", f"{node.data_dir}.sock", *arguments, bare=True)


def metrics(node):
    text = requests.get(f"http://127.0.0.1:{node.ports['metrics']}/metrics", timeout=in_time(20)).text
    samples = (line.rpartition(" ") for line in text.splitlines() if line.startswith("gomq_cluster_"))
    return {name.partition("{")[0]: float(value) for name, _, value in samples}


def id_of(node):
    return node.figures["node_id"]


def test_commands_tell_who_is_in_sync_on_every_node(cluster):
    leader = cluster.wait_in_sync(3)
    for node in cluster.nodes:
        wait_until(lambda node=node: len(node.figures.get("in_sync", ())) == 3)

    for node in cluster.nodes:
        listed = ctl(node, "-q", "list_in_sync_replicas").splitlines()
        assert len(listed) == 3 and sum("leader" in line for line in listed) == 1
        status = ctl(node, "cluster_status")
        assert "Not in sync: []" in status and "Etcd: answers" in status
        assert ("Role: leader" in status) == (node is leader)
    own = [one["address"] for one in leader.figures["nodes"]]
    shown = json.loads(ctl(leader, "-f", "json", "cluster_status"))
    for field, count in (("Nodes", 3), ("Running nodes", 3), ("Followers", 2)):
        assert len(shown[field]) == count and all(any(one in text for one in own) for text in shown[field])
        assert id_of(leader) in ctl(node, "-f", "json", "list_in_sync_replicas")


def test_lost_node_is_forgotten_and_joins_again_when_it_comes_back(cluster):
    leader = cluster.wait_in_sync(3)
    lost = next(node for node in cluster.nodes if node is not leader)
    lost_id = id_of(lost)
    refused = tried(leader, "forget_cluster_node", lost_id)
    assert (refused.returncode, "is connected: stop it first" in refused.stderr) == (1, True)

    lost.kill()
    wait_until(lambda: lost_id not in [one["node"] for one in leader.figures["followers"]])
    ctl(leader, "forget_cluster_node", lost_id)

    assert lost_id not in [one["node"] for one in leader.figures["nodes"]] + leader.figures["in_sync"]
    lost.spawn()
    cluster.wait_in_sync(3)


def test_leadership_goes_to_the_node_that_is_named(tmp_path, etcd):
    """Each of the followers in turn: an election without a name would choose now the one, now the other."""
    with Cluster(tmp_path, etcd, environment={"GOMQ_TEST_HEARING_S": str(in_time(1))}) as cluster:
        for _ in range(4):
            leader = cluster.wait_in_sync(3)
            chosen = max((node for node in cluster.nodes if node is not leader), key=id_of)

            ctl(leader, "transfer_leadership", id_of(chosen))

            assert cluster.leader(but=leader) is chosen


def test_leadership_is_not_transferred_to_a_node_out_of_sync(cluster):
    leader = cluster.wait_in_sync(3)
    lost = next(node for node in cluster.nodes if node is not leader)
    lost_id = id_of(lost)
    lost.kill()
    wait_until(lambda: lost_id not in leader.figures.get("in_sync", [lost_id]))

    for named, word in ((lost_id, "is not in sync"), (id_of(leader), "leads already"), ("x", "no node has")):
        refused = tried(leader, "transfer_leadership", named)
        assert (refused.returncode, word in refused.stderr) == (1, True), refused.stderr

    assert cluster.leader() is leader


def test_doctor_of_a_follower_is_no_patient(cluster):
    """Its control socket refuses most of what the doctor asks a broker for."""
    leader = cluster.wait_in_sync(3)
    follower = next(node for node in cluster.nodes if node is not leader)

    told = ctl(follower, "doctor")

    assert "follows: the leader's doctor tells the rest" in told and "BAD" not in told


def test_leader_is_not_forced_to_lead(cluster):
    leader = cluster.wait_in_sync(3)

    told = tried(leader, "cluster_force_leader")

    assert (told.returncode, "this node leads already" in told.stdout + told.stderr) == (0, True)


def test_follower_is_not_asked_to_forget(cluster):
    leader = cluster.wait_in_sync(3)
    follower = next(node for node in cluster.nodes if node is not leader)

    assert tried(follower, "forget_cluster_node", id_of(leader)).returncode != 0


def test_node_without_which_confirms_would_stop_is_critical(tmp_path, etcd):
    with Cluster(tmp_path, etcd, clustering_min_isr=2) as cluster:
        leader = cluster.wait_in_sync(3)
        others = [node for node in cluster.nodes if node is not leader]
        codes = [tried(node, "check_if_node_is_quorum_critical").returncode for node in cluster.nodes]
        assert codes == [0, 0, 0]

        others[0].kill()
        wait_until(lambda: len(leader.figures["in_sync"]) == 2)

        for node in (leader, others[1]):
            wait_until(lambda node=node: len(node.figures["in_sync"]) == 2)
            finished = tried(node, "check_if_node_is_quorum_critical")
            assert finished.returncode == 69
            assert "1 of the 2 nodes that min_isr asks for" in finished.stderr
        assert "is not in sync" in tried(leader, "doctor").stdout


def test_metrics_of_leader_and_follower_agree(tmp_path, etcd):
    with Cluster(tmp_path, etcd, metrics_http_port=0) as cluster:
        leader = cluster.wait_in_sync(3)
        Client(cluster).connect().publish(10)
        follower = next(node for node in cluster.nodes if node is not leader)
        wait_until(lambda: "gomq_cluster_clock_skew_seconds" in metrics(follower))

        url = f"http://127.0.0.1:{leader.ports['http']}/api/nodes"
        (shown,) = requests.get(url, auth=("guest", "guest"), timeout=in_time(10)).json()
        assert {one["node"] for one in shown["followers"]} == {
            id_of(node) for node in cluster.nodes if node is not leader}
        told, theirs = metrics(leader), metrics(follower)

        assert (told["gomq_cluster_is_leader"], theirs["gomq_cluster_is_leader"]) == (1, 0)
        for name in ("epoch", "in_sync_nodes", "nodes", "has_leader", "is_in_sync", "min_isr"):
            assert told[f"gomq_cluster_{name}"] == theirs[f"gomq_cluster_{name}"] != 0, name
        assert 0 < told["gomq_cluster_lease_seconds_left"] < LEASE_TTL_S
        assert told["gomq_cluster_is_fenced"] == 0
        assert told["gomq_cluster_etcd_call_seconds_count"] > 10
        assert abs(theirs["gomq_cluster_clock_skew_seconds"]) < in_time(1)


def test_settings_that_differ_are_warned_of_and_found_by_the_doctor(tmp_path, etcd):
    with Cluster(tmp_path, etcd, 2) as cluster:
        first, second = cluster.nodes
        second.stop()
        second._options["clustering_ack_timeout"] = ACK_TIMEOUT_S + 1
        second.spawn()
        leader = cluster.wait_in_sync(2)

        leader.wait_for_log(r"settings differ: \[clustering\] ack_timeout is '\d+' on this node and '\d+'")

        assert "ack_timeout" in tried(leader, "doctor").stdout


def test_broker_with_data_begins_a_cluster_that_the_others_join(tmp_path, etcd):
    alone = BrokerProcess(tmp_path / "node-0").start()
    with pika.BlockingConnection(pika.URLParameters(alone.amqp_url)) as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        channel.queue_declare("q", durable=True)
        channel.basic_publish("", "q", b"old", pika.BasicProperties(delivery_mode=2))
    alone.stop()

    with Cluster(tmp_path, etcd, 1) as cluster:
        first = cluster.wait_in_sync(1)
        cluster.nodes += Cluster(tmp_path / "more", etcd, 1).nodes
        cluster.nodes[1].spawn()
        cluster.wait_in_sync(2)
        first.kill()
        second = cluster.leader(but=first)

        with pika.BlockingConnection(pika.URLParameters(second.amqp_url)) as connection:
            assert connection.channel().basic_get("q", auto_ack=True)[2] == b"old"
