"""An elected cluster as operators see it, and nodes that they have it forget."""
import pytest

from gomq_py.cluster import administration
from gomq_py.cluster.core.in_sync import Progress
from gomq_py.cluster.core.records import NODES, NodeRecord
from gomq_py.cluster.core.transactions import CoordinatorError
from gomq_py.errors import ClusterError
from tests.unit.cluster import test_coordination
from tests.unit.cluster.test_coordination import (
    ONE, THREE, TWO, in_sync_in, put_cluster, put_leader, wait,
)

begin, clock, etcd = test_coordination.begin, test_coordination.clock, test_coordination.etcd
LINK = {"node": TWO, "name": "two", "state": "streaming", "lag_bytes": 7, "lag_seconds": 0.5}


def put_node(etcd, node, name, **settings):
    etcd.model.put(NODES + node, NodeRecord(name, f"{name}:5679", settings).encode())


def shown(node, own=(), followers=()):
    return administration.figures(node.coordination, ONE, dict(own), followers)


def by_node(figures):
    return {one["node"]: one for one in figures["nodes"]}


def lead(etcd, begin, *members, **options):
    """A leader with these other members, which are connected and have everything."""
    put_cluster(etcd, {ONE: 3, **dict.fromkeys(members, 3)})
    node = begin(cluster="c" * 32, epoch=3, **options)
    node.links.progress = {member: Progress(0, True) for member in members}
    wait(lambda: node.is_open)
    wait(lambda: ONE in etcd.model.read().nodes)
    return node


def forget(etcd, node, named, connected=()):
    administration.forget(etcd, node.coordination, ONE, named, connected)


def test_leader_shows_itself_its_links_and_who_is_absent(etcd, begin):
    put_node(etcd, TWO, "two", version="0.2")
    put_node(etcd, THREE, "three")
    node = lead(etcd, begin, TWO)
    wait(lambda: len(node.coordination.view.nodes) == 3)

    figures = shown(node, followers=[LINK])

    found = by_node(figures)
    assert (figures["leader_node"], figures["in_sync"], figures["min_isr"]) == (ONE, [ONE, TWO], 1)
    assert figures["lease_seconds_left"] == 4.0
    shown_of = [(found[one]["role"], found[one]["state"], found[one]["in_sync"]) for one in (ONE, TWO, THREE)]
    assert shown_of == [
        ("leader", "leading", True), ("follower", "streaming", True), ("follower", "disconnected", False)]
    assert (found[TWO]["lag_bytes"], found[TWO]["version"], found[TWO]["address"]) == (7, "0.2", "two:5679")
    assert (found[TWO]["epoch"], found[THREE]["epoch"]) == (4, None)


def test_follower_shows_its_own_lag_and_not_that_of_others(etcd, begin):
    put_cluster(etcd, {TWO: 3, ONE: 3})
    put_leader(etcd, TWO, 3)
    put_node(etcd, TWO, "two")
    node = begin(cluster="c" * 32, epoch=3)
    wait(lambda: ("follow", "other:5679") in node.told)
    wait(lambda: node.coordination.view is not None and ONE in node.coordination.view.nodes)

    figures = shown(node, own={"state": "streaming", "lag_bytes": 1, "lag_seconds": 0.1})

    found = by_node(figures)
    assert figures["leader"] == "other:5679" and "lease_seconds_left" not in figures
    assert (found[ONE]["state"], found[ONE]["lag_bytes"]) == ("streaming", 1)
    assert (found[TWO]["role"], found[TWO]["state"], found[TWO]["lag_bytes"]) == ("leader", "leading", None)


def test_node_without_an_answer_of_etcd_shows_why(etcd, begin):
    etcd.fault = CoordinatorError("no etcd answers")
    node = begin()
    wait(lambda: node.coordination.error)

    figures = shown(node)

    assert (figures["etcd_error"], figures["nodes"], figures["in_sync"]) == ("no etcd answers", [], [])
    assert figures["reason"] == "etcd: no etcd answers"


def test_rubbish_in_the_name_of_a_node_leaves_its_id(etcd, begin):
    node = lead(etcd, begin, TWO)
    etcd.model.put(NODES + TWO, b"rubbish")
    wait(lambda: TWO in node.coordination.view.nodes)

    assert by_node(shown(node))[TWO]["name"] == ""


def test_settings_that_differ_are_warned_of_once_and_shown(etcd, begin, caplog):
    put_node(etcd, TWO, "two", **{"[main] sync": "false"})
    node = lead(etcd, begin, TWO, settings={"[main] sync": "true"})

    wait(lambda: node.coordination.differences)
    put_node(etcd, THREE, "three", **{"[main] sync": "true"})
    wait(lambda: THREE in node.coordination.view.nodes)

    assert shown(node)["settings_differ"] == [
        {"node": TWO, "name": "two", "setting": "[main] sync", "here": "true", "there": "false"}]
    assert caplog.text.count("[main] sync is 'true' on this node and 'false' on two") == 1


def test_forgotten_node_leaves_the_set_and_the_list(etcd, begin):
    put_node(etcd, TWO, "two")
    node = lead(etcd, begin, TWO)
    node.links.progress = {}

    forget(etcd, node, "two")

    assert TWO not in in_sync_in(etcd).members and TWO not in etcd.model.read().nodes


def test_connected_node_is_not_forgotten(etcd, begin):
    put_node(etcd, TWO, "two")
    node = lead(etcd, begin, TWO)

    with pytest.raises(ClusterError, match="is connected: stop it first"):
        forget(etcd, node, TWO, [TWO])

    assert TWO in in_sync_in(etcd).members and TWO in etcd.model.read().nodes


def test_node_that_min_isr_needs_is_not_forgotten(etcd, begin, monkeypatch):
    monkeypatch.setattr(administration, "REMOVAL_S", 0.2)
    put_node(etcd, TWO, "two")
    node = lead(etcd, begin, TWO, min_isr=2)
    node.links.progress = {}

    with pytest.raises(ClusterError, match="is still in sync"):
        forget(etcd, node, "two")

    assert TWO in in_sync_in(etcd).members and TWO in etcd.model.read().nodes


@pytest.mark.parametrize("named, complaint", [
    (ONE, "this node leads"), ("four", "no node has the name"), ("twin", "2 nodes are named"),
])
def test_node_that_cannot_be_meant_is_not_forgotten(etcd, begin, named, complaint):
    put_node(etcd, TWO, "twin")
    put_node(etcd, THREE, "twin")
    node = lead(etcd, begin)

    with pytest.raises(ClusterError, match=complaint):
        forget(etcd, node, named)


def test_follower_forgets_nobody(etcd, begin):
    put_cluster(etcd, {TWO: 3, ONE: 3})
    put_leader(etcd, TWO, 3)
    node = begin(cluster="c" * 32, epoch=3)

    with pytest.raises(ClusterError, match="does not lead"):
        forget(etcd, node, TWO)


def test_successor_is_found_by_name_and_must_be_in_sync(etcd, begin):
    put_node(etcd, TWO, "two")
    put_node(etcd, THREE, "three")
    node = lead(etcd, begin, TWO)

    for named in ("two", "two:5679", TWO):
        assert administration.successor(node.coordination, ONE, named) == TWO
    with pytest.raises(ClusterError, match="three is not in sync"):
        administration.successor(node.coordination, ONE, "three")
    with pytest.raises(ClusterError, match="leads already"):
        administration.successor(node.coordination, ONE, ONE)
