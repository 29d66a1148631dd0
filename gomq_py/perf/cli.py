"""The command line of gomq-py-perf: options to a scenario, and its figures to the terminal or as JSON."""
import argparse
import errno
import json
import math
import os
import signal
import struct
import sys

from gomq_py import __version__
from gomq_py.client.errors import ClientError
from gomq_py.client.url import DEFAULT_URL
from gomq_py.perf import churn, counts, messages, report
from gomq_py.perf.throughput import Throughput

# 16 million: what a queue, a window or a table of this process holds without the machine swapping.
MOST = 1 << 24
# Of each kind: sockets of one machine to one port.
MOST_CONNECTIONS = 65535
# RabbitMQ's limit for a message.
MOST_OCTETS = 512 * 1024 * 1024


class _Parser(argparse.ArgumentParser):
    """A mistake is one line, not the list of all options before it."""

    def error(self, message):
        self.exit(2, f"{self.prog}: error: {message}\n{self.prog} --help lists the options\n")


def parser():
    """All options of all scenarios."""
    top = _Parser(prog="gomq-py-perf", description="Load a message broker and measure it.",
                  epilog="gomq-py-perf throughput -z 10 is short for gomq-py-perf amqp throughput -z 10; "
                         "gomq-py-perf amqp SCENARIO --help lists the options of each. "
                         "Exit code 1 when the run failed or --verify found a fault.")
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
    return top


def _common(options):
    options.add_argument("--uri", default=DEFAULT_URL, help="broker to load (%(default)s)")
    options.add_argument(
        "--timeout", dest="timeout_s", type=_real, default=30, metavar="SECONDS",
        help="for each answer of the broker (%(default)s)",
    )
    options.add_argument(
        "-j", "--json", action="store_true", help="print the result as JSON, and nothing else"
    )
    options.add_argument(
        "--broker-pid", type=_count, default=0, metavar="PID",
        help="measure that process's CPU time and memory, too",
    )


