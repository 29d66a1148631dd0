"""What lies in etc/ for clusters works: settings that nodes start with, and files for containers that agree
with them, with each other, and with what nodes answer.
"""
import re

import pytest
import requests
import yaml

from gomq_py.config.settings import OPTIONS, PASSWORD_FILE, PLAIN_PASSWORD
from gomq_py.config.sources import flag_parser, load
from gomq_py.http.app import create_metrics_app
from gomq_py.http.follower import ALIVE
from tests.support.command import ROOT
from tests.support.elected import Cluster
from tests.support.etcd_process import EtcdProcess
from tests.support.waiting import in_time, wait_until

ETC = ROOT / "etc"
INI = ETC / "cluster.ini"
COMPOSE = yaml.safe_load((ETC / "compose-cluster.yaml").read_text())
KUBERNETES = list(yaml.safe_load_all((ETC / "kubernetes.yaml").read_text()))
ENVIRONMENT = {f"GOMQ_{name}" for option in OPTIONS for name in option.environment} | {
    PLAIN_PASSWORD, PASSWORD_FILE}
NODES, ETCDS = ["gomq-0", "gomq-1", "gomq-2"], ["etcd-0", "etcd-1", "etcd-2"]
CHECKS = "/api/health/checks/"


def settings_of(path, environment=()):
    settings, warnings = load(flag_parser().parse_args(["--config", str(path)]), dict(environment))
    assert warnings == []
    return settings


def check_settings(settings, endpoints):
    """Whether these are a node's of three, which others reach."""
    assert (settings.clustering, settings.min_isr) == (True, 2)
    assert [address.rpartition(":")[0] for address in settings.etcd_endpoints] == endpoints
    assert {
        settings.amqp_bind, settings.mqtt_bind, settings.http_bind, settings.metrics_http_bind,
        settings.clustering_bind} == {"0.0.0.0"}
    assert not settings.default_user_only_loopback


def found(kind, name):
    (one,) = [one for one in KUBERNETES if (one["kind"], one["metadata"]["name"]) == (kind, name)]
    return one


def container(stateful_set):
    (one,) = stateful_set["spec"]["template"]["spec"]["containers"]
    return one


# compose

def test_compose_starts_three_nodes_with_the_settings_of_the_file():
    services = COMPOSE["services"]
    check_settings(settings_of(INI), ETCDS)
    assert sorted(services) == sorted(NODES + ETCDS)
    assert COMPOSE["secrets"] == yaml.safe_load((ETC / "compose.yaml").read_text())["secrets"]
    for name in NODES:
        node = services[name]
        assert node["hostname"] == name and node["networks"] == ["cluster"], "the others reach it by its name"
        data, settings = node["volumes"]
        assert data == f"{name}:/var/lib/gomq" and name in COMPOSE["volumes"]
        given, inside, mode = settings.split(":")
        assert (ETC / given).samefile(INI) and (inside, mode) == ("/etc/gomq/gomq.ini", "ro")
        assert node["command"] == [] and set(node["environment"]) <= ENVIRONMENT
        assert [node["environment"][PASSWORD_FILE]] == [f"/run/secrets/{name}" for name in node["secrets"]]
        assert node["read_only"] and node["cap_drop"] == ["ALL"]
        build = node["build"]
        assert (ETC / build["context"] / build["dockerfile"]).samefile(ETC / "Dockerfile")


def test_ports_of_the_three_nodes_differ_and_management_is_for_this_machine():
    published = [port for name in NODES for port in COMPOSE["services"][name]["ports"]]

    assert len({port.rpartition(":")[0] for port in published}) == len(published) == 9
    assert all(port.startswith("127.0.0.1:") for port in published if port.endswith(":15672"))
    assert not any(port.endswith((":5679", ":15692")) for port in published), "for the nodes alone"


def test_each_etcd_of_compose_names_itself_and_all():
    for name in ETCDS:
        command = COMPOSE["services"][name]["command"]
        given = dict(zip(command[1::2], command[2::2], strict=True))
        assert given["--name"] == name
        assert given["--advertise-client-urls"] == f"http://{name}:2379"
        assert given["--initial-cluster"] == ",".join(f"{one}=http://{one}:2380" for one in ETCDS)
        assert COMPOSE["services"][name]["volumes"] == [f"{name}:{given['--data-dir']}"]


# Kubernetes

