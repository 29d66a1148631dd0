"""Figures: what seeds were all together, and how often each promise could have been broken."""
import re
import subprocess
from collections import Counter
from pathlib import Path

HERE = Path(__file__).parent
PAGE = HERE.parents[1] / "docs" / "promises.md"
BEGINS, ENDS = "<!-- figures of the simulation -->\n", "<!-- end of the figures -->\n"
# Of the page's table, behind the commit.
COLUMNS = ("seeds", "virtual hours", "events", "boots", "kills", "power cuts", "failed calls", "confirmed",
           "lost", "findings")
MANY = 1000  # seeds, among which each promise has to be exercised
# Each word that a ledger counts by, as its source has them.
PROMISES = sorted({
    word for path in HERE.glob("*.py") if not path.name.startswith("test_")
    for words in re.findall(r"exercised\[([^\]]+)\]", path.read_text(encoding="utf-8"))
    for word in re.findall(r'"([^"]+)"', words)})


def of_seed(scenario):
    """Of a Scenario that has run: ``counts``, ``faults`` by their kind, ``promises``."""
    world = scenario.world
    promises = sum((ledger.exercised for ledger in scenario.ledgers), scenario.exercised)
    counts = world.counts + Counter({
        "seeds": 1, "events": world.events, "virtual s": int(world.now_s),
        "confirmed": promises["accepted"], "findings": len(world.findings)})
    return {"counts": counts, "faults": world.faults, "promises": promises}


class Figures:
    """Of all seeds so far."""

    def __init__(self):
        self.counts, self.faults, self.promises = Counter(), Counter(), Counter()

    def add(self, figures):
        """Those of a seed, from of_seed()."""
        for name, counter in vars(self).items():
            counter.update(figures[name])

    def never_exercised(self):
        """Promises that no seed could have broken."""
        return [promise for promise in PROMISES if not self.promises[promise]]

    def is_lacking(self):
        """Whether some promise was never exercised, though the seeds are many enough."""
        return self.counts["seeds"] >= MANY and bool(self.never_exercised())

    def cells(self):
        """What stands below COLUMNS, as text."""
        counts = self.counts
        hours = f"{counts['virtual s'] / 3600:.1f}"
        return [hours if name == "virtual hours" else grouped(counts[name]) for name in COLUMNS]

    def __str__(self):
        lines = [", ".join(f"{value} {name}" for name, value in zip(COLUMNS, self.cells())),
                 "faults: " + listed(self.faults), "exercised: " + listed(self.promises)]
        lines += [f"never exercised: {promise}" for promise in self.never_exercised()]
        return "\n".join(lines)

    def write(self, page=PAGE):
        """Put them into the page, in place of those that are there."""
        before, _, rest = page.read_text(encoding="utf-8").partition(BEGINS)
        _, _, after = rest.partition(ENDS)
        rows = ("commit", *COLUMNS), ("---", *["---:"] * len(COLUMNS)), (f"`{commit()}`", *self.cells())
        table = "".join(f"| {' | '.join(row)} |\n" for row in rows)
        page.write_text(f"{before}{BEGINS}{table}{ENDS}{after}", encoding="utf-8")


def listed(counter):
    """Its words and how often each was counted."""
    return ", ".join(f"{count} {word}" for word, count in sorted(counter.items()))


def grouped(number):
    """With a space between thousands."""
    return f"{number:,}".replace(",", " ")


def commit():
    """Of this working copy, with ``-dirty`` where it has changes."""
    described = subprocess.run(
        ["git", "describe", "--always", "--dirty", "--abbrev=10", "--exclude=*"], cwd=HERE, check=False,
        capture_output=True, text=True)
    return described.stdout.strip() or "unknown"
