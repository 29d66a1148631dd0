"""``make bench``: the performance table, measured on this machine and written into docs/performance.md; the
figures go into load/results.json, too, one entry for each version.

Every row is run against gomq-py and, where it is installed, RabbitMQ (those over MQTT: Mosquitto), in turn
(A B A B), each on an empty queue; the best of the rounds counts, because what neighbours on the machine take
away is not the broker's. With ``--beside FOLDER`` another checkout of gomq-py is measured, too: that is how a
change is judged.
``python -m load.bench --help`` has the options.
"""
import argparse
import os
import sys
import tempfile
import time
from functools import partial
from pathlib import Path
from statistics import median

from load import costs, management, mqtt_figures, results, veth
from load.brokers import GomqBroker, MosquittoBroker, RabbitBroker
from load.peers import ABOUT, LAVINMQ
from load.scenarios import MQTT_ROWS, ROOT, ROWS, command, measure, measure_mqtt

DOCUMENT = ROOT / "docs" / "performance.md"
MANAGEMENT = {row.key for row, *_ in management.ROWS}  # measured together
BEGIN, END = "<!-- figures: written by make bench -->", "<!-- end of figures -->"


def main(arguments=None):
    """Measure, print, write; exit code 1 when a load came back wrong (lost, disordered),
    whatever its speed.
    """
    options = _options(arguments)
    if options.veth is not None and not veth.NAMESPACE:
        return veth.run("load.bench", sys.argv[1:] if arguments is None else arguments, options.veth)
    options.load_before = os.getloadavg()[2]
    with tempfile.TemporaryDirectory(prefix="gomq-bench-") as folder:
        ours = [partial(GomqBroker, folder)]
        if options.beside:
            ours.append(partial(GomqBroker, folder, checkout=options.beside.absolute()))
        others = RabbitBroker.is_installed() and not options.alone
        makers = [*ours, *[partial(RabbitBroker, folder)] * others]
        spent, failed = _costs(makers, len(ours), options)
        managed = None
        if not options.rows or MANAGEMENT & {*options.rows}:
            managed = management.measured(folder, options.seconds, options.rounds)
        rows, versions = _measured(ROWS, [make(tls=True) for make in makers], options)
        mqtt_brokers = [make(mqtt=True) for make in ours]
        if MosquittoBroker.is_installed() and not options.alone:
            mqtt_brokers.append(MosquittoBroker(folder))
        mqtt_rows, mqtt_versions = _measured(MQTT_ROWS, mqtt_brokers, options)
        by_hand = {} if options.no_memory or options.rows else _mqtt_figures(mqtt_brokers, options)
    found = {
        "versions": versions, "mqtt_versions": mqtt_versions, "rows": {**rows, **mqtt_rows}, "costs": spent,
        "failed": failed, "management": managed, "mqtt_figures": by_hand, "seed": mqtt_figures.SEED,
    }
    earlier = results.read()
    newest = results.entry(found, options.load_before, earlier if options.add else ())
    text = document(newest, results.last(earlier, newest), options) + mqtt_document(newest["found"], options)
    print(text)
    if not (options.no_write or options.beside or veth.NAMESPACE) and (not options.rows or options.add):
        write(text, BEGIN, END)
        results.write(earlier, newest)
    every = [figures for row in found["rows"].values() for figures in row.values()]
    return 1 if failed or any(figures["faults"] for figures in every) else 0


def _measured(rows, brokers, options):
    """Best figures of each row that is asked for, by its key and the broker's name; and the versions."""
    rows = [row for row in rows if not options.rows or row.key in options.rows]
    if not rows:
        return {}, {broker.name: "" for broker in brokers}
    started = []
    try:
        for broker in brokers:
            started.append(broker.start())
        versions = {broker.name: broker.version() for broker in brokers}
        return {row.key: _rounds(row, brokers, options) for row in rows}, versions
    finally:
        for broker in started:
            broker.stop()


def _options(arguments):
    parser = argparse.ArgumentParser(prog="python -m load.bench", description=__doc__)
    parser.add_argument("--seconds", type=float, default=2, help="of each run (%(default)s)")
    parser.add_argument("--rounds", type=int, default=2, help="per row and broker (%(default)s)")
    keys = [*(row.key for row in (*ROWS, *MQTT_ROWS, *costs.COSTS)), *sorted(MANAGEMENT)]
    parser.add_argument(
        "--rows", nargs="*", help=f"only these, and leave the document alone: {' '.join(keys)}")
    parser.add_argument(
        "--add", action="store_true",
        help="keep the figures of this version in load/results.json where this run has no newer ones: the "
        "document is written from all, also with --rows",
    )
    parser.add_argument(
        "--veth", type=int, nargs="?", const=1, metavar="SEGMENTS",
        help="the brokers in a network namespace of their own, behind a veth pair with an MTU of 1500 that "
        "carries so many segments as one packet (%(const)s; a network card with offloads: 44). Needs root; "
        "nothing is written",
    )
    parser.add_argument(
        "--beside", type=Path, metavar="FOLDER",
        help="another checkout of gomq-py, compiled, measured in turn with this one; nothing is written",
    )
    parser.add_argument("--alone", action="store_true", help="without RabbitMQ")
    parser.add_argument("--no-memory", action="store_true", help="without the rows of what is no throughput")
    parser.add_argument("--no-write", action="store_true", help="leave docs/performance.md alone")
    return parser.parse_args(arguments)


