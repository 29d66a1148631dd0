"""The benchmark runs on our broker and prints its tables; what it measures is nobody's test."""
import os
import resource
import subprocess
import sys
from types import SimpleNamespace
from xml.etree import ElementTree

import pytest

from gomq_py import __version__
from gomq_py.hub.admission import DESCRIPTORS_SHARE
from load import bench, brokers, costs, features, results, scaling, shovels, veth
from load.costs import COSTS, Cost
from load.plot import log_plot
from load.scenarios import MQTT_ROWS, ROWS
from tests.support.command import ROOT
from tests.support.waiting import in_time


def test_a_row_is_measured_and_printed():
    command = [
        sys.executable, "-m", "load.bench", "--alone", "--no-memory", "--rounds", "1", "--seconds", "0.5",
        "--rows", "small", "quiet",
    ]

    finished = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, timeout=in_time(100),
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )

    assert finished.returncode == 0, finished.stdout + finished.stderr
    assert "| 1 publisher, 1 consumer, 16 octets, automatic acks | 0.12 | 2.00 M |" in finished.stdout
    assert "FAULT" not in finished.stdout
    (quiet,) = (line for line in finished.stdout.splitlines() if line.startswith("| 500 messages"))
    p50, p99, p999 = map(float, quiet.split("|")[4].strip(" *").split(" / "))
    assert 0 < p50 <= p99 <= p999


def measured(*arguments):
    """What a run of one short round printed."""
    finished = subprocess.run(
        [sys.executable, "-m", "load.bench", "--alone", "--rounds", "1", "--seconds", "0.3", *arguments],
        cwd=ROOT, capture_output=True, text=True, timeout=in_time(200),
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert finished.returncode == 0, finished.stdout + finished.stderr
    assert "FAULT" not in finished.stdout
    return finished.stdout


@pytest.mark.parametrize("keys", [
    "consumers-100 publish topic-mixed", "dead-letters delayed mebi body-16", "tls-16 durable-confirm steady",
])
def test_each_kind_of_row_is_measured(keys):
    printed = measured("--rows", *keys.split())

    for row in ROWS:
        if row.key in keys.split():
            line = next(line for line in printed.splitlines() if line.startswith(f"| {row.title} |"))
            assert f"{row.key + ':':16}gomq-py-perf" in printed
            # its limits, then figures
            assert line.split("|")[4].strip(" *") not in ("", "-"), line


def test_what_is_no_throughput_is_measured_and_another_checkout_beside_it(tmp_path):
    """The other checkout is this one, by another name."""
    (tmp_path / "before").symlink_to(ROOT)

    printed = measured(
        "--rows", "start", "logins", "login-together", "handshake", "publish", "--beside",
        str(tmp_path / "before"))

    for name in ("start", "logins", "login-together", "handshake"):
        assert any(cost.key == name and f"| {cost.title} |" in printed for cost in COSTS)
    assert "| gomq-py | gomq-py in " in printed
    assert len(next(line for line in printed.splitlines() if "publish only" in line).split("|")) == 10


def test_a_row_over_mqtt_is_measured_and_printed():
    command = [
        sys.executable, "-m", "load.bench", "--alone", "--no-memory", "--rounds", "1", "--seconds", "0.5",
        "--rows", "mqtt-small",
    ]

    finished = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, timeout=in_time(100),
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )

    assert finished.returncode == 0, finished.stdout + finished.stderr
    assert "| QoS 0, 1 publisher, 1 subscriber, 16 octets | 0.3 |" in finished.stdout
    assert "FAULT" not in finished.stdout


def test_the_best_of_each_figure_counts_and_all_faults_do():
    runs = [
        {
            "cpu_us": 0.4, "rate": 1e6, "p50_ms": None, "p99_ms": 3, "p999_ms": 4, "generator_us": 0.1,
            "faults": [],
        },
        {
            "cpu_us": 0.3, "rate": 9e5, "p50_ms": None, "p99_ms": 2, "p999_ms": 5, "generator_us": 0.2,
            "faults": ["lost"],
        },
    ]

    assert bench.best(runs) == {
        "cpu_us": 0.3, "median_us": pytest.approx(0.35), "rate": 1e6, "p50_ms": None, "p99_ms": 2,
        "p999_ms": 4, "generator_us": 0.1, "faults": ["lost"],
    }


