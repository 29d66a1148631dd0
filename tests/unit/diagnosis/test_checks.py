"""Findings: judged by figures alone."""
import pytest

from gomq_py.diagnosis import checks
from gomq_py.diagnosis.checks import BAD, MANY, WARNING, QueueChecks


def told(queue_checks):
    return [(one.level, one.kind, one.name) for one in queue_checks.findings()]


@pytest.mark.parametrize("before, now, grows", [
    (0, 1000, False), (0, 1001, True), (100_000, 104_000, False), (100_000, 106_000, True), (5000, 10, False),
])
def test_a_queue_grows_by_many_and_by_a_part_of_what_it_had(before, now, grows):
    queue_checks = QueueChecks("/")

    queue_checks.look_at_growth("q", now, before, 10)

    assert bool(told(queue_checks)) is grows


def test_many_of_a_kind_are_told_as_a_number():
    queue_checks = QueueChecks("/")
    for number in range(MANY + 7):
        queue_checks.look(f"q{number}", "stopped", 0, False)

    rows = list(queue_checks.findings())

    assert len(rows) == MANY + 1
    assert rows[-1].text == "7 more closed after a fault of its store" and rows[-1].level == BAD


def test_the_longest_queue_without_a_consumer_is_named():
    queue_checks = QueueChecks("v")
    for name, ready, consumers in (("a", 5, False), ("b", 9, False), ("c", 99, True), ("d", 0, False)):
        queue_checks.look(name, "running", ready, consumers)

    found, = queue_checks.findings()

    assert (found.level, found.vhost, found.name) == (WARNING, "v", "b") and found.text.startswith("2 hold")


@pytest.mark.parametrize("days, level", [(-1, BAD), (0, BAD), (14, WARNING), (14.5, None)])
def test_a_certificate_ends_soon_or_has_ended(days, level):
    found = checks.of_certificate(days)

    assert (found and found.level) == level


def test_a_node_that_is_well_has_no_findings():
    node = {
        "name": "n", "disk_free": 1 << 40, "fd_used": 10, "fd_total": 65536, "mem_used": 1, "mem_limit": 100,
        "failed_jobs": {}}

    assert list(checks.of_node(node)) == []
    assert {one.level for one in checks.of_node({**node, "mem_alarm": True, "fd_used": 60000})} == {
        BAD, WARNING}


@pytest.mark.parametrize("paths, named", [
    ((), "wrong place"), (("/d/a",), "wrong place: /d/a"),
    (("/d/a", "/d/b", "/d/c", "/d/e"), "wrong place: /d/a, /d/b, /d/c, ..."),
])
def test_files_kept_of_damage_are_named_as_they_are(paths, named):
    (found,) = checks.of_damage(0, len(paths) or 1, paths)

    assert found.text.endswith(named)