def _costs(makers, ours, options):
    """What ``costs.measured`` gives of the costs that are asked for; of ``makers`` the first ``ours`` make
    gomq-py. One round, unless they are to be compared or asked for by name.
    """
    wanted = [cost for cost in costs.COSTS if not options.rows or cost.key in options.rows]
    if options.no_memory or not wanted:
        return {}, []
    by_name = {make().name: (make, number < ours) for number, make in enumerate(makers)}
    return costs.measured(by_name, wanted, options.rounds if options.rows or options.beside else 1)


def _mqtt_figures(brokers, options):
    figures = {}
    for broker in brokers:
        broker.start()
        try:
            figures[broker.name] = mqtt_figures.measured(broker, options.rounds, broker is brokers[0])
        finally:
            broker.stop()
    return figures


def _rounds(row, brokers, options):
    """Best figures of each broker by its name."""
    runs: dict = {broker.name: [] for broker in brokers}
    for number in range(options.rounds):
        # Of two equal ones the first has cost up to a fifth more (QoS 2, which waits for the disk).
        for broker in brokers[::-1] if number % 2 else brokers:
            if row.ours and not isinstance(broker, GomqBroker):
                continue
            figures = (measure_mqtt if row.protocol == "mqtt" else measure)(row, broker, options.seconds)
            runs[broker.name].append(figures)
            print(
                f"{row.key} {number + 1}/{options.rounds} {broker.name}: {figures}", file=sys.stderr,
                flush=True,
            )
    return {name: best(figures) for name, figures in runs.items()}


def best(runs):
    """The best of each figure over some runs, and the median of CPU time; faults of all."""
    merged: dict = {}
    for name in ("cpu_us", "rate", "p50_ms", "p99_ms", "p999_ms", "generator_us"):
        values = [run[name] for run in runs if run[name] is not None]
        merged[name] = (max if name == "rate" else min)(values) if values else None
    spent = [run["cpu_us"] for run in runs if run["cpu_us"] is not None]
    merged["median_us"] = median(spent) if spent else None
    merged["faults"] = [fault for run in runs for fault in run["faults"]]
    return merged


def circumstances(versions, rounds, load_before):
    """When, on what, of what, in how many rounds; ``versions``: {name of a broker: its version}."""
    own = results.machine(load_before)
    return (
        f"{time.strftime('%Y-%m-%d')}, {own['cores']} processors ({own['processor']}), {own['system']}, "
        f"Python {own['python']}; {'; '.join(versions.values())}; {rounds}. "
        f"Load average of the quarter of an hour before: {load_before:.1f} (a quiet machine has 0).")


def document(newest, last, options):
    """The generated part of docs/performance.md from two entries of load/results.json; ``last`` may be None.
    """
    found = newest["found"]
    measured, spent, versions = found["rows"], found["costs"], found["versions"]
    names = list(versions)
    rows = [row for row in ROWS if row.key in measured]
    wire = f", over a veth pair, segments in a packet: {options.veth}" if options.veth else ""
    lines = [
        circumstances(
            versions, f"best of {options.rounds} rounds of {options.seconds:g} s, in turn{wire}",
            options.load_before),
        "", ABOUT, "",
        *_throughput_table([row for row in rows if not row.is_latency], measured, names, LAVINMQ), "",
        *_latency_table([row for row in rows if row.is_latency], measured, names), "",
        *(costs.table(spent, LAVINMQ) if spent else []), "",
        *(management.table(found["management"]) if found["management"] else []),
        *(_versions_table(newest, last) if last else []),
    ]
    generators = [
        _of(measured, row, GomqBroker.name)["generator_us"] for row in rows if row.key in ("small", "four")
    ]
    if generators and all(generators):
        lines += [
            "",
            (
                f"The generator itself spent {max(generators):.2f} us of CPU time per "
                "message of the first two rows."
            ),
        ]
    commands = [f"{row.key + ':':16}{command(row, options.seconds)}" for row in rows]
    if spent:
        commands += [
            f"{cost.key + ':':16}{costs.COMMANDS[cost.measure]}"
            for cost in {cost.measure: cost for cost in costs.COSTS}.values()
            if cost.measure in costs.COMMANDS and any(cost.key in figures for figures in spent.values())
        ]
    faults = [f"- FAULT: {text}" for text in found["failed"]] + [
        f"- FAULT: {row.key}, {name}: {fault}"
        for row in rows for name in names for fault in _of(measured, row, name)["faults"]
    ]
    return "\n".join([*lines, "", "```", *commands, "```", *faults]) + "\n"


