"""``python -m load.soak``: minutes of churn on a broker, and whether it keeps anything of it.

Connections, channels, queues, consumers, transactions, HTTP scrapes and MQTT clients, in rounds; after
each round everything is closed, and the broker at rest is looked at, without its cyclic garbage and free
heap: what it has allocated, resident and anonymous memory, descriptors, maps of files, threads, greenlets,
Python objects, and how late its loop was. The samples go into ``soak.csv`` and ``soak.svg``. Exit code 1 when
memory at rest grows by more than ``--most`` MB an hour after the warm-up, or when that cannot be told; when
descriptors, maps, threads, greenlets or the store's open files grow, or when a load failed.

Memory is judged together with the error of its growth, and twice. What is allocated (``held_mb``: blocks that
Python's allocator and the C library's have given out) must be shown not to grow by more. The pages of the
process must not be shown to grow by more, and no more than SPARE_SHARE of what is allocated may be free in
them. They vary by some 0.02 MB between two looks; but Python takes them by arenas of a MiB and gives an arena
back when the last block in it goes: one such step, up or down, is 4 MB an hour in 14 minutes, and is nothing
that the broker keeps. Of resident memory the pages of segment files are taken away, which go up and down with
the number of files that happen to be kept for use again: that number is bounded, and judged by itself, with
its error too. The slope is the median of all slopes between two looks
(Theil and Sen); its error comes from taking blocks of the residuals again and again (a moving block
bootstrap), because a look resembles the one before it.
"""
import argparse
import contextlib
import csv
import json
import os
import queue
import re
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from random import Random
from statistics import median

from gomq_py.perf.process import memory_octets
from load.brokers import ROOT
from load.churning import LOADS

COLUMNS = (
    "seconds", "rss_mb", "segments_mb", "anonymous_mb", "held_mb", "descriptors", "maps", "store_files",
    "threads", "greenlets", "objects", "lag_ms", "mean_lag_ms", "turns",
)
# Of a test of seconds: an interpreter's first minutes still fill its caches and arenas.
LEAST_SAMPLES = 4
# The warm-up takes at least so many turns of all loads: some of them are the first of their kind, for which
# the broker imports modules. A slow machine may need longer for them than the warm-up's time.
FIRST_TURNS = 280
# What is judged, how it is called, what is taken away from it, and whether it is pages, which come and go by
# many.
MEMORY = {
    "held_mb": ("allocated memory", None, False),
    "rss_mb": ("resident memory without segments", "segments_mb", True),
    "anonymous_mb": ("anonymous memory", None, True),
}
# Of what is allocated, free in its pages: a tenth in soaks, 18 % when each thread had a heap of its own.
SPARE_SHARE = 0.2
# What is the same at each rest, but for so many.
COUNTS = ("descriptors", "maps", "threads", "greenlets")
SPARE = 3
# The number of the store's files goes up and down by two dozen, and an arena of a MiB is much of what a young
# broker has: of fewer looks, a rise of the files or a large share of free pages is by chance.
LEAST_LOOKS = 20
CONFIDENCE = 0.95
RESAMPLES = 400
PAIRS_FROM = 60
SETTLE_S = 2.5
REST_S = 20  # for whatever a machine with more to do leaves undone in that time
BOOT_S = 60
SEGMENT_BYTES = 1 << 20


