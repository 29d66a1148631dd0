"""Patterns: found like the standard library finds, and given up in time."""
import fnmatch
import random
import time

import pytest
import regex

from gomq_py import patterns
from gomq_py.patterns import BUDGET_S, LEAST_BUDGET_S, TRIES, Globs, Pattern
from tests.support.clocks import StepClock


@pytest.mark.parametrize("text, name, found", [
    ("^jobs", "jobs.1", True), ("^jobs$", "jobs.1", False), ("ob", "jobs", True), ("", "", True),
    ("^(?!amq\\.).*", "amq.direct", False),
    ("^(?!amq\\.).*", "mine", True), ("^[a-f]{3}$", "abc", True), ("Ä", "Ä", True),
])
def test_pattern_is_searched_in_the_name(text, name, found):
    assert Pattern(text).found_in(name) is found


@pytest.mark.parametrize("text, name, found", [
    (r"^\Qa.b\E$", "a.b", True), (r"^\Qa.b\E$", "axb", False), (r"^\Qa.b\E+$", "a.bb", True),
    (r"^\Q(a|b", "(a|b.c", True), (r"^\Qa\.b\E$", r"a\.b", True), (r"^a\E$", "a", True),
    (r"^\\Q.\\E$", r"\Qx\E", True), (r"^[\Q^]\E]+$", "^]", True), (r"^\Q\E$", "", True),
    (r"^(?<n>a|b)\k<n>$", "bb", True), (r"^(?<n>a|b)\k<n>$", "ab", False), (r"^(?<n>a)\k'n'$", "aa", True),
    (r"^(?<n>a)\k{n}$", "aa", True), (r"^(a)\1$", "aa", True), (r"^\x{e9}$", "é", True), (r"^\h$", " ", True),
])
def test_quoted_text_and_references_are_spelled_as_in_pcre(text, name, found):
    """RabbitMQ's patterns are PCRE's."""
    assert Pattern(text).found_in(name) is found


def test_case_counts_unless_it_shall_not():
    assert not Pattern("JOBS").found_in("jobs")
    assert Pattern("JOBS", ignore_case=True).found_in("jobs")


@pytest.mark.parametrize("text", [
    "(", "a" * (patterns.LENGTH_MAX + 1), "((a{1000}){1000}){1000}", "(" * 5000, None, 7,
    "x{99999999999999999999}", "(?:" + "a?" * 480 + "){4096}", "(?:(?:" + "a?" * 470 + "){64}){64}",
])
def test_what_is_no_pattern_or_would_fill_memory_is_refused(text):
    with pytest.raises(ValueError, match="regular expression"):
        Pattern(text)


@pytest.mark.parametrize("text", [
    "a{4096}", "[a-z]{4096}", "^[a-z0-9.-]{1,255}$", "^(?:[a-z]{8}-){4}[a-z]{16}$",
])
def test_counts_of_honest_patterns_are_taken(text):
    Pattern(text)


def test_patterns_of_strangers_are_not_kept_by_the_library():
    before = len(regex._main._cache)

    for number in range(10):
        Pattern(f"never before {number}")

    assert len(regex._main._cache) == before


@pytest.mark.parametrize("text", ["^(a|aa)+$", "^(a|a)*$", "(.*a){20}$", "^(([a-z])+.)+[A-Z]([a-z])+$"])
def test_pattern_that_would_never_end_is_given_up(text):
    """The classics of catastrophic backtracking, at a name of the greatest length;
    a thousand names are over before a second is.
    """
    pattern = Pattern(text)
    began = time.process_time()

    for number in range(1000):
        try:
            pattern.found_in("a" * 250 + f"!{number}")
        except TimeoutError:
            pass

    assert time.process_time() - began < 2


class Searches(list):
    """Stands for the matcher: the budgets of its searches, the first of which run out of time,
    as many as ``out_of_time``.
    """

    def __init__(self, pattern, out_of_time, answer=None):
        super().__init__()
        pattern._search = self.search
        self.out_of_time = out_of_time
        self.answer = answer

    def search(self, name, timeout):
        self.append(timeout)
        if len(self) <= self.out_of_time:
            raise TimeoutError
        return self.answer


@pytest.mark.parametrize("answer", [object(), None], ids=["found", "not found"])
@pytest.mark.parametrize("out_of_time", [1, TRIES])
def test_time_that_other_threads_used_costs_a_pattern_nothing(out_of_time, answer):
    """The matcher's clock counts what other threads of the process use, too."""
    pattern = Pattern("^jobs", clock=StepClock(0))
    searches = Searches(pattern, out_of_time, answer)

    assert [pattern.found_in(name) for name in ("jobs.1", "jobs.2")] == [answer is not None] * 2
    assert searches == [BUDGET_S] * (out_of_time + 2) and not pattern.is_costly


def test_a_pattern_that_takes_its_time_itself_is_given_up_after_the_second_try_and_has_less_the_next_time():
    pattern = Pattern("^jobs", clock=StepClock(BUDGET_S))
    searches = Searches(pattern, 1000)

    for _ in range(10):
        with pytest.raises(TimeoutError, match=r"'\^jobs' takes too long"):
            pattern.found_in("jobs.1")

    assert pattern.is_costly
    assert searches[:4] == [BUDGET_S, BUDGET_S, BUDGET_S / 2, BUDGET_S / 2]
    assert searches[-2:] == [LEAST_BUDGET_S] * 2 and len(searches) == 20


def test_a_pattern_whose_time_others_use_for_ever_is_given_up_too():
    pattern = Pattern("^jobs", clock=StepClock(0))
    searches = Searches(pattern, 1000)

    with pytest.raises(TimeoutError):
        pattern.found_in("jobs.1")

    assert len(searches) == 1 + TRIES


@pytest.mark.parametrize("text", [".*", "^.*$"])
def test_what_matches_everything_is_not_asked(text, monkeypatch):
    pattern = Pattern(text)
    monkeypatch.setattr(pattern, "_search", None)

    assert pattern.found_in("anything") and pattern.found_in("")


@pytest.mark.parametrize("glob, matching, other", [
    ("orders", "orders", "orders.eu"), ("*", "", None), ("*", "any\nthing", None), ("a*c", "abc", "abd"),
    ("a*c", "ac", "xac"), ("a.c", "a.c", "abc"),
    ("***x", "yx", "xy"), ("(a+)+$", "(a+)+$", "aaa"), ("a*a", "aa", "a"), ("", "", "x"),
])
def test_globs_match_whole_names(glob, matching, other):
    assert Globs(["never", glob]).found_in(matching)
    assert other is None or not Globs([glob]).found_in(other)


def test_no_globs_match_nothing():
    assert not Globs([]).found_in("")


def test_globs_match_what_the_standard_librarys_do():
    chosen = random.Random(7)
    for _ in range(5000):
        glob = "".join(chosen.choices("ab**", k=chosen.randrange(8)))
        name = "".join(chosen.choices("ab", k=chosen.randrange(8)))
        assert Globs([glob]).found_in(name) == fnmatch.fnmatchcase(name, glob), (glob, name)


def test_many_stars_cost_no_time():
    globs = Globs(["*a" * 120 + "*b"] * 100)
    began = time.thread_time()

    assert not globs.found_in("a" * 254 + "c")

    assert time.thread_time() - began < 0.2
