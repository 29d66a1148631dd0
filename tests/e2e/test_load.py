"""The stress and the soak run, and would say so if something were lost, came back or grew; the long runs are
an operator's and a release's.
"""
import ctypes
import gc
import json
import mmap
import os
import subprocess
import sys
from random import Random
from types import SimpleNamespace

import pika
import pytest

from gomq_py.client.errors import ChannelClosed
from load import churning, soak
from load.ledger import Ledger, body_of
from tests.support.command import ROOT
from tests.support.waiting import in_time


def run(module, *arguments):
    """A load's exit code and what it printed as JSON."""
    finished = subprocess.run(
        [sys.executable, "-m", f"load.{module}", *arguments], cwd=ROOT, capture_output=True, text=True,
        timeout=in_time(280), env={**os.environ, "PYTHONPATH": str(ROOT)})
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
    """What grows in so short a time are an interpreter's caches and the store's spare files: other
    descriptors, maps and greenlets must not.
    """
    code, figures = run(
        "soak", "--minutes", "0.33", "--round-s", "1.5", "--warm-up", "0.1", "--most", "100000", "--out",
        str(tmp_path),
    )

    assert (code, figures["findings"], figures["failures"]) == (0, [], [])
    assert (tmp_path / "soak.csv").read_text().startswith("seconds,rss_mb")
    assert "<polyline" in (tmp_path / "soak.svg").read_text()


def samples(**columns):
    return [
        dict(zip(("seconds", *columns), values)) for values in zip(range(0, 3600, 120), *columns.values())
    ]


STILL = {
    name: [50.0] * 30 for name in (
        "rss_mb", "segments_mb", "anonymous_mb", "held_mb", "descriptors", "maps", "store_files",
        "threads", "greenlets",
    )
} | {"turns": [1000] * 30}
AN_HOUR = SimpleNamespace(minutes=60, warm_up=0.0, most=1.0, seed=1)


def test_soak_finds_what_grows(monkeypatch):
    monkeypatch.setattr(soak, "RESAMPLES", 80)

    def judged(**columns):
        return soak.judge(samples(**{**STILL, **columns}), AN_HOUR)

    assert judged() == []
    assert judged(rss_mb=list(range(30))) == [
        "resident memory without segments grows by 30.00 MB an hour (30.00 to 30.00 with 95% confidence)"
    ]
    assert judged(anonymous_mb=list(range(30))) == [
        "anonymous memory grows by 30.00 MB an hour (30.00 to 30.00 with 95% confidence)"
    ]
    assert judged(held_mb=[20 + number for number in range(30)]) == [
        "allocated memory grows by 30.00 MB an hour (30.00 to 30.00 with 95% confidence)"
    ]
    assert judged(threads=[13 + n for n in range(30)]) == ["threads grow from 20 to 35"]
    assert judged(anonymous_mb=[70.0] * 30) == [
        "20.0 MB are free in the pages of 50.0 MB that are allocated"]
    assert soak.judge(samples(**{**STILL, "anonymous_mb": [70.0] * 30})[:19], AN_HOUR) == []
    assert judged(rss_mb=[50.0] * 29 + [90.0]) == []
    assert judged(descriptors=[10 + n for n in range(30)]) == ["descriptors grow from 17 to 32"]
    assert judged(store_files=list(range(30))) == [
        "the store's open files and maps grow by 30 an hour (30 to 30 with 95% confidence)"
    ]


