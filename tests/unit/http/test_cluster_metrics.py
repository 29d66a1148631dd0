"""Metrics of a leader, of a follower and of an elected cluster."""
from gomq_py.http.cluster_metrics import cluster_families
from gomq_py.http.exposition import rendered

ONE, TWO = "1" * 32, "2" * 32


def lines(figures):
    text = b"".join(rendered(cluster_families(figures))).decode()
    samples = (line.rpartition(" ") for line in text.splitlines() if line[0] != "#")
    return {name: float(value) for name, _, value in samples}


def test_broker_without_followers_has_hardly_any():
    assert lines({"role": "leader", "followers": []}) == {
        "gomq_cluster_is_leader": 1, "gomq_cluster_followers_syncing": 0, "gomq_cluster_followers_streaming": 0}


def test_leader_of_an_elected_cluster_tells_its_set_lease_followers_and_etcd():
    follower = {
        "name": "two", "node": TWO, "state": "syncing", "lag_bytes": 3, "lag_seconds": 0.5,
        "sync_done_bytes": 10, "sync_total_bytes": 40}
    found = lines({
        "role": "leader", "elects": True, "node_id": ONE, "epoch": 4, "min_isr": 2, "in_sync": [ONE],
        "nodes": [{}, {}], "leader_node": ONE, "fenced": False, "promises": 5,
        "lease_seconds_left": 3.5, "settings_differ": [{}], "followers": [follower],
        "etcd_calls": {"buckets": [["0.001", 2], ["+Inf", 3]], "seconds": 0.25, "failures": 1}})

    label = f'{{follower="two",node="{TWO}"}}'
    assert found == {
        "gomq_cluster_is_leader": 1, "gomq_cluster_epoch": 4, "gomq_cluster_min_isr": 2,
        "gomq_cluster_promises_waiting": 5, "gomq_cluster_lease_seconds_left": 3.5,
        "gomq_cluster_is_in_sync": 1, "gomq_cluster_in_sync_nodes": 1, "gomq_cluster_nodes": 2,
        "gomq_cluster_has_leader": 1, "gomq_cluster_is_fenced": 0, "gomq_cluster_settings_differ": 1,
        'gomq_cluster_etcd_call_seconds_bucket{le="0.001"}': 2,
        'gomq_cluster_etcd_call_seconds_bucket{le="+Inf"}': 3,
        "gomq_cluster_etcd_call_seconds_count": 3, "gomq_cluster_etcd_call_seconds_sum": 0.25,
        "gomq_cluster_etcd_failures_total": 1,
        "gomq_cluster_followers_syncing": 1, "gomq_cluster_followers_streaming": 0,
        f"gomq_cluster_follower_lag_bytes{label}": 3, f"gomq_cluster_follower_lag_seconds{label}": 0.5,
        f"gomq_cluster_follower_sync_done_bytes{label}": 10,
        f"gomq_cluster_follower_sync_total_bytes{label}": 40}


def test_follower_tells_its_lag_and_its_clock():
    found = lines({
        "role": "follower", "state": "streaming", "epoch": 2, "lag_bytes": 8, "lag_seconds": 0.25,
        "clock_skew_seconds": -0.125})

    assert found == {
        "gomq_cluster_is_leader": 0, "gomq_cluster_epoch": 2, "gomq_cluster_clock_skew_seconds": -0.125,
        "gomq_cluster_is_streaming": 1, "gomq_cluster_lag_bytes": 8, "gomq_cluster_lag_seconds": 0.25}
