"""Metrics: serves workers' counters to Prometheus. In the task queue, only this imports prometheus_client."""

from prometheus_client import CollectorRegistry, start_http_server
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily


class _Collector:
    def __init__(self, server, workers):
        self._server = server
        self._workers = workers

    def collect(self):
        connected = GaugeMetricFamily("gomq_worker_connected", "1 while there is a connection to the broker")
        connected.add_metric([], int(self._server.is_connected))
        yield connected
        losses = CounterMetricFamily("gomq_worker_connections_lost", "Connections that were up and are lost")
        losses.add_metric([], self._server.link.losses)
        yield losses
        running = GaugeMetricFamily(
            "gomq_worker_tasks_running", "Tasks that were taken and have not ended", labels=["queue"])
        done = CounterMetricFamily("gomq_worker_tasks_done", "Tasks that returned", labels=["queue"])
        failed = CounterMetricFamily(
            "gomq_worker_tasks_failed", "Runs that raised or took too long", labels=["queue"])
        revoked = CounterMetricFamily(
            "gomq_worker_tasks_revoked", "Tasks dropped because they were revoked", labels=["queue"])
        expired = CounterMetricFamily(
            "gomq_worker_tasks_expired", "Tasks dropped because they did not begin in time", labels=["queue"])
        for worker in self._workers:
            running.add_metric([worker.config.queue], worker.running_count)
            done.add_metric([worker.config.queue], worker.done_count)
            failed.add_metric([worker.config.queue], worker.failed_count)
            revoked.add_metric([worker.config.queue], worker.revoked_count)
            expired.add_metric([worker.config.queue], worker.expired_count)
        yield from (running, done, failed, revoked, expired)


def serve(port, address, server, workers):
    """Serve metrics at http://ADDRESS:PORT/metrics in a thread. Raises OSError if the port is in use."""
    registry = CollectorRegistry()
    registry.register(_Collector(server, workers))
    return start_http_server(port, address, registry)
