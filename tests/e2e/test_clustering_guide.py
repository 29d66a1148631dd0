"""docs/clustering.md: its examples run as they are printed, and what it names is there."""
import os
import re
import signal
import stat
import subprocess
import sys

import pytest

from gomq_py.config.settings import OPTIONS
from gomq_py.ctl.commands import ctl
from gomq_py.http.cluster_metrics import OF_CLUSTER, cluster_families
from gomq_py.http.exposition import rendered
from tests.ctl import running  # noqa: F401 - commands register themselves
from tests.support.ports import reserve
from tests.support.programs import find
from tests.support.waiting import in_time, wait_until
from tests.unit.source_tree import ROOT

TEXT = (ROOT / "docs" / "clustering.md").read_text(encoding="utf-8")
SCRIPT, = re.findall(r"```sh\n(mkdir -p try\n.*?)```", TEXT, re.DOTALL)
EXAMPLE, EMBEDDED = re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL)
# What the printed ports begin with; a digit, the node's, comes behind each.
PORTS = ("567", "188", "1567", "1569", "568")


@pytest.fixture
def place(tmp_path):
    """A folder, an environment for its programs, and {printed: given} of their ports."""
    programs = tmp_path / "bin"
    programs.mkdir()
    for name, module in (("gomq-py", "tests.support.elected_node"), ("gomq-py-ctl", "gomq_py.ctl")):
        program = programs / name
        program.write_text(f'#!/bin/sh\nPYTHONPATH={ROOT} exec {sys.executable} -m {module} "$@"\n')
        program.chmod(program.stat().st_mode | stat.S_IXUSR)
    etcd = os.path.dirname(find("etcd"))
    environment = os.environ | {"PATH": os.pathsep.join([str(programs), etcd, os.environ["PATH"]])}
    return tmp_path, environment, {f"{first}{node}": str(reserve()) for first in PORTS for node in (1, 2, 3)}


def script(ports, endpoint):
    """The script with the loop's numbers in place of its variable, and other ports."""
    loop = re.search(r"for n in 1 2 3; do\n(.*?)done\n", SCRIPT, re.DOTALL)
    nodes = "".join(loop[1].replace("$n", str(node)) for node in (1, 2, 3))
    text = SCRIPT.replace(loop[0], nodes)
    for printed, given in sorted(ports.items(), reverse=True):
        text = re.sub(rf"(?<=[ :]){printed}\b", given, text)
    text = text.replace("--clustering ", f"--clustering --clustering-etcd-endpoints {endpoint} ")
    peer = f"http://127.0.0.1:{reserve()}"
    return text.replace(
        "etcd --data-dir try/etcd", f"etcd --data-dir try/etcd --listen-client-urls http://{endpoint} "
        f"--advertise-client-urls http://{endpoint} --listen-peer-urls {peer} "
        f"--initial-advertise-peer-urls {peer} --initial-cluster default={peer}")


@pytest.mark.needs_program("etcd")
def test_three_nodes_of_one_machine_start_as_it_is_printed_and_take_clients_at_any_port(place):
    folder, environment, ports = place
    started = subprocess.Popen(
        ["bash", "-c", script(ports, f"127.0.0.1:{reserve()}")], cwd=folder, env=environment, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True)
    try:
        said = started.stdout.read() if started.wait(in_time(120)) == 0 else "it has failed"
        assert re.search(r"In sync: \[.*,.*,.*\]", said) and "Needed for a confirm: 2" in said, said
        for node in (1, 2, 3):
            example = EXAMPLE.replace("127.0.0.1:5672", f"127.0.0.1:{ports[f'567{node}']}")
            assert "127.0.0.1:5672" not in example or ports["5672"] == "5672"
            finished = subprocess.run(
                [sys.executable, "-c", example], text=True, capture_output=True, timeout=in_time(60))
            assert finished.stdout.startswith("confirmed: "), finished.stderr
    finally:
        os.killpg(started.pid, signal.SIGKILL)
        wait_until(lambda: not alive(started.pid), what="all programs have ended")


def alive(group):
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True


def test_embedded_warm_copy_runs_as_it_is_printed():
    finished = subprocess.run(
        [sys.executable, "-c", EMBEDDED], text=True, capture_output=True, timeout=in_time(60), cwd=ROOT)

    assert finished.stdout.startswith("http://"), finished.stderr


def test_commands_that_it_names_are_there():
    table = TEXT[TEXT.index("| `gomq-py-ctl` | on | does |"):TEXT.index("## Operating it")]
    named = set(re.findall(r"^\| `(\w+)", table, re.MULTILINE)) - {"gomq"}

    assert len(named) >= 8 and named - ctl.commands.keys() == set()


def test_settings_that_it_names_are_there():
    table = TEXT[TEXT.index("| setting | default | meaning"):TEXT.index("## What happens when")]
    named = set(re.findall(r"^\| `(\w+)`", table, re.MULTILINE))
    keys = {option.key for option in OPTIONS if option.section == "clustering"}

    assert len(named) == 4 and named - keys == set()


def test_metrics_that_it_names_are_there_and_all_are_named():
    table = TEXT[TEXT.index("| metric (`gomq_cluster_...`)"):TEXT.index("| `gomq-py-ctl` | on | does |")]
    named = {
        name for row in table.splitlines()[2:]
        for name in re.findall(r"`(\w+)`", row.split(" | ")[0])}
    calls = {"buckets": [["+Inf", 1]], "seconds": 1.0, "failures": 0}
    whole = {key: 1 for key, _, _ in OF_CLUSTER} | {"elects": True, "etcd_calls": calls, "state": "streaming"}
    made = set()
    for role in ("leader", "follower"):
        text = b"".join(rendered(cluster_families({"role": role, **whole}))).decode()
        made |= set(re.findall(r"^# TYPE gomq_cluster_(\w+)", text, re.MULTILINE))

    assert named == made