def test_soak_of_a_slow_machine_is_judged_from_the_first_turns_on():
    turns = [soak.FIRST_TURNS * number // 10 for number in range(30)]
    found = samples(**{**STILL, "turns": turns, "maps": [500 + 10 * min(number, 10) for number in range(30)]})

    assert soak.judge(found, AN_HOUR) == []
    assert soak.judged(found, AN_HOUR) == found[10:]


def test_soak_asks_more_of_what_is_allocated_than_of_its_pages(monkeypatch):
    """Of pages that come and go by many it cannot be shown in 20 minutes that they do not grow."""
    monkeypatch.setattr(soak, "RESAMPLES", 80)
    pages = [sample["anonymous_mb"] for sample in noisy(5, 0.0, 0.4, 1)]
    short = SimpleNamespace(minutes=20, warm_up=0.0, most=1.0, seed=1)

    def judged(**columns):
        found = samples(**{**STILL, **columns})
        return soak.judge([{**sample, "seconds": sample["seconds"] / 3} for sample in found], short)

    assert judged(anonymous_mb=pages, rss_mb=pages) == []
    assert [finding.partition(":")[0] for finding in judged(held_mb=pages)] == [
        "allocated memory may grow by more than it should; it takes more --minutes to tell"]


def test_soak_lets_the_number_of_spare_files_vary():
    random = Random(7)

    assert soak.judge(
        samples(**{**STILL, "store_files": [random.randrange(20, 68) for _ in range(30)]}), AN_HOUR
    ) == []


def noisy(minutes, growth, noise, seed):
    """A look every ten seconds at memory that grows by so many MB an hour,
    under noise that lasts for some looks.
    """
    random, found, held = Random(seed), [], 0.0
    for number in range(6 * minutes):
        held = 0.7 * held + random.gauss(0, noise)
        found.append({"seconds": 10 * number, "anonymous_mb": 50 + growth * number / 360 + held})
    return found


@pytest.mark.parametrize("growth", [0.0, 3.0])
def test_soak_knows_the_error_of_what_it_says(growth, monkeypatch):
    """Of ten soaks of half an hour nearly all have the true growth in their interval, and none of the
    intervals is too wide to be of use.
    """
    monkeypatch.setattr(soak, "RESAMPLES", 80)
    monkeypatch.setattr(soak, "PAIRS_FROM", 20)

    found = [soak.growth(noisy(30, growth, 0.05, seed), "anonymous_mb") for seed in range(10)]

    assert sum(low <= growth <= high for low, _, high in found) >= 8
    assert max(high - low for low, _, high in found) < 1.0


def test_soak_that_is_too_short_says_so():
    still = {"segments_mb": 0, "descriptors": 9, "maps": 9, "threads": 9, "greenlets": 9, "turns": 1000}
    few = [
        {**sample, **still, "rss_mb": sample["anonymous_mb"], "held_mb": sample["anonymous_mb"]}
        for sample in noisy(3, 0.0, 0.3, 1)
    ]

    findings = soak.judge(few, SimpleNamespace(minutes=3, warm_up=0.0, most=1.0, seed=1))

    assert [finding.partition(":")[0] for finding in findings] == [
        "allocated memory may grow by more than it should; it takes more --minutes to tell"]


def test_segment_files_that_are_kept_are_no_growth():
    """More of them towards the end by chance, each with half a MB of pages."""
    files = [40 + (number * 7) % 11 + number // 30 for number in range(100)]
    found = [
        {"seconds": 10 * number, "rss_mb": 60 + 0.5 * count, "segments_mb": 0.5 * count}
        for number, count in enumerate(files)
    ]

    assert all(abs(value) < 0.01 for value in soak.growth(found, "rss_mb"))


ALLOCATING = """
import json
from load.probed import allocated

looks = [allocated()]
blocks = [bytes(400) for _ in range(10_000)]
looks.append(allocated())
large = bytes(5_000_000)
looks.append(allocated())
del blocks, large
looks.append(allocated())
print(json.dumps(looks))
"""


@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "mallinfo2"), reason="glibc tells of its heap")
@pytest.mark.parametrize("allocator", ["pymalloc", "malloc"])
def test_the_probe_tells_what_is_allocated(allocator):
    told = subprocess.run(
        [sys.executable, "-c", ALLOCATING], cwd=ROOT, capture_output=True, check=True, timeout=in_time(60),
        env={**os.environ, "PYTHONPATH": str(ROOT), "PYTHONMALLOC": allocator})

    looks = json.loads(told.stdout)
    small = 10_000 * (448 + 8)  # a block of each and its place in the list
    grown = [after - before for before, after in zip(looks, looks[1:])]
    for octets, expected in zip(grown, (small, 5_000_000, -5_000_000 - small)):
        assert abs(octets - expected) < 100_000, grown
    assert told.stderr == b""


def test_files_of_the_store_are_told_from_other_memory_and_descriptors(tmp_path):
    path = tmp_path / "data" / "segment"
    path.parent.mkdir()
    path.write_bytes(bytes(1 << 20))
    gc.collect()  # what earlier tests left must not be closed in the middle
    others, none, before = soak.files_mapped(os.getpid(), path.parent)
    descriptors, _ = soak.descriptors_of(os.getpid(), path.parent)
    private = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
    with path.open("r+b") as file, mmap.mmap(file.fileno(), 0) as mapped, mmap.mmap(
        -1, 1 << 20, flags=private
    ) as anonymous:
        mapped[:] = anonymous[:] = b"x" * (1 << 20)

        assert (none, before) == (0, 0)
        assert soak.files_mapped(os.getpid(), path.parent) == (others, 1, 1 << 20)
        assert soak.files_mapped(os.getpid(), tmp_path / "dat") == (others + 1, 0, 0)
        # the file's own, and the map's duplicate of it
        assert soak.descriptors_of(os.getpid(), path.parent) == (descriptors, 2)


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


def test_the_ledger_finds_what_was_rejected_and_is_nowhere():
    book, number = ledger()
    book.will_settle("q", number, rejected=True)

    book.close({"q": [], "dead": []})

    assert book.breaches == ["q: 0 was rejected and is neither there nor among the dead letters"]


def test_a_message_may_be_acked_after_a_reject_that_was_lost():
    book, number = ledger()
    book.will_settle("q", number, rejected=True)
    book.broker_died(1)
    book.delivered("c", "q", body_of(number, 10), True, 1)
    book.will_settle("q", number)

    book.close({"q": [], "dead": []})

    assert book.breaches == []


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
        "0 is delivered again and not marked", "0 is with d and c at once", "the body of 0 has changed",
        "0 is with e and d at once"]


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


@pytest.fixture
def broker(gomq):
    return gomq


def test_churn_leaves_no_exchange_behind_whose_queue_expires_in_the_middle(broker, channel):
    """Some hundred an hour stayed, and looked like a leak of the broker's."""
    made = []

    class Expiring(churning.Queues):
        KINDS = ({"x-expires": 100},)

        def _use(self, name, arguments):
            made.append(f"{name}.x")
            channel.exchange_declare(made[-1])
            raise ChannelClosed(404, "NOT_FOUND", 0, 0)

    Expiring(broker.amqp_url, None, Random(1)).turn()

    with pytest.raises(pika.exceptions.ChannelClosedByBroker, match="no exchange"):
        channel.exchange_declare(made[0], passive=True)
