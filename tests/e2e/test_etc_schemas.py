"""Compose's and Kubernetes' own schemas hold the files of etc/, and the two ways to be scraped agree."""
import subprocess
import sys

import kubernetes_validate
import pytest
import yaml

from gomq_py.config.settings import OPTIONS, PASSWORD_FILE
from gomq_py.config.sources import flag_parser, load
from gomq_py.http.app import create_metrics_app
from gomq_py.http.follower import ALIVE
from tests.support.command import ROOT
from tests.support.waiting import in_time

ETC = ROOT / "etc"
KUBERNETES = {path.name: list(yaml.safe_load_all(path.read_text())) for path in ETC.glob("kubernetes*.yaml")}
SINGLE = {one["kind"]: one for one in KUBERNETES["kubernetes-single.yaml"]}
(MONITOR,) = KUBERNETES["kubernetes-monitor.yaml"]
POD = SINGLE["StatefulSet"]["spec"]["template"]
(CONTAINER,) = POD["spec"]["containers"]
# Versions that are still supported somewhere, and the newest that the validator knows.
VERSIONS = ("1.30", kubernetes_validate.latest_version())


def test_compose_files_keep_to_the_compose_specification():
    files = sorted(ETC.glob("compose*.yaml"))
    done = subprocess.run(
        [sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.compose-spec", *files],
        capture_output=True, text=True, timeout=in_time(60))

    assert len(files) == 2
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("version", VERSIONS)
def test_each_object_keeps_to_the_schema_of_its_kind(version):
    """A PodMonitor is a kind of the Prometheus Operator, whose schema no cluster brings along."""
    kinds = set()
    for objects in KUBERNETES.values():
        for one in objects:
            if not one["apiVersion"].startswith("monitoring.coreos.com/"):
                kubernetes_validate.validate(one, version, strict=True)
                kinds.add(one["kind"])

    assert kinds == {"ConfigMap", "Service", "StatefulSet", "PodDisruptionBudget"}


def test_field_that_no_schema_knows_is_seen():
    wrong = {**SINGLE["Service"], "specs": {}}

    with pytest.raises(kubernetes_validate.ValidationError, match="specs"):
        kubernetes_validate.validate(wrong, VERSIONS[-1], strict=True)


def test_single_broker_starts_with_the_settings_of_its_file(tmp_path):
    (tmp_path / "gomq.ini").write_text(SINGLE["ConfigMap"]["data"]["gomq.ini"])
    (tmp_path / "password").write_text("x")
    (given,) = CONTAINER["env"]
    mounts = {one["name"]: one["mountPath"] for one in CONTAINER["volumeMounts"]}

    settings, warnings = load(
        flag_parser().parse_args(["--config", str(tmp_path / "gomq.ini"), *CONTAINER["args"]]),
        {given["name"]: str(tmp_path / "password")})

    assert warnings == [] and settings.default_password_hash
    assert (settings.default_user, settings.default_user_only_loopback) == ("admin", False)
    assert {option.attribute for option in OPTIONS if getattr(settings, option.attribute) == "0.0.0.0"} == {
        "amqp_bind", "mqtt_bind", "http_bind", "metrics_http_bind"}
    assert (given["name"], given["value"]) == (PASSWORD_FILE, f"{mounts['password']}/password")
    assert (mounts["data"], mounts["settings"]) == (settings.data_dir, "/etc/gomq")
    ports = {one["name"]: one["containerPort"] for one in CONTAINER["ports"]}
    assert ports == {
        "amqp": settings.amqp_port, "mqtt": settings.mqtt_port, "http": settings.http_port,
        "metrics": settings.metrics_http_port}
    assert {one["name"]: one["port"] for one in SINGLE["Service"]["spec"]["ports"]}.items() <= ports.items()


def test_single_broker_is_one_pod_whose_probes_are_answered():
    spec = SINGLE["StatefulSet"]["spec"]
    routes = {rule.rule for rule in create_metrics_app(None).url_map.iter_rules()}
    alive = CONTAINER["livenessProbe"]["httpGet"]
    opened = [CONTAINER[name]["tcpSocket"]["port"] for name in ("startupProbe", "readinessProbe")]

    assert spec["replicas"] == 1
    labels = POD["metadata"]["labels"]
    assert spec["selector"]["matchLabels"] == SINGLE["Service"]["spec"]["selector"] == labels
    assert alive["path"] in routes and alive["path"].rpartition("/")[2] in ALIVE
    assert {alive["port"], *opened} <= {one["name"] for one in CONTAINER["ports"]}
    (claim,) = spec["volumeClaimTemplates"]
    assert {claim["metadata"]["name"], *(one["name"] for one in POD["spec"]["volumes"])} == {
        one["name"] for one in CONTAINER["volumeMounts"]}


def test_pod_monitor_scrapes_what_the_file_for_prometheus_does():
    shipped = yaml.safe_load((ETC / "prometheus.yml").read_text())
    jobs = [{**shipped["global"], "params": None, **job} for job in shipped["scrape_configs"]]
    endpoints = MONITOR["spec"]["podMetricsEndpoints"]
    pods = [
        one["spec"]["template"] for objects in KUBERNETES.values() for one in objects
        if one["kind"] == "StatefulSet" and one["metadata"]["name"] == "gomq"]

    assert [(one["path"], one["interval"], one.get("params")) for one in endpoints] == [
        (job["metrics_path"], job["scrape_interval"], job["params"]) for job in jobs]
    labels = MONITOR["spec"]["selector"]["matchLabels"]
    assert len(pods) == 2 and all(pod["metadata"]["labels"] == labels for pod in pods)
    named = [labels[MONITOR["spec"]["jobLabel"]], endpoints[1]["relabelings"][0]["replacement"]]
    assert named == [job["job_name"] for job in jobs]
    for pod in pods:
        assert {one["port"] for one in endpoints} <= {
            port["name"] for port in pod["spec"]["containers"][0]["ports"]}
    dropped, = endpoints[1]["metricRelabelings"]
    assert [{
        "source_labels": dropped["sourceLabels"], "regex": dropped["regex"], "action": dropped["action"],
    }] == jobs[1]["metric_relabel_configs"]
