"""``make bench``: the performance table, measured on this machine and written into docs/performance.md.

Every row is run against gomq-py and, where it is installed, RabbitMQ (those over MQTT: Mosquitto), in turn
(A B A B), each on an empty queue; the best of the rounds counts, because what neighbours on the machine take
away is not the broker's.
``python -m load.bench --help`` has the options.
"""
import argparse
import os
import platform
import re
import sys
import tempfile
import time
from pathlib import Path

from load import management, mqtt_figures
from load.brokers import GomqBroker, MosquittoBroker, RabbitBroker
from load.scenarios import MQTT_ROWS, ROOT, ROWS, command, measure, measure_memory, measure_mqtt

DOCUMENT = ROOT / "docs" / "performance.md"
BEGIN, END = "<!-- figures: written by make bench -->", "<!-- end of figures -->"
MEMORY_LIMITS = (
    ("idle", "resident when idle, AMQP alone", 45e6),
    ("connection", "an idle connection with a channel", 25 * 1024),
    ("waiting", "1 million waiting messages of 16 octets", 2e6), ("unacked", "an unacked message", 24),
)


def main(arguments=None):
    """Measure, print, write; exit code 1 when a load came back wrong (lost, disordered),
    whatever its speed.
    """
    options = _options(arguments)
    options.load_before = os.getloadavg()[2]
    with tempfile.TemporaryDirectory(prefix="gomq-bench-") as folder:
        kinds = [GomqBroker] + [RabbitBroker] * (RabbitBroker.is_installed() and not options.alone)
        memory = {} if options.no_memory else {kind.name: _memory(kind, folder) for kind in kinds}
        managed = None if options.rows else management.measured(folder, options.seconds, options.rounds)
        results, versions = _measured(ROWS, [kind(folder) for kind in kinds], options)
        mqtt_brokers = [GomqBroker(folder, mqtt=True)]
        if MosquittoBroker.is_installed() and not options.alone:
            mqtt_brokers.append(MosquittoBroker(folder))
        over_mqtt = _measured(MQTT_ROWS, mqtt_brokers, options)
        others = {} if options.no_memory or options.rows else _mqtt_figures(mqtt_brokers, options)
    text = document(results, memory, managed, versions, options) + mqtt_document(*over_mqtt, others, options)
    print(text)
    if not options.rows and not options.no_write:
        _write(text)
    every = [*results.values(), *over_mqtt[0].values()]
    return 1 if any(figures["faults"] for row in every for figures in row.values()) else 0


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
    parser.add_argument("--seconds", type=float, default=5, help="of each run (%(default)s)")
    parser.add_argument("--rounds", type=int, default=3, help="per row and broker (%(default)s)")
    parser.add_argument(
        "--rows", nargs="*",
        help=f"only these, and do not write the document: {' '.join(row.key for row in (*ROWS, *MQTT_ROWS))}",
    )
    parser.add_argument("--alone", action="store_true", help="without RabbitMQ")
    parser.add_argument("--no-memory", action="store_true", help="without the memory rows")
    parser.add_argument("--no-write", action="store_true", help="leave docs/performance.md alone")
    return parser.parse_args(arguments)


def _memory(kind, folder):
    broker = kind(folder).start()
    try:
        return measure_memory(broker)
    finally:
        broker.stop()


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
        for broker in brokers:
            figures = (measure if row.protocol == "amqp" else measure_mqtt)(row, broker, options.seconds)
            runs[broker.name].append(figures)
            print(
                f"{row.key} {number + 1}/{options.rounds} {broker.name}: {figures}", file=sys.stderr,
                flush=True,
            )
    return {name: best(figures) for name, figures in runs.items()}


def best(runs):
    """The best of each figure over some runs; faults of all."""
    merged: dict = {}
    for name in ("cpu_us", "rate", "p50_ms", "p99_ms", "generator_us"):
        values = [run[name] for run in runs if run[name] is not None]
        merged[name] = (max if name == "rate" else min)(values) if values else None
    merged["faults"] = [fault for run in runs for fault in run["faults"]]
    return merged


def circumstances(versions, rounds, load_before):
    """When, on what, of what, in how many rounds; ``versions``: {name of a broker: its version}."""
    system = f"{platform.system()} {platform.release()}, Python {platform.python_version()}"
    return (
        f"{time.strftime('%Y-%m-%d')}, {os.cpu_count()} processors ({_processor()}), {system}; "
        f"{'; '.join(versions.values())}; {rounds}. "
        f"Load average of the quarter of an hour before: {load_before:.1f} (a quiet machine has 0).")