def _throughput(options):
    _common(options)
    add = options.add_argument
    add("-q", "--quiet", action="store_true", help="print the summary only")
    add(
        "-x", "--publishers", type=_count, default=1, help="connections that publish, per queue (%(default)s)"
    )
    add("-y", "--consumers", type=_count, default=1, help="connections that consume, per queue (%(default)s)")
    add("-s", "--size", type=_size, default=(16, 16), help="octets of a body, or a range such as 16-512 (16)")
    add(
        "-V", "--verify", action="store_true",
        help="number the messages and check order, count and bodies; needs 8 octets of body",
    )
    add(
        "-a", "--ack", type=_amount, default=0, metavar="N",
        help="acknowledge every N messages; 0: consume without acks (%(default)s)",
    )
    add(
        "-c", "--confirm", type=_count, default=0, metavar="N",
        help="publisher confirms, at most N outstanding (off)",
    )
    add(
        "-t", "--transaction", dest="publish_transaction", type=_amount, default=0, metavar="N",
        help="commit every N publishes (off)",
    )
    add(
        "-T", "--transaction-ack", dest="ack_transaction", type=_amount, default=0, metavar="N",
        help="commit every N acks (off)",
    )
    add("-u", "--queue", default="perf-test", help="queue name (%(default)s)")
    add("-k", "--routing-key", help="routing key (the queue's name)")
    add("-e", "--exchange", default="", help="exchange to publish to (the default exchange)")
    add("-r", "--rate", type=_real, default=0, help="messages per second of each publisher (unlimited)")
    add(
        "-R", "--consumer-rate", dest="consume_rate", type=_real, default=0,
        help="messages per second of each consumer (unlimited)",
    )
    add("-p", "--persistent", action="store_true", help="persistent messages")
    add("-P", "--prefetch", type=_prefetch, default=0, help="prefetch count (unlimited)")
    add("-g", "--poll", action="store_true", help="consume with basic.get")
    add(
        "-z", "--time", dest="seconds", type=_real, default=0, metavar="SECONDS",
        help="publish for that long (until interrupted)",
    )
    add(
        "-C", "--pmessages", dest="publish_count", type=_amount, default=0, metavar="N",
        help="publish N messages in all",
    )
    add(
        "-D", "--cmessages", dest="consume_count", type=_amount, default=0, metavar="N",
        help="stop after N consumed messages, or shortly after",
    )
    add(
        "-l", "--measure-latency", action="store_true",
        help="from write to read, by a timestamp in each body; needs 8 octets of body",
    )
    add("--queue-args", type=_table, default={}, metavar="JSON", help="arguments of the queue")
    add("--consumer-args", type=_table, default={}, metavar="JSON", help="arguments of the consumers")
    add(
        "--properties", type=_table, default={}, metavar="JSON",
        help="properties of the messages, by their names",
    )
    add("--random-bodies", action="store_true", help="bodies of random octets, the same in every run")
    add(
        "--queue-pattern", metavar="NAME-%%",
        help="many queues, %% standing for a number; publishers and consumers for each",
    )
    add("--queue-pattern-from", type=_count, default=1, metavar="N", help="first number (%(default)s)")
    add("--queue-pattern-to", type=_count, default=1, metavar="N", help="last number (%(default)s)")
    more = options.add_argument_group("beyond lavinmqperf")
    add = more.add_argument
    add("--exchange-type", help="declare the exchange with that type")
    add("--key-count", type=_count, default=1, metavar="N", help="different routing keys (%(default)s)")
    add(
        "--binding-count", type=_count, default=1, metavar="N",
        help="topic bindings of each queue, which match all keys together (%(default)s)",
    )
    add("--header-count", type=_count, default=0, metavar="N", help="entries of a headers table (none)")
    add("--mandatory", action="store_true", help="mandatory messages")
    add("--transient-queue", dest="durable", action="store_false", help="declare a queue that is not durable")
    add("--auto-delete", action="store_true", help="declare a queue that goes away with its consumers")
    add(
        "--purge", action="store_true",
        help="empty the queues first; without it messages of earlier runs are consumed, too",
    )
    add(
        "--write-octets", type=_count, default=messages.WRITE_OCTETS, metavar="N",
        help="octets per write (%(default)s); 1: a TCP segment each",
    )
    add(
        "--processes", type=_count, default=0, metavar="N",
        help="at most N processes for publishers and for consumers (half the processors)",
    )
    add(
        "--drain", dest="drain_s", type=_real, default=30, metavar="SECONDS",
        help="wait for consumers and confirms at the end (%(default)s)",
    )


def _queue_count(options):
    _common(options)
    add = options.add_argument
    add("-q", "--queues", dest="count", type=_count, default=100, help="how many (%(default)s)")
    add("-u", "--queue", default="perf-queue", help="beginning of their names (%(default)s)")
    add("-D", "--transient", dest="durable", action="store_false", help="queues that are not durable")
    add("-n", "--no-wait", action="store_true", help="declare without waiting for each answer")
    add("--arguments", type=_table, default={}, metavar="JSON", help="arguments of the queues")
    add("--delete", action="store_true", help="delete them at the end")


def _connection_count(options):
    _common(options)
    add = options.add_argument
    add("-x", "--connections", dest="count", type=_count, default=100, help="how many (%(default)s)")
    add("-c", "--channels", type=_count, default=1, help="channels of each connection (%(default)s)")
    add("-C", "--consumers", type=_count, default=0, help="consumers of each channel (%(default)s)")
    add("-u", "--queue", default="perf-test", help="queue of the consumers (%(default)s)")
    add("-l", "--localhost", action="store_true", help="connect to random addresses in 127.0.0.0/16")
    add(
        "-k", "--keepalive", metavar="IDLE:INTERVAL:COUNT",
        help="TCP keepalive of the connections, seconds and probes",
    )
    add(
        "-z", "--time", dest="seconds", type=_real, default=0, metavar="SECONDS",
        help="hold them that long (until interrupted)",
    )