def test_the_best_of_a_cost_counts_and_one_that_cannot_be_measured_is_told():
    def uneven(figures):
        return {"even": next(figures), "odd": 7}

    def failing(_):
        raise RuntimeError("no broker")

    wanted = [
        Cost("even", "", 5, "us", uneven), Cost("odd", "", 9, "/s", uneven, is_least=True),
        Cost("never", "", 5, "us", failing),
    ]

    figures, faults = costs.measured({"a": (iter((8, 3)), True)}, wanted, 2)

    assert figures == {"a": {"even": 3, "odd": 7}}
    assert faults == ["failing, a: no broker"] * 2
    assert [cost.is_met(figures["a"][cost.key]) for cost in wanted[:2]] == [True, False]


def test_a_cost_whose_program_is_not_installed_has_no_figure(monkeypatch):
    monkeypatch.setenv(costs.PERF_TEST, "no-such-program --of-any-kind")
    wanted = [cost for cost in COSTS if cost.key == "perf-test"]

    assert costs.measured({"a": (None, True)}, wanted, 1) == ({"a": {}}, [])


def figures(cpu_us, faults=()):
    """What a row of a broker has in the file."""
    return {**bench.best([]), "cpu_us": cpu_us, "median_us": cpu_us, "rate": 2e6, "faults": [*faults]}


def found(versions, **rows):
    """What a run finds of gomq-py alone."""
    return {
        "versions": versions, "mqtt_versions": {}, "costs": {}, "failed": [], "management": None,
        "rows": {key: {"gomq-py": row} for key, row in rows.items()},
    }


def test_figures_of_earlier_runs_of_this_version_on_this_machine_stay_where_there_are_no_newer_ones():
    earlier = results.entry(found({"gomq-py": "1"}, small=figures(1, ["lost"]), four=figures(4)), 0)
    now = found({"gomq-py": ""}, small=figures(2))

    together = results.entry(now, 0, [earlier])

    assert together["found"] == found({"gomq-py": "1"}, small=figures(2), four=figures(4))
    elsewhere = {**earlier, "machine": {**earlier["machine"], "processor": "another"}}
    for other in (elsewhere, {**earlier, "version": "0.0.1"}):
        assert results.entry(now, 0, [other])["found"] == now


def test_the_newest_run_of_a_version_takes_the_place_of_its_earlier_one(tmp_path, monkeypatch):
    monkeypatch.setattr(results, "FILE", tmp_path / "results.json")
    one = results.entry(found({"gomq-py": "1"}, small=figures(0.1234567), four=figures(4)), 1.25)
    old = {**one, "version": "0.0.1"}

    results.write([one, old], {**one, "date": "2126-01-01"})

    assert [(each["version"], each["date"]) for each in results.read()] == [
        ("0.0.1", one["date"]), (__version__, "2126-01-01")
    ]
    rows = [line for line in results.FILE.read_text().splitlines() if '"gomq-py": {' in line]
    assert len(rows) == 4 and all("cpu_us" in row and "faults" in row for row in rows)
    assert '"cpu_us": 0.12346,' in rows[0]
    assert one["machine"].keys() == {"processor", "cores", "system", "python", "load_before"}


def test_a_version_stands_beside_the_last_one_from_the_same_machine():
    newest = results.entry(found({"gomq-py": "gomq-py"}, small=figures(0.5), four=figures(4)), 0)
    older = {**newest, "version": "0.0.1", "date": "2026-01-01", "found": found({}, small=figures(0.75))}
    oldest = {**older, "version": "0.0.0"}
    elsewhere = {**older, "version": "0.0.2", "machine": {**older["machine"], "cores": 999}}
    options = SimpleNamespace(rounds=3, seconds=2, load_before=0, veth=None)

    last = results.last([oldest, older, elsewhere, newest], newest)
    text = bench.document(newest, last, options)

    assert last is older
    assert f"| 0.0.1 of 2026-01-01 beside {__version__} | CPU us: 0.0.1 |" in text
    beside = text.partition(" beside ")[2]
    assert f"| {ROWS[0].title} | 0.75 (0.75) | 0.50 (0.50) | 2.00 M | 2.00 M |" in beside
    assert ROWS[1].title not in beside  # the last one has no figures of it
    assert results.last([elsewhere, newest], newest) is None
    assert " beside " not in bench.document(newest, None, options)