def document(results, memory, managed, versions, options):
    """The generated part of docs/performance.md."""
    names = list(versions)
    rows = [row for row in ROWS if row.key in results]
    lines = [
        circumstances(
            versions, f"best of {options.rounds} rounds of {options.seconds:g} s, in turn",
            options.load_before),
        "",
        *_throughput_table([row for row in rows if row.p99_ms is None], results, names), "",
        *_latency_table([row for row in rows if row.p99_ms is not None], results, names), "",
        *(_memory_table(memory, names) if memory else []), "",
        *(management.table(managed) if managed else []),
    ]
    generators = [results[row.key]["gomq-py"]["generator_us"] for row in rows if row.key in ("small", "four")]
    if generators and all(generators):
        lines += [
            "",
            (
                f"The generator itself spent {max(generators):.2f} us of CPU time per "
                "message of the first two rows."
            ),
        ]
    commands = [
        f"{row.key + ':':10}{command(row, options.seconds)}" + (
            f"   (beside: {row.flood})" if row.flood else ""
        )
        for row in rows
    ]
    faults = [
        f"- FAULT: {row.key}, {name}: {fault}"
        for row in rows for name in names for fault in results[row.key][name]["faults"]
    ]
    return "\n".join([*lines, "", "```", *commands, "```", *faults]) + "\n"


def mqtt_document(results, versions, others, options):
    """The part about MQTT; empty where none of its rows was asked for."""
    rows, names = [row for row in MQTT_ROWS if row.key in results], list(versions)
    if not rows:
        return ""
    faults = [
        f"- FAULT: {row.key}, {name}: {fault}"
        for row in rows for name in names for fault in results[row.key][name]["faults"]
    ]
    return "\n".join([
        "", f"Over MQTT: {'; '.join(versions.values())}.", "", *_throughput_table(rows, results, names), "",
        *(mqtt_figures.table(others) if others else []), "",
        "```", *(f"{row.key + ':':16}{command(row, options.seconds)}" for row in rows), "```", *faults,
    ]) + "\n"


def _throughput_table(rows, results, names):
    lines = [
        "| load | CPU us per message, at most | rate, at least | " + " | ".join(
            f"{name}: CPU us | {name}: messages/s" for name in names
        ) + " |",
        "|---|---|---|" + "---|---|" * len(names),
    ]
    for row in rows:
        figures = " | ".join(
            f"{_cpu(results[row.key][name], row, name)} | {_rate(results[row.key][name], row, name)}"
            for name in names
        )
        least = "" if row.rate is None else _thousands(row.rate)
        lines.append(f"| {row.title} | {row.cpu_us or ''} | {least} | {figures} |")
    return lines


def _latency_table(rows, results, names):
    titles = " | ".join(f"{name}: p50 / p99 ms" for name in names)
    lines = [f"| latency | p50 / p99 ms, at most | {titles} |", "|---|---|" + "---|" * len(names)]
    for row in rows:
        figures = " | ".join(_latency(results[row.key][name], row, name) for name in names)
        lines.append(f"| {row.title} | {row.p50_ms or '-'} / {row.p99_ms} | {figures} |")
    return lines


def _memory_table(memory, names):
    lines = ["| memory | at most | " + " | ".join(names) + " |", "|---|---|" + "---|" * len(names)]
    for key, title, limit in MEMORY_LIMITS:
        figures = " | ".join(
            _mark(_octets(memory[name][key]), name, memory[name][key] <= limit) for name in names
        )
        lines.append(f"| {title} | {_octets(limit)} | {figures} |")
    return lines


def _cpu(figures, row, name):
    if figures["cpu_us"] is None:
        return "-"
    return _mark(f"{figures['cpu_us']:.2f}", name, row.cpu_us is None or figures["cpu_us"] <= row.cpu_us)


def _rate(figures, row, name):
    return (
        "-" if figures["rate"] is None
        else _mark(_thousands(figures["rate"]), name, row.rate is None or figures["rate"] >= row.rate)
    )


def _latency(figures, row, name):
    if figures["p99_ms"] is None:
        return "-"
    met = figures["p99_ms"] <= row.p99_ms and (row.p50_ms is None or figures["p50_ms"] <= row.p50_ms)
    return _mark(f"{figures['p50_ms']:.3f} / {figures['p99_ms']:.3f}", name, met)


def _mark(text, name, met):
    """Emphasis on what is not as good as we want it to be; others have made no promise."""
    return text if met or name != GomqBroker.name else f"*{text}*"


def _thousands(number):
    return f"{number / 1e6:.2f} M" if number >= 1e6 else f"{number / 1e3:.0f} k"


def _octets(count):
    return (
        f"{count / 1e6:.1f} MB" if abs(count) >= 1e6 else f"{count / 1024:.1f} KiB" if abs(count) >= 1024
        else f"{count:.0f} B"
    )


def _processor():
    try:
        return re.search(r"model name\s*:\s*(.+)", Path("/proc/cpuinfo").read_text())[1].strip()
    except (OSError, TypeError):
        return platform.machine()


def _write(text):
    page = DOCUMENT.read_text(encoding="utf-8")
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    DOCUMENT.write_text(f"{before}{BEGIN}\n{text}{END}{after}", encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
