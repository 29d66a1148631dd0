"""What watches a broker: a real Prometheus scrapes a cluster under traffic as etc/prometheus.yml says, and
each panel of the dashboards and each alert rule finds what it asks for. Names of others' dashboards and rules
are there, or not, as docs/monitoring.md says.
"""
import json
import math
import re
import subprocess
from contextlib import ExitStack, contextmanager

import pika
import pytest
import requests
import yaml
from prometheus_client.parser import text_string_to_metric_families

from gomq_py.http.api.metrics import DETAILED, OF_LINKS, OWN
from tests.management.busy import VHOST, Busy
from tests.support.command import ROOT
from tests.support.elected import Cluster
from tests.support.etcd_process import EtcdProcess
from tests.support.paho_client import PahoClient
from tests.support.programs import find
from tests.support.prometheus_process import ETC, SHIPPED, PrometheusProcess, hurried, shipped
from tests.support.waiting import in_time, wait_until

PAGE = (ROOT / "docs" / "monitoring.md").read_text(encoding="utf-8")
ALERTS = yaml.safe_load((ETC / "prometheus-alerts.yml").read_text())
RULES = [rule for group in ALERTS["groups"] for rule in group["rules"]]
DASHBOARDS = [json.loads(path.read_text()) for path in sorted(ETC.glob("grafana-*.json"))]
METRIC = re.compile(r"\b(?:rabbitmq|gomq)_\w+(?:\{[^}]*\})?")


class Traffic:
    """One of everything at a leader, beside what Busy has."""

    def __init__(self, leader, stack):
        busy = Busy(leader)
        stack.callback(busy.close)
        self.connection = pika.BlockingConnection(pika.URLParameters(leader.url(vhost=VHOST)))
        self.channel = channel = self.connection.channel()
        channel.confirm_delivery()
        channel.queue_declare("waiting", durable=True)
        channel.queue_declare("grouped", durable=True, arguments={"x-message-group": "routing-key"})
        for _ in range(3):
            channel.basic_publish("", "waiting", b"x")
            channel.basic_publish("", "grouped", b"x")
            channel.basic_publish("", "log", b"x")
        other = self.connection.channel()
        other.basic_qos(prefetch_count=1)
        other.basic_consume("log", lambda *_: None, arguments={"x-stream-offset": "first"})
        self.client = PahoClient(None, "watched", port=leader.ports["mqtt"])
        stack.callback(self.client.paho.loop_stop)
        stack.callback(self.client.paho.disconnect)
        self.client.paho.publish("kept", b"x", qos=1, retain=True)
        self.go_on()

    def go_on(self):
        """A message of each kind moves on, so that no rate is without an event."""
        self.channel.basic_publish("", "waiting", b"x", pika.BasicProperties(delivery_mode=2))
        method, _, _ = self.channel.basic_get("waiting")
        self.channel.basic_nack(method.delivery_tag)
        self.channel.basic_publish("", "shovelled", b"x")
        self.connection.process_data_events()


@pytest.fixture(scope="module")
def watched(tmp_path_factory):
    """(leader of an elected cluster under traffic, its traffic, a Prometheus that scrapes all nodes)."""
    folder = tmp_path_factory.mktemp("watched")
    with ExitStack() as stack:
        etcd = stack.enter_context(EtcdProcess(folder))
        cluster = stack.enter_context(
            Cluster(folder, etcd, count=2, metrics_http_port=0, mqtt_port=0))
        leader = cluster.wait_in_sync(2)
        traffic = Traffic(leader, stack)
        ports = [node.ports["metrics"] for node in cluster.nodes]
        prometheus = stack.enter_context(PrometheusProcess(folder / "prometheus", shipped(ports)))
        yield leader, traffic, prometheus


def targets(dashboard):
    """(title of the panel, query, labels that its legend names) of all panels, and of all variables."""
    shortest = hurried(SHIPPED["global"]["scrape_interval"])
    for panel in dashboard["panels"]:
        for target in panel.get("targets", ()):
            step = hurried(target["interval"]) if "interval" in target else shortest
            # Grafana's $__rate_interval, which knows the global interval and the target's own.
            expression = target["expr"].replace("$__rate_interval", f"{4 * int(step[:-2])}ms")
            yield (
                panel["title"], re.sub(r"\$\w+", ".*", expression),
                set(re.findall(r"\{\{(\w+)\}\}", target["legendFormat"])))
    for variable in dashboard["templating"]["list"]:
        if variable["type"] == "query":
            metric, label = re.fullmatch(r"label_values\((.*), (\w+)\)", variable["query"]).groups()
            yield variable["name"], re.sub(r"\$\w+", ".*", metric), {label}


def is_answered(prometheus, expression, labels):
    """Whether a query has samples, all with these labels and none of them empty."""
    samples = prometheus.query(expression)
    return samples and all(labels <= set(found) and not math.isnan(value) for found, value in samples)