@pytest.mark.parametrize(("arguments", "is_written"), [
    ("--rows small --add", True), ("--rows small", False), ("--rows small --add --no-write", False),
    ("--rows small --add --beside other", False),
])
def test_page_and_file_are_written_together(tmp_path, monkeypatch, arguments, is_written):
    for module, name, text in (
        (bench, "DOCUMENT", f"{bench.BEGIN}\n{bench.END}"), (results, "FILE", "[]"),
    ):
        monkeypatch.setattr(module, name, tmp_path / name)
        (tmp_path / name).write_text(text)
    (tmp_path / "other").mkdir()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(bench, "_measured", lambda rows, brokers, options: (
        {"small": {"gomq-py": figures(0.25)}} if rows is ROWS else {}, {"gomq-py": "gomq-py 1"}))

    assert bench.main(["--alone", *arguments.split()]) == 0

    assert ("0.25 (0.25)" in bench.DOCUMENT.read_text()) == is_written
    assert [(each["version"], each["found"]["rows"]["small"]["gomq-py"]["cpu_us"]) for each in results.read()
            ] == [(__version__, 0.25)] * is_written


def test_a_veth_pair_has_the_mtu_of_ethernet_and_joins_two_namespaces():
    commands = [" ".join(command) for command in veth.laying({"a": "198.18.0.1", "b": "198.18.0.2"}, 44)]

    assert commands == [
        "ip netns add a", "ip netns add b",
        "ip link add name veth0 mtu 1500 gso_max_segs 44 netns a type veth "
        "peer name veth0 mtu 1500 gso_max_segs 44 netns b",
        "ip -n a address add 198.18.0.1/30 dev veth0", "ip -n a link set veth0 up", "ip -n a link set lo up",
        "ip -n b address add 198.18.0.2/30 dev veth0", "ip -n b link set veth0 up", "ip -n b link set lo up",
    ]


@pytest.mark.parametrize("kind", [brokers.GomqBroker, brokers.MosquittoBroker, brokers.RabbitBroker])
def test_each_broker_starts_in_the_namespace_that_the_environment_names(tmp_path, monkeypatch, kind):
    class Started(Exception):
        """With the command."""

    def start(command, **_):
        raise Started(command)

    monkeypatch.setattr(brokers.subprocess, "Popen", start)
    monkeypatch.setattr(veth, "NAMESPACE", "there")

    with pytest.raises(Started) as started:
        kind(tmp_path).start()

    assert started.value.args[0][:4] == ["ip", "netns", "exec", "there"]


def test_addresses_are_those_of_the_pair_where_the_environment_names_a_namespace():
    finished = subprocess.run(
        [sys.executable, "-c", "from load import brokers; print(brokers.HOST, *brokers._GUESTS)"],
        cwd=ROOT, capture_output=True, text=True, timeout=in_time(60), check=True,
        env={**os.environ, "PYTHONPATH": str(ROOT), "LOAD_NAMESPACE": "there"},
    )

    assert finished.stdout == "198.18.0.1 --default-user-only-loopback false\n"


@pytest.mark.parametrize(("user", "program"), [(1000, "/sbin/ip"), (0, None)])
def test_without_root_or_ip_there_is_no_pair(monkeypatch, user, program):
    monkeypatch.setattr(veth.os, "geteuid", lambda: user)
    monkeypatch.setattr(veth.shutil, "which", lambda _: program)

    with pytest.raises(SystemExit, match="needs root"):
        bench.main(["--veth", "--rows", "small"])


