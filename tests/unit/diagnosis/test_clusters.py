"""A cluster's figures are judged: which node must not stop, and what is wrong."""
import pytest

from gomq_py.diagnosis import clusters
from gomq_py.diagnosis.checks import BAD, WARNING

ONE, TWO, THREE = "1" * 32, "2" * 32, "3" * 32


def figures(*members, min_isr=1, node_id=ONE, nodes=(ONE, TWO, THREE), **more):
    return {
        "role": "leader", "node": "gomq@one", "elects": True, "node_id": node_id, "in_sync": list(members),
        "min_isr": min_isr, "leader_node": ONE, "followers": [],
        "nodes": [
            {"node": node, "name": "", "in_sync": node in members, "state": None} for node in nodes], **more}


@pytest.mark.parametrize("found, word", [
    (figures(ONE, TWO, THREE, min_isr=2), ""), (figures(ONE, TWO, min_isr=2), "1 of the 2"),
    (figures(ONE, TWO), ""), (figures(ONE), "nobody could lead"), (figures(TWO, THREE), ""),
    (figures(ONE, nodes=(ONE,)), ""), ({"role": "leader", "followers": []}, ""),
    ({"role": "follower", "elects": True}, ""),
    ({"elects": True, "cluster": "c" * 32, "in_sync": [], "nodes": [], "reason": "etcd was not asked yet"},
     "not known: etcd was not asked yet"),
    (figures(ONE, TWO, THREE, etcd_error="Connection refused"), "not known: Connection refused"),
    (figures(TWO, etcd_error="Connection refused", nodes=(ONE, TWO)), ""),
])
def test_node_is_critical_if_confirms_would_stop_without_it(found, word):
    why = clusters.why_critical(found)

    assert word in why and bool(word) == bool(why)


@pytest.mark.parametrize("found, word", [
    (figures(ONE), ""), (figures(TWO), "not in sync"), (figures(ONE, leader_node=""), "no node leads"),
    ({"role": "leader"}, ""), ({"elects": True}, "not in sync"),
])
def test_node_is_ready_if_it_is_in_sync_and_there_is_a_leader(found, word):
    why = clusters.why_not_in_sync(found)

    assert word in why and bool(word) == bool(why)


def told(found):
    return [(one.level, one.text) for one in clusters.findings(found)]


def test_whole_cluster_and_single_broker_are_fine():
    assert told(figures(ONE, TWO, THREE, min_isr=2)) == [] == told({"role": "leader", "followers": []})


def test_lost_node_that_min_isr_keeps_in_sync_stops_confirms():
    found = figures(ONE, TWO, min_isr=2, nodes=(ONE, TWO))
    found["nodes"][1]["state"] = "disconnected"

    assert told(found) == [(
        BAD, "1 of the 2 nodes that min_isr asks for are in sync and connected: nothing is confirmed")]


def test_node_out_of_sync_is_told_from_others_of_its_machine():
    found = figures(ONE, TWO)
    found["nodes"][2].update(name="vm", address="vm:5683")

    (one,) = clusters.findings(found)

    assert one.subject == "vm (vm:5683)"


def test_node_that_etcd_has_never_answered_has_one_problem():
    """Whether others are in sync it cannot know."""
    assert told(figures(nodes=(), etcd_error="wrong password", leader_node="")) == [(BAD, "wrong password")]


@pytest.mark.parametrize("found, level, word", [
    (figures(ONE, min_isr=2), BAD, "1 of the 2 nodes"), (figures(ONE, TWO), WARNING, "is not in sync"),
    (figures(ONE, TWO, THREE, fenced=True), BAD, "fenced"), (figures(ONE), WARNING, "nobody takes over"),
    (figures(ONE, TWO, THREE, fenced=True, reason="etcd was emptied"), BAD, "nothing: etcd was emptied"),
    (figures(ONE, TWO, THREE, leader_node=""), BAD, "no node leads"),
    (figures(ONE, TWO, THREE, etcd_error="no answer"), WARNING, "no answer"),
    (figures(ONE, TWO, THREE, damaged=True), BAD, "damage was found"),
    (figures(ONE, TWO, THREE, settings_differ=[
        {"node": TWO, "name": "two", "setting": "[main] sync", "here": "true", "there": "false"}]),
     WARNING, "[main] sync = false, here it is true"),
    (figures(ONE, TWO, THREE, followers=[{"name": "two", "lag_seconds": 20.0, "lag_bytes": 5}]),
     WARNING, "20 s and 5 bytes behind"),
    ({"role": "leader", "replicates": True, "followers": []}, WARNING, "no follower is connected"),
])
def test_problem_is_found(found, level, word):
    assert any(one == level and word in text for one, text in told(found)), told(found)