@pytest.mark.needs_program("etcd")
@pytest.mark.needs_program("prometheus")
@pytest.mark.parametrize("dashboard", DASHBOARDS, ids=lambda board: board["uid"])
def test_each_panel_finds_what_it_asks_for_in_what_the_shipped_file_scrapes(watched, dashboard):
    _, traffic, prometheus = watched
    unanswered = list(targets(dashboard))

    def all_are_answered():
        traffic.go_on()
        unanswered[:] = [
            (title, expression, labels) for title, expression, labels in unanswered
            if not is_answered(prometheus, expression, labels)]
        return not unanswered

    assert len(unanswered) > 20
    wait_until(all_are_answered, in_time(60), lambda: f"no data: {unanswered}\n{prometheus.log_text}")


@pytest.mark.needs_program("etcd")
@pytest.mark.needs_program("prometheus")
def test_each_alert_rule_is_evaluated_and_asks_for_metrics_that_are_there(watched):
    _, _, prometheus = watched

    def rules():
        return [rule for group in prometheus.api("rules")["groups"] for rule in group["rules"]]

    wait_until(lambda: all(rule["health"] != "unknown" for rule in rules()))
    wait_until(lambda: prometheus.query("gomq_shovel_up"))
    wait_until(lambda: len(prometheus.query("up")) == 4, what="both jobs scrape the leader and its follower")
    assert [labels for labels, value in prometheus.query("up") if value != 1] == []
    assert [(rule["name"], rule["lastError"]) for rule in rules() if rule["health"] != "ok"] == []
    assert len(rules()) == len(RULES)
    # A family without samples, such as failures of jobs of which none has failed, is told by its head.
    heads = prometheus.api("metadata")
    asked = {selector for rule in RULES for selector in METRIC.findall(rule["expr"])}
    assert [
        selector for selector in asked
        if not prometheus.query(selector) and selector not in heads] == []


def test_each_alert_says_what_is_wrong_and_what_to_do():
    for rule in RULES:
        assert set(rule["annotations"]) == {"summary", "action"}, rule["alert"]
        for page, heading in re.findall(r"(docs/\w+\.md): ([^.]+)\.", rule["annotations"]["action"]):
            text = (ROOT / page).read_text(encoding="utf-8")
            is_there = re.search(rf"^#+ {re.escape(heading)}$", text, re.MULTILINE)
            assert is_there, (rule["alert"], page, heading)
        assert f"| `{rule['alert']}` | {rule['labels']['severity']} |" in PAGE, "the table of the page"


@pytest.mark.needs_program("promtool")
def test_promtool_accepts_the_shipped_files_and_each_alert_fires_when_it_should():
    tests = ROOT / "tests" / "e2e" / "alerts_test.yml"
    for command in (["check", "config", ETC / "prometheus.yml"], ["test", "rules", tests]):
        done = subprocess.run(
            [find("promtool"), *command], capture_output=True, text=True, timeout=in_time(60))
        assert done.returncode == 0, done.stdout + done.stderr

    assert [rule["alert"] for rule in RULES if f'alertname="{rule["alert"]}"' not in tests.read_text()] == []


@contextmanager
def one_metrics_port(port):
    """(a function from a path to names of families and samples), without keeping a connection."""
    with requests.Session() as session:
        def names(path):
            answer = session.get(f"http://127.0.0.1:{port}/{path}", timeout=in_time(60))
            assert answer.ok, answer.text
            return {
                name for family in text_string_to_metric_families(answer.text)
                for name in (family.name, *(sample.name for sample in family.samples))}
        yield names


def rows(heading):
    """The rows of the table below a heading of the page: lists of cells."""
    section = re.split(r"^#+ ", PAGE.partition(f"# {heading}\n")[2], maxsplit=1, flags=re.MULTILINE)[0]
    table = [line for line in section.splitlines() if line.startswith("| ")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in table[1:]]


@pytest.mark.needs_program("etcd")
@pytest.mark.needs_program("prometheus")
def test_names_of_others_rules_and_dashboards_are_there_or_not_as_the_page_says(watched):
    leader, _, _ = watched
    families = "&".join(f"family={name}" for name in (*DETAILED, *OWN, *OF_LINKS))
    with one_metrics_port(leader.ports["metrics"]) as names:
        exposed = {
            "`/metrics`": names("metrics"), "`/metrics/per-object`": names("metrics/per-object"),
            "`/metrics/detailed`": names(f"metrics/detailed?{families}")}
    table = rows("Rules and dashboards of others")

    wrong = []
    for metrics, _, here, _ in table:
        for metric in re.findall(r"`([\w*]+)`", metrics):
            pattern = re.compile(metric.replace("*", r"\w*"))
            found = [path for path, known in exposed.items() if any(map(pattern.fullmatch, known))]
            if here == "no" and found or here != "no" and not set(here.split(", ")) <= set(found):
                wrong.append((metric, here, found))

    assert len(table) > 20
    assert wrong == []
