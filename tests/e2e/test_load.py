"""The stress and the soak run, and would say so if something were lost, came back or grew; the long runs are an operator's and a release's."""
import json
import os
import subprocess
import sys
from types import SimpleNamespace

import pytest

from load import soak
from load.ledger import Ledger, body_of
from tests.support.command import ROOT


def run(module, *arguments):
    """A load's exit code and what it printed as JSON."""
    finished = subprocess.run(
        [sys.executable, "-m", f"load.{module}", *arguments], cwd=ROOT, capture_output=True, text=True, timeout=280,
        env={**os.environ, "PYTHONPATH": str(ROOT)})
    assert finished.stdout, finished.stderr
    return finished.returncode, json.loads(finished.stdout)


@pytest.mark.long
@pytest.mark.timeout(300)
@pytest.mark.parametrize("seed", [1, 2])
def test_stress_accounts_for_every_message(seed):
    code, figures = run("stress", "--seed", str(seed), "--minutes", "0.5")

    assert (code, figures["breaches"], figures["odd"]) == (0, [], []), figures
    assert figures["kills"] > 1 and figures["confirmed"] > 100


@pytest.mark.long
@pytest.mark.timeout(300)
def test_soak_of_twenty_seconds_runs_and_draws(tmp_path):
    """What grows in so short a time are an interpreter's caches: descriptors, maps and greenlets must not, memory may."""
    code, figures = run("soak", "--minutes", "0.33", "--round-s", "1.5", "--warm-up", "0.1", "--most", "100000", "--out", str(tmp_path))

    assert code == 0 and figures["failures"] == [], figures
    assert (tmp_path / "soak.csv").read_text().startswith("seconds,rss_mb")
    assert "<polyline" in (tmp_path / "soak.svg").read_text()


def samples(**columns):
    return [dict(zip(("seconds", *columns), values)) for values in zip(range(0, 3600, 360), *columns.values())]


def test_soak_finds_what_grows():
    options = SimpleNamespace(minutes=60, warm_up=0.0, most=1.0)
    still = {name: [50.0] * 10 for name in ("rss_mb", "descriptors", "maps", "greenlets")}

    assert soak.judge(samples(**still), options) == []
    assert "resident memory grows by 10.00 MB an hour" in soak.judge(samples(**{**still, "rss_mb": list(range(10))}), options)
    assert soak.judge(samples(**{**still, "rss_mb": [50.0] * 9 + [90.0]}), options) == []
    assert soak.judge(samples(**{**still, "descriptors": [10 + 2 * n for n in range(10)]}), options) == ["descriptors grow from 14 to 24"]


def ledger():
    """A ledger with one confirmed message in queue q, delivered once."""
    book = Ledger("dead", ["q"])
    number = book.sent(["q"])
    book.confirmed([number])
    assert book.delivered("c", "q", body_of(number, 10), False, 0) == number
    return book, number


def test_the_ledger_finds_what_is_lost():
    book, _ = ledger()

    book.close({"q": [], "dead": []})

    assert book.breaches == ["q: confirmed and lost: [0] of 1"]


def test_the_ledger_finds_what_comes_back():
    book, number = ledger()
    book.will_settle("q", number)
    book.settled("q", [number])

    book.close({"q": [number], "dead": []})

    assert book.breaches == ["q: acked and back: [0] of 1"]


def test_the_ledger_finds_what_is_with_two_unmarked_or_changed():
    book, number = ledger()

    book.delivered("d", "q", body_of(number, 10), False, 0)
    book.delivered("e", "q", b"0:10:xxxxxxxxxx", True, 0)

    assert [line.split(": ", 1)[1] for line in book.breaches] == [
        "0 is delivered again and not marked", "0 is with d and c at once", "the body of 0 has changed", "0 is with e and d at once"]


def test_the_ledger_finds_a_rejected_message_that_is_nowhere():
    book, number = ledger()
    book.will_settle("q", number, rejected=True)

    book.close({"q": [], "dead": []})

    assert book.breaches == ["q: 0 was rejected and is neither there nor among the dead letters"]


def test_the_ledger_is_content_with_what_was_purged_or_is_in_place():
    book, number = ledger()
    other = book.sent(["p"])
    book.confirmed([other])
    book.emptying("p")
    book.emptied("p")

    figures = book.close({"q": [number], "p": [], "dead": []})

    assert book.breaches == [] and figures["in place"] == 1