def mqtt_document(found, options):
    """The part about MQTT; empty where none of its rows was asked for."""
    measured, versions, others = found["rows"], found["mqtt_versions"], found["mqtt_figures"]
    rows, names = [row for row in MQTT_ROWS if row.key in measured], list(versions)
    if not rows:
        return ""
    faults = [
        f"- FAULT: {row.key}, {name}: {fault}"
        for row in rows for name in names for fault in _of(measured, row, name)["faults"]
    ]
    return "\n".join([
        "", f"Over MQTT: {'; '.join(versions.values())}.", "", *_throughput_table(rows, measured, names), "",
        *(mqtt_figures.table(others) if others else []), "",
        "```", *(f"{row.key + ':':16}{command(row, options.seconds)}" for row in rows), "```", *faults,
    ]) + "\n"


def _versions_table(newest, last):
    """The rows that both versions have."""
    new, old = newest["version"], last["version"]
    lines = [
        "", f"| {old} of {last['date']} beside {new} | CPU us: {old} | {new} | messages/s: {old} | {new} |",
        "|---|---|---|---|---|",
    ]
    for row in (*ROWS, *MQTT_ROWS):
        both = [each["found"]["rows"].get(row.key, {}).get(GomqBroker.name) for each in (last, newest)]
        if all(both):
            # By the version's name: what misses its limit is marked in the tables above.
            cells = [shown(figures, row, old) for shown in (_cpu, _rate) for figures in both]
            lines.append(f"| {row.title} | {' | '.join(cells)} |")
    return lines


def _throughput_table(rows, measured, names, elsewhere=None):
    """``elsewhere``: {key of a row: what another broker needed}, for a column of its own."""
    if not rows:
        return []
    lines = [
        "| load | CPU us per message, at most | rate, at least | " + " | ".join(
            f"{name}: CPU us | {name}: messages/s" for name in names
        ) + (f" | {elsewhere['']} |" if elsewhere else " |"),
        "|---|---|---|" + "---|---|" * len(names) + "---|" * bool(elsewhere),
    ]
    for row in rows:
        figures = " | ".join(
            f"{_cpu(_of(measured, row, name), row, name)} | {_rate(_of(measured, row, name), row, name)}"
            for name in names
        )
        least = "" if row.rate is None else _thousands(row.rate)
        last = f" {elsewhere.get(row.key, '')} |" if elsewhere else ""
        lines.append(f"| {row.title} | {row.cpu_us or ''} | {least} | {figures} |{last}")
    return lines


def _latency_table(rows, measured, names):
    if not rows:
        return []
    titles = " | ".join(f"{name}: p50 / p99 / p99.9 ms | {name}: CPU us" for name in names)
    lines = [
        f"| latency | p50 / p99 ms, at most | CPU us, at most | {titles} | {LAVINMQ['']} |",
        "|---|---|---|" + "---|---|" * len(names) + "---|",
    ]
    for row in rows:
        figures = " | ".join(
            f"{_latency(_of(measured, row, name), row, name)} | {_cpu(_of(measured, row, name), row, name)}"
            for name in names
        )
        most = f"{row.p50_ms or '-'} / {row.p99_ms or '-'} | {row.cpu_us or ''}"
        lines.append(f"| {row.title} | {most} | {figures} | {LAVINMQ.get(row.key, '')} |")
    return lines


def _of(measured, row, name):
    """The figures of a row and a broker, which may have been left out."""
    return measured[row.key].get(name) or best([])


def _cpu(figures, row, name):
    """The best, and in brackets the median."""
    if figures["cpu_us"] is None:
        return "-"
    text = f"{figures['cpu_us']:.2f} ({figures['median_us']:.2f})"
    return _mark(text, name, row.cpu_us is None or figures["cpu_us"] <= row.cpu_us)


def _rate(figures, row, name):
    return (
        "-" if figures["rate"] is None
        else _mark(_thousands(figures["rate"]), name, row.rate is None or figures["rate"] >= row.rate)
    )


def _latency(figures, row, name):
    if figures["p99_ms"] is None:
        return "-"
    limits = (("p50_ms", row.p50_ms), ("p99_ms", row.p99_ms))
    met = all(most is None or figures[key] <= most for key, most in limits)
    text = " / ".join(f"{figures[key]:.3f}" for key in ("p50_ms", "p99_ms", "p999_ms"))
    return _mark(text, name, met)


def _mark(text, name, met):
    """Emphasis on what is not as good as we want it to be; others have made no promise."""
    return text if met or name != GomqBroker.name else f"*{text}*"


def _thousands(number):
    return (
        f"{number / 1e6:.2f} M" if number >= 1e6 else f"{number / 1e3:.0f} k" if number >= 1e3
        else f"{number:.0f}"
    )


def write(text, begin, end):
    """Put a text between two marks of docs/performance.md."""
    page = DOCUMENT.read_text(encoding="utf-8")
    before, _, rest = page.partition(begin)
    _, _, after = rest.partition(end)
    DOCUMENT.write_text(f"{before}{begin}\n{text}{end}{after}", encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
