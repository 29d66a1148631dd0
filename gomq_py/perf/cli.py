"""Command line of gomq-py-perf: runs a scenario from its options and prints its figures as text or JSON."""
import argparse
import errno
import json
import os
import signal
import struct
import sys

from gomq_py import __version__
from gomq_py.client.errors import ClientError
from gomq_py.client.url import DEFAULT_URL
from gomq_py.perf import churn, counts, messages, mqtt_options, report
from gomq_py.perf.mqtt_throughput import MQTTThroughput
from gomq_py.perf.options import (
    add_common, add_load, add_writing, amount, at_least_one, check_load, count, groups, prefetch, real, table,
)
from gomq_py.perf.throughput import Throughput


class _Parser(argparse.ArgumentParser):
    """Shows an error in one line, without the list of all options."""

    def error(self, message):
        self.exit(2, f"{self.prog}: error: {message}\n{self.prog} --help lists the options\n")


def parser():
    """The parser of all options of all scenarios."""
    top = _Parser(prog="gomq-py-perf", description="Load a message broker and measure it.",
                  epilog="gomq-py-perf throughput -z 10 is short for gomq-py-perf amqp throughput -z 10; "
                         "gomq-py-perf PROTOCOL SCENARIO --help lists the options of each. "
                         "Exit code 1 when the run failed, --verify found a fault, or MQTT lost messages of "
                         "QoS 1 or 2.")
    top.add_argument("-v", "--version", action="version", version=__version__)
    protocols = top.add_subparsers(dest="protocol", required=True)
    scenarios = protocols.add_parser("amqp", help="AMQP 0-9-1").add_subparsers(dest="scenario", required=True)
    _throughput(
        scenarios.add_parser("throughput", help="publish and consume as fast as possible, or at a rate")
    )
    _queue_count(scenarios.add_parser("queue-count", help="declare many queues"))
    _connection_count(scenarios.add_parser("connection-count", help="open many connections and hold them"))
    for name, scenario in churn.SCENARIOS.items():
        _churn(scenarios.add_parser(name, help=scenario.__doc__.rstrip(".").lower() + ", again and again"))
    scenarios = protocols.add_parser("mqtt", help="MQTT 3.1, 3.1.1 and 5").add_subparsers(
        dest="scenario", required=True)
    mqtt_options.throughput(
        scenarios.add_parser("throughput", help="publish and subscribe as fast as possible, or at a rate"))
    return top


def _throughput(options):
    add_common(options, DEFAULT_URL)
    add_load(options, "queue")
    add = options.add_argument
    add(
        "-a", "--ack", type=amount, default=0, metavar="N",
        help="acknowledge every N messages; 0: consume without acks (%(default)s)",
    )
    add(
        "-c", "--confirm", type=count, default=0, metavar="N",
        help="publisher confirms, at most N outstanding (off)",
    )
    add(
        "-t", "--transaction", dest="publish_transaction", type=amount, default=0, metavar="N",
        help="commit every N publishes (off)",
    )
    add(
        "-T", "--transaction-ack", dest="ack_transaction", type=amount, default=0, metavar="N",
        help="commit every N acks (off)",
    )
    add("-u", "--queue", default="perf-test", help="queue name (%(default)s)")
    add("-k", "--routing-key", help="routing key (the queue's name)")
    add("-e", "--exchange", default="", help="exchange to publish to (the default exchange)")
    add("-p", "--persistent", action="store_true", help="persistent messages")
    add("-P", "--prefetch", type=prefetch, default=0, help="prefetch count (unlimited)")
    add("-g", "--poll", action="store_true", help="consume with basic.get")
    add("--queue-args", type=table, default={}, metavar="JSON", help="arguments of the queue")
    add("--consumer-args", type=table, default={}, metavar="JSON", help="arguments of the consumers")
    more = options.add_argument_group("beyond lavinmqperf")
    add = more.add_argument
    add("--exchange-type", help="declare the exchange with that type")
    add("--exchange-args", type=table, default={}, metavar="JSON", help="arguments of that exchange")
    add("--key-count", type=count, default=1, metavar="N", help="different routing keys (%(default)s)")
    add(
        "--binding-count", type=count, default=1, metavar="N",
        help="topic bindings of each queue, which match all keys together (%(default)s)",
    )
    add("--header-count", type=count, default=0, metavar="N", help="entries of a headers table (none)")
    add(
        "--header-every", type=at_least_one, default=1, metavar="N",
        help="only every N-th message has that table (each has)",
    )
    add("--mandatory", action="store_true", help="mandatory messages")
    _add_declaring(add)
    add_writing(add)


def _add_declaring(add):
    """Options for declarations, added by the ``add_argument`` of a group."""
    add("--transient-queue", dest="durable", action="store_false", help="declare a queue that is not durable")
    add("--auto-delete", action="store_true", help="declare a queue that goes away with its consumers")
    add(
        "--purge", action="store_true",
        help="empty the queues first; without it messages of earlier runs are consumed, too",
    )
    add(
        "--predeclared", action="store_true",
        help="declare, bind and empty nothing; use the queues and exchanges there are",
    )