def _churn(options):
    _common(options)
    add = options.add_argument
    add(
        "-z", "--time", dest="seconds", type=_real, default=0, metavar="SECONDS",
        help="for that long (until interrupted)",
    )
    add("-D", "--transient", dest="durable", action="store_false", help="with a queue that is not durable")
    add("-q", "--quiet", action="store_true", help="print the summary only")


def main(arguments=None):
    """Entry point: exit code 0, 1 when the run failed or ``--verify`` found a fault, 2 for bad options, 130
    after Ctrl-C.
    """
    top = parser()
    options = top.parse_args(_with_protocol(sys.argv[1:] if arguments is None else arguments))
    try:
        return _RUN.get(options.scenario, run_churn)(options)
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        # who reads the figures has left; the interpreter would complain at its end
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
    """The protocol may be left out, as in lavinmqperf."""
    return (
        ["amqp", *arguments] if arguments and arguments[0] in (*_RUN, *churn.SCENARIOS) else list(arguments)
    )


def run_counts(options):
    """Run, print, exit code."""
    scenario = counts.queue_count if options.scenario == "queue-count" else counts.connection_count
    return _print_figures(options, scenario(options))


def run_churn(options):
    """Run, print, exit code."""
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
    """Run, print, exit code. Raises ValueError for options that do not go together."""
    scenario = Throughput(
        _checked(options),
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
    """Options that depend on each other. Raises ValueError."""
    needed = messages.Stamps(options.verify, options.measure_latency).end
    if options.size[0] < needed:
        raise ValueError(f"--verify and --measure-latency need bodies of {needed} octets")
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
    options.queues = [options.queue]
    if options.queue_pattern:
        numbers = range(options.queue_pattern_from, options.queue_pattern_to + 1)
        if "%" not in options.queue_pattern or not numbers:
            raise ValueError(
                "--queue-pattern needs a % for the number, and numbers from --queue-pattern-from up to "
                "--queue-pattern-to"
            )
        options.queues = [options.queue_pattern.replace("%", str(number)) for number in numbers]
    if len(options.queues) * max(options.publishers, options.consumers) > MOST_CONNECTIONS:
        raise ValueError(f"more than {MOST_CONNECTIONS} publishers or consumers in all")
    return options


def _check_properties(options):
    """Raises ValueError for properties that no message can have; the workers would fail one by one."""
    try:
        messages.properties(options)
    except (TypeError, ValueError, AttributeError, struct.error) as error:
        raise ValueError(f"--properties: {error}") from None


def _count(text):
    return _number(text, int, MOST)


def _prefetch(text):
    return _number(text, int, 65535)


def _amount(text):
    return _number(text, int, 1 << 62)


def _real(text):
    return _number(text, float, 1e9)


def _number(text, kind, most):
    """Raises ArgumentTypeError with a line for whoever typed it."""
    try:
        number = kind(text)
    except ValueError:
        number = -1
    if not 0 <= number <= most or math.isnan(number):
        raise argparse.ArgumentTypeError(f"a number from 0 to {most:,.0f} is needed, not {text!r}")
    return number


def _size(text):
    try:
        low, high = messages.parse_size(text)
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"a size is a number of octets or a range such as 16-512, not {text!r}"
        ) from None
    if high > MOST_OCTETS:
        raise argparse.ArgumentTypeError(f"a body has at most {MOST_OCTETS:,} octets")
    return low, high


def _table(text):
    try:
        table = json.loads(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"no JSON: {error}") from None
    if not isinstance(table, dict):
        raise argparse.ArgumentTypeError("a JSON object is needed")
    return table


_RUN = {"throughput": run_throughput, "queue-count": run_counts, "connection-count": run_counts}