def test_rows_of_links_are_written_by_themselves_and_one_that_failed_is_left_out():
    page = bench.DOCUMENT.read_text(encoding="utf-8")
    best = {(row.key, "gomq-py"): {"cpu_us": 0.5, "rate": 2e5} for row in shovels.EVERY}
    best["federation-live", "gomq-py"] = None
    idle = [{"octets": 13.6 * 1024, "cpu": 0.01}, {"octets": 39 * 1024, "cpu": 0.02}]

    text = shovels.document(
        best, {"gomq-py": "gomq-py 1"}, idle, SimpleNamespace(rounds=3, idle=1000, load_before=0.0))

    assert page.index(shovels.BEGIN) < page.index(shovels.END)
    assert "| shovel, on-confirm, 16 octets | 3.0 | 100 k | 0.50 | 200 k |" in text
    assert "consumed meanwhile | 6.0 | 80 k | - | - |" in text
    assert "An idle shovel takes 13.6 KiB" in text and "link of an exchange 39.0 KiB" in text


def test_the_document_has_a_place_for_the_figures_and_every_row_a_limit():
    page = bench.DOCUMENT.read_text(encoding="utf-8")

    assert page.index(bench.BEGIN) < page.index(bench.END)
    assert all(row.cpu_us or row.rate or row.is_latency for row in (*ROWS, *MQTT_ROWS))


def test_how_cost_grows_is_drawn(tmp_path):
    finished = subprocess.run(
        [
            sys.executable, "-m", "load.scaling", "--most", "100", "--only", "bindings", "connections",
            "--out", str(tmp_path),
        ],
        cwd=ROOT, capture_output=True, text=True, timeout=in_time(200),
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )

    assert finished.returncode == 0, finished.stderr
    assert "| Idle connections | octets of memory each | 100: " in finished.stdout
    assert "<circle" in (tmp_path / "scaling-connections.svg").read_text()
    assert "<svg" in (tmp_path / "scaling-bindings.svg").read_text()


def test_a_plot_has_a_line_for_each_series_and_a_mark_for_each_power_of_ten():
    picture = ElementTree.fromstring(
        log_plot("Cost & size", "queues", {"a": [(1, 0.15), (1000, 20)], "b": [(10, 3), (100, 3)]}))

    drawn = "{http://www.w3.org/2000/svg}"
    texts = [each.text for each in picture.iter(f"{drawn}text")]
    assert len(list(picture.iter(f"{drawn}polyline"))) == 2
    assert {"Cost & size", "0.1", "1", "10", "100", "1 k"} <= set(texts)


def test_features_are_measured_beside_their_plain_twins():
    finished = subprocess.run(
        [
            sys.executable, "-m", "load.features", "--no-write", "--rounds", "1", "--seconds", "0.3",
            "--messages", "2000", "--delayed", "2000", "--schedules", "50",
        ],
        cwd=ROOT, capture_output=True, text=True, timeout=in_time(200),
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )

    assert finished.returncode == 0, finished.stderr
    printed = finished.stdout
    assert all(f"\n| {row.title} | " in printed for row in features.ROWS)
    assert {*features.TWINS} <= {row.key for row in features.ROWS}
    assert "| 2,000 messages of a stuck group, published and examined | " in printed
    assert "| 50 schedules of a second each, a message that goes out | " in printed


def test_the_document_has_a_place_for_the_plots():
    page = bench.DOCUMENT.read_text(encoding="utf-8")

    assert page.index(scaling.BEGIN) < page.index(scaling.END)


class NoBroker:
    """One of which nothing is asked."""

    def start(self):
        return self

    def stop(self):
        pass


def test_a_size_that_this_machine_does_not_do_ends_its_line():
    def measure(_, size):
        if size > 10:
            raise RuntimeError("no descriptors")
        return {"us": size}

    growth = scaling.Growth("queues", "Queues", "queues", (1, 10, 100, 1000), measure, {})

    assert scaling.measured(growth, NoBroker, 1000) == {"us": [(1, 1), (10, 10)]}


@pytest.mark.parametrize("descriptors", [1024, 20_000, 1_000_000])
def test_connections_end_where_the_broker_lets_in_no_more(monkeypatch, descriptors):
    monkeypatch.setattr(resource, "getrlimit", lambda _: (descriptors, descriptors))
    growth = scaling.Growth("connections", "", "", (1 << 30,), lambda _, size: {"us": size}, {})

    ((asked, _),) = scaling.measured(growth, NoBroker, 1 << 40)["us"]

    assert 0 < asked < descriptors * DESCRIPTORS_SHARE
