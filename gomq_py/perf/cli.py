"""The command line of gomq-py-perf: runs the chosen scenario and prints its results as text or JSON."""
import argparse
import errno
import json
import os
import signal
import sys

from gomq_py import __version__
from gomq_py.client.errors import ClientError
from gomq_py.perf import churn, counts
from gomq_py.perf.mqtt_throughput import MQTTThroughput
from gomq_py.perf.options import (
    add_amqp_throughput, add_churn, add_connection_count, add_mqtt_throughput, add_queue_count, check_amqp,
    check_mqtt,
)
from gomq_py.perf.throughput import Throughput


class _Parser(argparse.ArgumentParser):
    """An argument parser that shows an error as one line, without the list of all options."""

    def error(self, message):
        self.exit(2, f"{self.prog}: error: {message}\n{self.prog} --help lists the options\n")


def parser():
    """Return the argument parser, with all scenarios and their options."""
    top = _Parser(prog="gomq-py-perf", description="Load a message broker and measure it.",
                  epilog="gomq-py-perf throughput -z 10 is short for gomq-py-perf amqp throughput -z 10; "
                         "gomq-py-perf PROTOCOL SCENARIO --help lists the options of each. "
                         "Exit code 1 when the run failed, --verify found a fault, or MQTT lost messages of "
                         "QoS 1 or 2.")
    top.add_argument("-v", "--version", action="version", version=__version__)
    protocols = top.add_subparsers(dest="protocol", required=True)
    scenarios = protocols.add_parser("amqp", help="AMQP 0-9-1").add_subparsers(dest="scenario", required=True)
    add_amqp_throughput(
        scenarios.add_parser("throughput", help="publish and consume as fast as possible, or at a rate"))
    add_queue_count(scenarios.add_parser("queue-count", help="declare many queues"))
    add_connection_count(scenarios.add_parser("connection-count", help="open many connections and hold them"))
    for name, scenario in churn.SCENARIOS.items():
        add_churn(scenarios.add_parser(name, help=f"{scenario.help}, again and again"))
    scenarios = protocols.add_parser("mqtt", help="MQTT 3.1, 3.1.1 and 5").add_subparsers(
        dest="scenario", required=True)
    add_mqtt_throughput(
        scenarios.add_parser("throughput", help="publish and subscribe as fast as possible, or at a rate"))
    return top


def main(arguments=None):
    """Run the command. Exit code 0; 1: the run failed or found a fault; 2: bad options; 130: Ctrl-C."""
    top = parser()
    arguments = list(sys.argv[1:] if arguments is None else arguments)
    if arguments and arguments[0] in (*_RUN, *churn.SCENARIOS):  # without the protocol, as in lavinmqperf
        arguments.insert(0, "amqp")
    options = top.parse_args(arguments)
    try:
        return _RUN.get(options.scenario, run_churn)(options)
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        # the reader of stdout is gone; avoids the interpreter's complaint at exit
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except (ClientError, OSError) as error:
        text = (
            "too many connections for this machine's limit of open files (ulimit -n)"
            if getattr(error, "errno", 0) == errno.EMFILE else error
        )
        print(f"gomq-py-perf: {options.uri.rpartition('@')[2]}: {text}", file=sys.stderr)
        return 1
    except ValueError as error:
        top.error(str(error))


def run_counts(options):
    """Run ``queue-count`` or ``connection-count`` and print the results. Return the exit code."""
    scenario = counts.queue_count if options.scenario == "queue-count" else counts.connection_count
    return _print_figures(options, scenario(options))


def run_churn(options):
    """Run a churn scenario and print the results. Return the exit code."""
    quiet = options.quiet or options.json
    return _print_figures(
        options, churn.run(options, lambda rate: quiet or print(f"{rate:,.0f} iterations/s", flush=True)))


def _print_figures(options, figures):
    print(
        json.dumps(figures) if options.json
        else "\n".join(f"{name.replace('_', ' ')}: {value}" for name, value in figures.items()))
    return 0


def run_throughput(options):
    """Run a throughput scenario and print the results. Return the exit code. Raises ValueError."""
    kind, check = (MQTTThroughput, check_mqtt) if options.protocol == "mqtt" else (Throughput, check_amqp)
    quiet = options.quiet or options.json
    scenario = kind(check(options), (lambda published, consumed: None) if quiet else _progress)

    def interrupted(*_):
        for number in before:
            signal.signal(number, signal.SIG_DFL)  # the second signal aborts
        scenario.interrupt()

    before = {number: signal.signal(number, interrupted) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        result = scenario.run()
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    if options.json:
        print(json.dumps(_as_json(result)))
    else:
        print("\n".join(_summary(result)))
    return 1 if result.faults else 0


def _progress(published_per_s, consumed_per_s):
    print(
        f"Publish rate: {published_per_s:,.0f} msgs/s Consume rate: {consumed_per_s:,.0f} msgs/s", flush=True)


def _summary(result):
    lines = [
        "", "Summary:",
        f"Published: {result.published:,} messages, {result.publish_rate:,.0f} msgs/s",
        f"Consumed:  {result.consumed:,} messages, {result.consume_rate:,.0f} msgs/s",
    ]
    for name in ("confirmed", "refused", "returned", "redelivered", "lost", "doubled"):
        if count := getattr(result, name):
            lines.append(f"{name.capitalize()}: {count:,}")
    for latency, noun in ((result.latency, "messages"), (result.confirm_latency, "confirms")):
        if latency and latency["count"]:
            values = ", ".join(
                f"{name} {latency[name]:.3f}" for name in ("min", "median", "p75", "p95", "p99", "max"))
            lines.append(f"Latency of {latency['count']:,} {noun} in ms: {values}")
    if result.broker_cpu_us is not None:
        lines.append(f"Broker: {result.broker_cpu_us:.3f} us of CPU time per message")
    if result.broker_memory is not None:
        lines.append(
            f"Broker: {result.broker_memory['rss'] / 1e6:.1f} MB resident, "
            f"{result.broker_memory['anonymous'] / 1e6:.1f} MB of it anonymous")
    if result.generator_cpu_us is not None:
        lines.append(f"Generator: {result.generator_cpu_us:.3f} us of CPU time per message")
    return lines + [f"FAULT: {fault}" for fault in result.faults]


def _as_json(result):
    """Return a Result as a dict for JSON. It has the keys that lavinmqperf prints, and others."""
    figures = {
        "elapsed_seconds": round(result.elapsed_s, 3), "avg_pub_rate": round(result.publish_rate),
        "avg_consume_rate": round(result.consume_rate),
        "published": result.published, "consumed": result.consumed, "confirmed": result.confirmed,
        "refused": result.refused,
        "returned": result.returned, "redelivered": result.redelivered, "faults": result.faults,
        "broker_cpu_us_per_message": result.broker_cpu_us, "broker_memory": result.broker_memory,
        "generator_cpu_us_per_message": result.generator_cpu_us,
        "delivered_share_while_publishing": result.delivered_share,
    }
    if result.lost is not None:
        figures.update(lost=result.lost, doubled=result.doubled)
    if result.latency is not None:
        count = result.latency["count"]
        figures.update(latency_count=count, latency_sample_size=count)
        figures.update(
            {f"latency_{name}_ms": value for name, value in result.latency.items() if name != "count"})
    if result.confirm_latency is not None:
        figures.update({
            f"confirm_latency_{name}_ms": value
            for name, value in result.confirm_latency.items() if name != "count"
        })
    return figures


_RUN = {"throughput": run_throughput, "queue-count": run_counts, "connection-count": run_counts}
