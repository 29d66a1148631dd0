"""Running seeds: children side by side, what they were together, and what is said of twins."""
import os
import signal

from tests.simulation.children import in_children
from tests.simulation.figures import BEGINS, COLUMNS, ENDS, MANY, PROMISES, Figures


def test_children_run_side_by_side_and_each_is_told_with_what_came_of_it():
    """The first waits for a pipe that the last one writes to."""
    reads, writes = os.pipe()

    def wait_or_write(item):
        return os.read(reads, 1).decode() if item == "waits" else os.write(writes, b"x")

    try:
        assert list(in_children(2, wait_or_write, ["waits", "writes"])) in (
            [("writes", 1), ("waits", "x")], [("waits", "x"), ("writes", 1)])
    finally:
        os.close(reads)
        os.close(writes)


def test_child_that_dies_is_told_and_the_others_go_on():
    def die_at_two(item):
        return os.kill(os.getpid(), signal.SIGKILL) if item == 2 else item

    assert list(in_children(1, die_at_two, [1, 2, 3])) == [(1, 1), (2, None), (3, 3)]


def test_child_that_goes_round_in_circles_comes_to_an_end():
    def circle(_):
        while True:
            pass

    assert list(in_children(1, circle, [1], limit_s=1)) == [(1, None)]


def some(seeds, **promises):
    """Figures of so many seeds."""
    figures = Figures()
    counts = {"seeds": seeds, "virtual s": 5400, "events": 1234567}
    figures.add({"counts": counts, "faults": {"kill": 3}, "promises": promises})
    figures.add({"counts": {"seeds": 0}, "faults": {"kill": 1}, "promises": promises})
    return figures


def test_figures_of_seeds_add_up_and_are_said():
    said = str(some(7, accepted=2)).splitlines()

    assert said[0].startswith("7 seeds, 1.5 virtual hours, 1 234 567 events, 0 boots, ")
    assert said[1:3] == ["faults: 4 kill", "exercised: 4 accepted"]
    assert said[3:] == [f"never exercised: {promise}" for promise in PROMISES if promise != "accepted"]


def test_promise_that_many_seeds_never_exercise_is_a_finding():
    whole = dict.fromkeys(PROMISES, 1)

    assert [some(MANY, **whole).is_lacking(), some(MANY - 1).is_lacking(), some(MANY).is_lacking()] == [
        False, False, True]


def test_figures_are_put_into_the_page_in_place_of_earlier_ones(tmp_path):
    page = tmp_path / "page.md"
    page.write_text(f"before\n{BEGINS}{ENDS}behind\n", encoding="utf-8")

    for seeds in (10, 20000):
        some(seeds).write(page)

    before, begins, head, rule, row, ends, behind = page.read_text(encoding="utf-8").splitlines(keepends=True)
    assert (before, begins, ends, behind) == ("before\n", BEGINS, ENDS, "behind\n")
    assert head.count("|") == rule.count("|") == row.count("|") == len(COLUMNS) + 2
    assert row.split("|")[2:5] == [" 20 000 ", " 1.5 ", " 1 234 567 "]
