"""Patterns: found like the standard library finds, and given up in time."""
import time

import pytest

from gomq_py import patterns
from gomq_py.patterns import BUDGET_S, SECOND_BUDGET_S, Pattern


@pytest.mark.parametrize("text, name, found", [
    ("^jobs", "jobs.1", True), ("^jobs$", "jobs.1", False), ("ob", "jobs", True), ("", "", True), ("^(?!amq\\.).*", "amq.direct", False),
    ("^(?!amq\\.).*", "mine", True), ("^[a-f]{3}$", "abc", True), ("Ä", "Ä", True),
])
def test_pattern_is_searched_in_the_name(text, name, found):
    assert Pattern(text).found_in(name) is found


def test_case_counts_unless_it_shall_not():
    assert not Pattern("JOBS").found_in("jobs")
    assert Pattern("JOBS", ignore_case=True).found_in("jobs")


@pytest.mark.parametrize("text", ["(", "a" * (patterns.LENGTH_MAX + 1), "((a{1000}){1000}){1000}", "(" * 5000, None, 7, "x{99999999999999999999}"])
def test_what_is_no_pattern_or_would_fill_memory_is_refused(text):
    with pytest.raises(ValueError, match="regular expression"):
        Pattern(text)


@pytest.mark.parametrize("text", ["^(a|aa)+$", "^(a|a)*$", "(.*a){20}$", "^(([a-z])+.)+[A-Z]([a-z])+$"])
def test_pattern_that_would_never_end_is_given_up(text):
    """The classics of catastrophic backtracking, at a name of the greatest length; a thousand names are over before a second is."""
    pattern = Pattern(text)
    began = time.process_time()

    for number in range(1000):
        try:
            pattern.found_in("a" * 250 + f"!{number}")
        except TimeoutError:
            pass

    assert time.process_time() - began < 2


@pytest.mark.parametrize("second", [object(), None], ids=["found", "not found"])
def test_a_pattern_that_ran_out_of_time_once_is_tried_again_with_more(monkeypatch, second):
    """The matcher's clock counts what other threads of the process use, too."""
    pattern, budgets = Pattern("^jobs"), []

    def search(name, timeout):
        budgets.append(timeout)
        if len(budgets) == 1:
            raise TimeoutError
        return second

    monkeypatch.setattr(pattern, "_search", search)

    assert [pattern.found_in(name) for name in ("jobs.1", "jobs.2")] == [second is not None] * 2
    assert budgets == [BUDGET_S, SECOND_BUDGET_S, BUDGET_S]


@pytest.mark.parametrize("text", [".*", "^.*$"])
def test_what_matches_everything_is_not_asked(text, monkeypatch):
    pattern = Pattern(text)
    monkeypatch.setattr(pattern, "_search", None)

    assert pattern.found_in("anything") and pattern.found_in("")