def test_pods_have_the_settings_of_the_file_and_reach_each_other(tmp_path):
    text = found("ConfigMap", "gomq")["data"]["gomq.ini"]
    (tmp_path / "gomq.ini").write_text(text)
    given, shipped = settings_of(tmp_path / "gomq.ini"), settings_of(INI)
    check_settings(given, [f"{name}.etcd" for name in ETCDS])
    assert [
        option.key for option in OPTIONS if option.key != "etcd_endpoints"
        and getattr(given, option.attribute) != getattr(shipped, option.attribute)] == []
    stateful_set = found("StatefulSet", "gomq")
    environment = {one["name"]: one for one in container(stateful_set)["env"]}
    assert set(environment) - {"POD_NAME"} <= ENVIRONMENT
    service = stateful_set["spec"]["serviceName"]
    assert environment["GOMQ_CLUSTERING_ADVERTISED_URI"]["value"] == f"$(POD_NAME).{service}:5679"
    assert list(environment).index("POD_NAME") < list(environment).index("GOMQ_CLUSTERING_ADVERTISED_URI")
    headless = found("Service", service)["spec"]
    assert headless["clusterIP"] == "None" and headless["publishNotReadyAddresses"], "to come into sync"


@pytest.mark.parametrize("name", ["gomq", "etcd"])
def test_selectors_find_the_pods_and_at_most_one_goes_at_a_time(name):
    stateful_set = found("StatefulSet", name)
    labels = stateful_set["spec"]["template"]["metadata"]["labels"]

    selectors = [stateful_set["spec"]["selector"]["matchLabels"]]
    budget = found("PodDisruptionBudget", name)["spec"]
    selectors.append(budget["selector"]["matchLabels"])
    services = [one["spec"] for one in KUBERNETES if one["kind"] == "Service"]
    assert all(selector == labels for selector in selectors)
    assert any(service["selector"] == labels for service in services)
    assert budget["maxUnavailable"] == 1 and stateful_set["spec"]["replicas"] == 3
    assert stateful_set["spec"]["podManagementPolicy"] == "Parallel"
    spread, = stateful_set["spec"]["template"]["spec"]["topologySpreadConstraints"]
    assert spread["topologyKey"] == "kubernetes.io/hostname"


def test_ports_and_volumes_of_pods_are_the_broker_s():
    pod = container(found("StatefulSet", "gomq"))
    settings = settings_of(INI)
    ports = {one["name"]: one["containerPort"] for one in pod["ports"]}

    assert ports == {
        "amqp": settings.amqp_port, "mqtt": settings.mqtt_port, "http": settings.http_port,
        "metrics": settings.metrics_http_port, "cluster": settings.clustering_port}
    for service in (one for one in KUBERNETES if one["kind"] == "Service" and "etcd" not in str(one)):
        assert all(ports[one["name"]] == one["port"] for one in service["spec"]["ports"])
    mounts = {one["name"]: one["mountPath"] for one in pod["volumeMounts"]}
    assert (mounts["data"], mounts["settings"]) == ("/var/lib/gomq", "/etc/gomq")
    control = [one["value"] for one in pod["env"] if one["name"] == "GOMQ_CONTROL_UNIX_PATH"]
    assert control == [f"{mounts['control']}/ctl.sock"]
    assert pod["securityContext"]["readOnlyRootFilesystem"]


def test_probes_ask_for_what_leaders_and_followers_answer_without_a_login():
    pod = container(found("StatefulSet", "gomq"))
    asked = {name: pod[name]["httpGet"] for name in ("startupProbe", "livenessProbe", "readinessProbe")}
    routes = {rule.rule for rule in create_metrics_app(None).url_map.iter_rules()}

    assert {one["path"] for one in asked.values()} <= routes
    assert {one["port"] for one in asked.values()} == {"metrics"}
    assert asked["livenessProbe"]["path"].removeprefix(CHECKS) in ALIVE
    assert asked["readinessProbe"]["path"] == f"{CHECKS}is-in-sync"
    (command,) = re.findall(r"gomq-py-ctl -q (\w+)", pod["lifecycle"]["preStop"]["exec"]["command"][2])
    assert command == "check_if_node_is_quorum_critical"


# whole

@pytest.mark.needs_program("etcd")
def test_three_nodes_start_with_the_settings_and_pass_the_probes_when_they_are_in_sync(tmp_path):
    with EtcdProcess(tmp_path) as etcd, Cluster(tmp_path, etcd, config=INI, metrics_http_port=0) as cluster:
        leader = cluster.wait_in_sync(3)

        assert leader.figures["min_isr"] == 2
        for node in cluster.nodes:
            for check in ("is-alive", "is-in-sync"):
                url = f"http://127.0.0.1:{node.ports['metrics']}{CHECKS}{check}"
                wait_until(lambda url=url: requests.get(url, timeout=in_time(10)).status_code == 200)