class Broker:
    """A broker with the probe inside. ``probe`` is what it said last."""

    def __init__(self, folder):
        self._data = Path(folder, "data")
        configuration = Path(folder, "gomq.ini")
        configuration.write_text(f"[main]\nsegment_size = {SEGMENT_BYTES}\n")
        command = [
            sys.executable, "-m", "load.probed", "--config", str(configuration), "--data-dir",
            str(self._data), "--bind", "127.0.0.1",
            "--port", "0", "--mqtt-port", "0", "--http-port", "0", "--metrics-http-port", "-1",
        ]
        self._log = open(Path(folder, "log"), "w+b")  # noqa: SIM115 - as long as the process
        self.process = subprocess.Popen(
            command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._log,
            env={**os.environ, "PYTHONPATH": str(ROOT)})
        self._at_rest = queue.Queue()
        self._lags = []
        threading.Thread(target=self._listen, daemon=True).start()
        deadline = time.monotonic() + BOOT_S
        while (
            b"ready after" not in self.text() and time.monotonic() < deadline and self.process.poll() is None
        ):
            time.sleep(0.05)
        ports = dict(re.findall(r"listening (\w+) 127.0.0.1:([0-9]+)", self.text().decode(errors="replace")))
        self.uri = f"amqp://guest:guest@127.0.0.1:{ports['amqp']}/%2f"
        self.mqtt_uri = f"mqtt://guest:guest@127.0.0.1:{ports['mqtt']}"
        self.management = ("127.0.0.1", int(ports["http"])) if "http" in ports else None
        self._own_sockets = self._sockets()

    def wait_for_rest(self):
        """Until it has closed the connections that its clients have left, or for long enough."""
        deadline = time.monotonic() + REST_S
        while (
            self.process.poll() is None and self._sockets() > self._own_sockets
            and time.monotonic() < deadline
        ):
            time.sleep(0.1)

    def _sockets(self):
        return sum(link.startswith("socket:") for link in links_of(self.process.pid))

    def text(self):
        """Its log."""
        self._log.seek(0)
        return self._log.read()

    def _listen(self):
        for line in self.process.stdout:
            said = json.loads(line)
            if "objects" in said:
                self._at_rest.put(said)
            else:
                self._lags.append((said["lag_ms"], said["mean_lag_ms"]))

    def sample(self):
        """What it has and holds just now, and how late it was since the last sample."""
        pid = self.process.pid
        self.process.stdin.write(b"\n")
        self.process.stdin.flush()
        inside = self._at_rest.get(timeout=BOOT_S)
        memory = memory_octets(pid)
        lags, self._lags = self._lags or [(0, 0)], []
        maps, store_maps, segments = files_mapped(pid, self._data)
        descriptors, store_descriptors = descriptors_of(pid, self._data)
        return {
            "rss_mb": round(memory["rss"] / 1e6, 3), "segments_mb": round(segments / 1e6, 3),
            "anonymous_mb": round(memory["anonymous"] / 1e6, 3),
            "held_mb": round((inside["held"] or memory["anonymous"]) / 1e6, 3),
            "threads": len(os.listdir(f"/proc/{pid}/task")),
            "maps": maps, "descriptors": descriptors, "store_files": store_maps + store_descriptors,
            "greenlets": inside["greenlets"], "objects": inside["objects"],
            "types": inside["types"],
            "lag_ms": max(worst for worst, _ in lags),
            "mean_lag_ms": round(sum(mean for _, mean in lags) / len(lags), 3),
        }

    def stop(self):
        """Stop it in order; returns the exit code."""
        self.process.terminate()
        return self.process.wait(BOOT_S)


def files_mapped(pid, folder):
    """(parts of other files that a process has mapped, of files in a folder, the resident octets of these).

    In how many pieces its anonymous memory lies is the allocator's business; its size is judged.
    """
    others = count = octets = 0
    ours = False
    with open(f"/proc/{pid}/smaps", encoding="utf-8", errors="replace") as lines:
        for line in lines:
            words = line.split(None, 5)
            if not words[0].endswith(":"):
                path = words[5] if len(words) > 5 else ""
                ours = path.startswith(f"{folder}/")
                count += ours
                others += path.startswith("/") and not ours
            elif ours and words[0] == "Rss:":
                octets += int(words[1]) * 1024
    return others, count, octets


def descriptors_of(pid, folder):
    """(a process's descriptors of anything else, of files in a folder)."""
    links = links_of(pid)
    ours = sum(link.startswith(f"{folder}/") for link in links)
    return len(links) - ours, ours


def links_of(pid):
    """What a process's descriptors are, as the system names it; of one that has gone nothing."""
    links = []
    with contextlib.suppress(FileNotFoundError):
        for number in os.listdir(f"/proc/{pid}/fd"):
            with contextlib.suppress(FileNotFoundError):  # closed meanwhile
                links.append(os.readlink(f"/proc/{pid}/fd/{number}"))
    return links