def _queue_count(options):
    add_common(options, DEFAULT_URL)
    add = options.add_argument
    add("-q", "--queues", dest="count", type=count, default=100, help="how many (%(default)s)")
    add("-u", "--queue", default="perf-queue", help="beginning of their names (%(default)s)")
    add("-D", "--transient", dest="durable", action="store_false", help="queues that are not durable")
    add("-n", "--no-wait", action="store_true", help="declare without waiting for each answer")
    add("--arguments", type=table, default={}, metavar="JSON", help="arguments of the queues")
    add("--delete", action="store_true", help="delete them at the end")


def _connection_count(options):
    add_common(options, DEFAULT_URL)
    add = options.add_argument
    add("-x", "--connections", dest="count", type=count, default=100, help="how many (%(default)s)")
    add("-c", "--channels", type=count, default=1, help="channels of each connection (%(default)s)")
    add("-C", "--consumers", type=count, default=0, help="consumers of each channel (%(default)s)")
    add("-u", "--queue", default="perf-test", help="queue of the consumers (%(default)s)")
    add("-l", "--localhost", action="store_true", help="connect to random addresses in 127.0.0.0/16")
    add(
        "-k", "--keepalive", metavar="IDLE:INTERVAL:COUNT",
        help="TCP keepalive of the connections, seconds and probes",
    )
    add(
        "-z", "--time", dest="seconds", type=real, default=0, metavar="SECONDS",
        help="hold them that long (until interrupted)",
    )


def _churn(options):
    add_common(options, DEFAULT_URL)
    add = options.add_argument
    add(
        "-z", "--time", dest="seconds", type=real, default=0, metavar="SECONDS",
        help="for that long (until interrupted)",
    )
    add("-D", "--transient", dest="durable", action="store_false", help="with a queue that is not durable")
    add("-q", "--quiet", action="store_true", help="print the summary only")


def main(arguments=None):
    """Entry point: exit code 0, 1 when the run failed or found a fault, 2 for bad options, 130 after Ctrl-C.
    """
    top = parser()
    options = top.parse_args(_with_protocol(sys.argv[1:] if arguments is None else arguments))
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


def _with_protocol(arguments):
    """The arguments with the protocol, which may be left out as in lavinmqperf."""
    return (
        ["amqp", *arguments] if arguments and arguments[0] in (*_RUN, *churn.SCENARIOS) else list(arguments)
    )


def run_counts(options):
    """Run and print; returns the exit code."""
    scenario = counts.queue_count if options.scenario == "queue-count" else counts.connection_count
    return _print_figures(options, scenario(options))


def run_churn(options):
    """Run and print; returns the exit code."""
    quiet = options.quiet or options.json
    return _print_figures(
        options, churn.run(options, lambda rate: quiet or print(f"{rate:,.0f} iterations/s", flush=True))
    )


def _print_figures(options, figures):
    print(
        json.dumps(figures) if options.json
        else "\n".join(f"{name.replace('_', ' ')}: {value}" for name, value in figures.items())
    )
    return 0


def run_throughput(options):
    """Run and print; returns the exit code. Raises ValueError for options that do not go together."""
    kind, checked = (MQTTThroughput, mqtt_options.checked) if options.protocol == "mqtt" else (
        Throughput, _checked)
    scenario = kind(
        checked(options),
        report.progress if not options.quiet and not options.json else lambda published, consumed: None,
    )

    def interrupted(*_):
        for number in before:
            signal.signal(number, signal.SIG_DFL)  # the second one aborts
        scenario.interrupt()

    before = {number: signal.signal(number, interrupted) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        result = scenario.run()
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    if options.json:
        print(json.dumps(report.as_json(result)))
    else:
        print("\n".join(report.summary(result)))
    return 1 if result.faults else 0


def _checked(options):
    """Check options that depend on each other. Raises ValueError."""
    check_load(options)
    if options.confirm and options.publish_transaction:
        raise ValueError("a channel is either transactional or confirming: --confirm or --transaction")
    if options.ack_transaction and not options.ack:
        raise ValueError("--transaction-ack needs --ack")
    if options.prefetch and options.ack > options.prefetch:
        raise ValueError("--ack every N with a smaller --prefetch would wait for ever")
    if options.key_count > 1 and not options.exchange:
        raise ValueError(
            "--key-count needs an --exchange of --exchange-type topic; the default exchange would route none "
            "of the keys"
        )
    _check_properties(options)
    options.queues = groups(options, "queue", options.queue)
    return options


def _check_properties(options):
    """Raises ValueError for invalid message properties, before every worker would fail by itself."""
    try:
        messages.properties(options)
    except (TypeError, ValueError, AttributeError, struct.error) as error:
        raise ValueError(f"--properties: {error}") from None


_RUN = {"throughput": run_throughput, "queue-count": run_counts, "connection-count": run_counts}
