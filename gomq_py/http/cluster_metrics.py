"""Prometheus metrics of a cluster: role, in-sync set, followers, lease and etcd. The figures are those of
/api/cluster.

A broker outside a cluster has ``gomq_cluster_is_leader`` and little more.
"""
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily

PREFIX = "gomq_cluster_"
STREAMING = "streaming"
# key of a follower's figures, which ends the name, too; help
OF_FOLLOWERS = (
    ("lag_bytes", "Bytes of changes that the follower has not flushed yet"),
    ("lag_seconds", "Age of the oldest change that the follower has not flushed yet"),
)
OF_SYNCS = (
    ("sync_done_bytes", "Bytes of the follower's last sync that were compared or sent"),
    ("sync_total_bytes", "Bytes of the files of the follower's last sync"),
)
# key of the figures, end of the name, help
OF_CLUSTER = (
    ("epoch", "epoch", "Epoch of the data folder: each election begins the next one"),
    ("min_isr", "min_isr", "Nodes that must be in sync for a confirm, the leader included"),
    ("promises", "promises_waiting", "Confirms and other promises that wait for followers"),
    ("lease_seconds_left", "lease_seconds_left", "Seconds until the leader is fenced; below 0: it is"),
    ("clock_skew_seconds", "clock_skew_seconds", "This follower's clock, less the leader's"),
)


def cluster_families(figures):
    """Yield the metric families of ``figures``, the dict with which this node answers /api/cluster."""
    is_leader = figures.get("role", "leader") == "leader"
    yield _gauge("is_leader", "1 for a leader, 0 for a follower", int(is_leader))
    for key, end, text in OF_CLUSTER:
        if figures.get(key) is not None:
            yield _gauge(end, text, figures[key])
    if figures.get("elects"):
        yield from _of_election(figures)
    if is_leader:
        yield from _of_leader(figures.get("followers", ()))
        return
    is_streaming = figures.get("state") == STREAMING
    yield _gauge("is_streaming", "1 where the copy is whole and the leader is connected", int(is_streaming))
    for key, text in OF_FOLLOWERS:
        yield _gauge(key, text, figures.get(key, 0))


def _of_election(figures):
    members, nodes = figures.get("in_sync", ()), figures.get("nodes", ())
    yield _gauge(
        "is_in_sync", "1 where this node has all that is confirmed, and may lead",
        int(figures.get("node_id") in members))
    yield _gauge("in_sync_nodes", "Nodes that have all that is confirmed", len(members))
    yield _gauge("nodes", "Nodes that etcd knows", len(nodes))
    yield _gauge("has_leader", "1 where etcd names a leader", int(bool(figures.get("leader_node"))))
    yield _gauge(
        "is_fenced", "1 where this leader confirms and delivers nothing", int(figures.get("fenced", False)))
    yield _gauge(
        "settings_differ", "Settings of other nodes that differ from this leader's",
        len(figures.get("settings_differ", ())))
    calls = figures.get("etcd_calls")
    if calls is not None:
        family = HistogramMetricFamily(
            f"{PREFIX}etcd_call_seconds", "Time of a call of etcd, over all its servers")
        family.add_metric((), [(bound, count) for bound, count in calls["buckets"]], calls["seconds"])
        yield family
        failures = CounterMetricFamily(
            f"{PREFIX}etcd_failures", "Calls of etcd that were refused, or not answered in time")
        failures.add_metric((), calls["failures"])
        yield failures


def _of_leader(followers):
    for state in ("syncing", STREAMING):
        yield _gauge(
            f"followers_{state}", f"Followers that are {state}",
            sum(follower["state"] == state for follower in followers))
    for key, text in (*OF_FOLLOWERS, *OF_SYNCS):
        family = GaugeMetricFamily(f"{PREFIX}follower_{key}", text, labels=("follower", "node"))
        for follower in followers:  # the node, too: two followers may have one host name
            family.add_metric((follower["name"], follower["node"]), follower[key])
        yield family


def _gauge(end, text, value):
    return GaugeMetricFamily(PREFIX + end, text, value=value)