def main(arguments=None):
    options = _options(arguments)
    with tempfile.TemporaryDirectory(prefix="gomq-soak-") as folder:
        broker = Broker(folder)
        samples, failures = run(broker, options)
        code = broker.stop()
        text = broker.text().decode(errors="replace")
    if code:
        failures.append(f"the broker left with {code}")
    failures += [line for line in text.splitlines() if " error " in line or "Traceback" in line][:5]
    findings = judge(samples, options)
    target = Path(options.out)
    target.mkdir(parents=True, exist_ok=True)
    write_csv(target / "soak.csv", samples)
    (target / "soak.svg").write_text(plot(samples), encoding="utf-8")
    figures = summary(samples, options)
    print(json.dumps({**figures, "findings": findings, "failures": failures}, indent=1))
    return 1 if findings or failures else 0


def _options(arguments):
    parser = argparse.ArgumentParser(prog="python -m load.soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=20)
    parser.add_argument(
        "--round-s", type=float, default=8, help="seconds of churn between two looks (%(default)s)"
    )
    parser.add_argument(
        "--warm-up", type=float, default=0.3, help="share of the time that is not judged (%(default)s)"
    )
    parser.add_argument(
        "--most", type=float, default=1.0, help="MB an hour that memory may grow (%(default)s)"
    )
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--out", default=str(ROOT / "build" / "soak"), help="folder for soak.csv and soak.svg"
    )
    return parser.parse_args(arguments)


def run(broker, options):
    """(samples at rest, failures of loads)."""
    failures, samples = [], []
    began = time.monotonic()
    loads = [
        load(broker.uri, broker.management, Random(f"{options.seed}.{number}"), broker.mqtt_uri)
        for number, load in enumerate(LOADS)
    ]
    # On a slow machine the rounds of a short soak would be too few to be judged.
    while (
        (time.monotonic() - began < options.minutes * 60 or len(judged(samples, options)) < LEAST_SAMPLES)
        and not failures and broker.process.poll() is None
    ):
        stop_at = time.monotonic() + options.round_s
        threads = [threading.Thread(target=_turns, args=(load, stop_at, failures)) for load in loads]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        time.sleep(SETTLE_S)
        broker.wait_for_rest()
        if broker.process.poll() is None:
            turns = sum(load.count for load in loads)
            samples.append({"seconds": round(time.monotonic() - began, 1), **broker.sample(), "turns": turns})
    return samples, failures


def _turns(load, stop_at, failures):
    while time.monotonic() < stop_at:
        try:
            load.turn()
        except Exception as error:
            failures.append(f"{type(load).__name__}: {type(error).__name__}: {error}")
            return
        load.count += 1


def judged(samples, options):
    """The samples after the warm-up."""
    first = options.warm_up * options.minutes * 60
    return [
        sample for sample in samples if sample["seconds"] >= first and sample["turns"] >= FIRST_TURNS]


def judge(samples, options):
    """What grew, as lines."""
    late = judged(samples, options)
    if len(late) < LEAST_SAMPLES:
        return [f"only {len(late)} samples after the warm-up"]
    findings = []
    for name, (what, _, is_paged) in MEMORY.items():
        low, rate, high = growth(late, name, options.seed)
        if (low if is_paged else high) > options.most:
            told = (
                "grows by" if low > options.most
                else "may grow by more than it should; it takes more --minutes to tell:"
            )
            findings.append(
                f"{what} {told} {rate:.2f} MB an hour ({low:.2f} to {high:.2f} with "
                f"{CONFIDENCE:.0%} confidence)"
            )
    held, anonymous = (median(sample[name] for sample in late[-LEAST_SAMPLES:])
                       for name in ("held_mb", "anonymous_mb"))
    if len(late) >= LEAST_LOOKS and anonymous > (1 + SPARE_SHARE) * held:
        findings.append(
            f"{anonymous - held:.1f} MB are free in the pages of {held:.1f} MB that are allocated")
    for name in COUNTS:
        half = len(late) // 2
        before, after = (sorted(sample[name] for sample in part) for part in (late[:half], late[half:]))
        if after[len(after) // 2] > before[len(before) // 2] + SPARE:
            findings.append(f"{name} grow from {before[len(before) // 2]} to {after[len(after) // 2]}")
    if len(late) >= LEAST_LOOKS:
        low, rate, high = growth(late, "store_files", options.seed)
        if low * (late[-1]["seconds"] - late[0]["seconds"]) / 3600 > SPARE:
            findings.append(
                f"the store's open files and maps grow by {rate:.0f} an hour ({low:.0f} to {high:.0f} with "
                f"{CONFIDENCE:.0%} confidence)"
            )
    return findings


def growth(samples, name, seed=1):
    """(low, slope, high): growth an hour, and the interval that holds it with CONFIDENCE.

    ``samples`` are in the order of their times.
    """
    hours = [sample["seconds"] / 3600 for sample in samples]
    besides = MEMORY[name][1] if name in MEMORY else None
    values = [sample[name] - (sample[besides] if besides else 0.0) for sample in samples]
    middle = slope(hours, values)
    residuals = [value - middle * hour for hour, value in zip(hours, values)]
    random = Random(seed)
    slopes = sorted(middle + slope(hours, blocks(residuals, random)) for _ in range(RESAMPLES))
    cut = int(RESAMPLES * (1 - CONFIDENCE) / 2)
    return slopes[cut], middle, slopes[-1 - cut]


def slope(xs, ys):
    """The median of the slopes between all pairs (Theil and Sen), which no single jump can move; at most
    PAIRS_FROM points are paired with all.
    """
    step = max(1, len(xs) // PAIRS_FROM)
    points = list(zip(xs, ys))
    return median(
        (y - y0) / (x - x0)
        for number, (x0, y0) in enumerate(points[::step]) for x, y in points[number * step + 1:]
    )


def blocks(residuals, random):
    """As many residuals, taken as blocks of neighbours from anywhere."""
    size = max(1, round(len(residuals) ** 0.5))
    taken = []
    while len(taken) < len(residuals):
        start = random.randrange(len(residuals) - size + 1)
        taken += residuals[start:start + size]
    return taken[:len(residuals)]


def summary(samples, options):
    """The figures for a note."""
    late = judged(samples, options) or samples
    first, last = late[0], late[-1]
    rates = (
        {name: [round(value, 2) for value in growth(late, name, options.seed)] for name in MEMORY}
        if len(late) > 1 else {}
    )
    return {
        "minutes": options.minutes, "rounds": len(samples), "turns": last["turns"],
        "growth_an_hour_low_middle_high": rates,
        **{name: [first[name], last[name]] for name in COLUMNS[1:-3]},
        "types": grown(late), "worst_lag_ms": max(sample["lag_ms"] for sample in samples),
        "mean_lag_ms": round(sum(s["mean_lag_ms"] for s in samples) / len(samples), 2),
    }


def grown(samples):
    """The types with the most additional objects at the end: what a leak is made of."""
    first, last = samples[0]["types"], samples[-1]["types"]
    more = sorted(((count - first.get(name, 0), name) for name, count in last.items()), reverse=True)
    return {name: count for count, name in more[:8] if count > 0}


def write_csv(path, samples):
    """One line per look."""
    with open(path, "w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS, extrasaction="ignore")
        writer.writeheader()
        writer.writerows(samples)


def plot(samples, width=900, height=110):
    """The columns over time, one below the other, as SVG."""
    names = COLUMNS[1:-1]
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height * len(names)}" '
        'font-family="sans-serif" font-size="12">',
    ]
    last = max((sample["seconds"] for sample in samples), default=1) or 1
    for number, name in enumerate(names):
        values = [sample[name] for sample in samples] or [0]
        low, high = min(values), max(values)
        top, span = number * height, (high - low) or 1
        points = " ".join(
            f'{80 + sample["seconds"] / last * (width - 100):.1f},'
            f"{top + height - 20 - (sample[name] - low) / span * (height - 45):.1f}"
            for sample in samples)
        parts.append(
            f'<text x="5" y="{top + 15}">{name}</text><text x="5" y="{top + 35}" fill="#777">{high:g}</text>'
        )
        parts.append(f'<text x="5" y="{top + height - 18}" fill="#777">{low:g}</text>')
        parts.append(f'<polyline fill="none" stroke="#1f6feb" stroke-width="1.5" points="{points}"/>')
    return "".join([*parts, "</svg>\n"])


if __name__ == "__main__":
    sys.exit(main())
