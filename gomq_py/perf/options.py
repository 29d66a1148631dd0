"""Options common to both protocols, and the types of all options."""
import argparse
import json
import math

from gomq_py.perf import messages

# 16 million: a queue, window or table of this process that fits into memory.
MOST = 1 << 24
# Per kind: sockets of one machine to one port.
MOST_CONNECTIONS = 65535
# RabbitMQ's limit for a message.
MOST_OCTETS = 512 * 1024 * 1024


def add_common(options, url):
    """Options of every scenario; ``url``: the default broker."""
    options.add_argument("--uri", default=url, help="broker to load (%(default)s)")
    options.add_argument(
        "--timeout", dest="timeout_s", type=real, default=30, metavar="SECONDS",
        help="for each answer of the broker (%(default)s)",
    )
    options.add_argument(
        "-j", "--json", action="store_true", help="print the result as JSON, and nothing else"
    )
    options.add_argument(
        "--broker-pid", type=count, default=0, metavar="PID",
        help="measure that process's CPU time and memory, too",
    )


def add_load(options, group):
    """Options of publishers and consumers per ``group``, a queue or a topic."""
    add = options.add_argument
    add("-q", "--quiet", action="store_true", help="print the summary only")
    add(
        "-x", "--publishers", type=count, default=1,
        help=f"connections that publish, per {group} (%(default)s)",
    )
    add(
        "-y", "--consumers", type=count, default=1,
        help=f"connections that consume, per {group} (%(default)s)",
    )
    add(
        "-s", "--size", type=size, default=(16, 16),
        help="octets of a body, a range such as 16-512, or a list such as 16,512,64 taken in turn (16)",
    )
    add(
        "-V", "--verify", action="store_true",
        help="number the messages and check order, count and bodies; needs 8 octets of body",
    )
    add("-r", "--rate", type=real, default=0, help="messages per second of each publisher (unlimited)")
    add(
        "-R", "--consumer-rate", dest="consume_rate", type=real, default=0,
        help="messages per second of each consumer (unlimited)",
    )
    add(
        "-z", "--time", dest="seconds", type=real, default=0, metavar="SECONDS",
        help="publish for that long (until interrupted)",
    )
    add(
        "-C", "--pmessages", dest="publish_count", type=amount, default=0, metavar="N",
        help="publish N messages in all",
    )
    add(
        "-D", "--cmessages", dest="consume_count", type=amount, default=0, metavar="N",
        help="stop after N consumed messages, or shortly after",
    )
    add(
        "-l", "--measure-latency", action="store_true",
        help="from write to read, by a timestamp in each body, which needs 8 octets; of AMQP's confirms, too",
    )
    add(
        "--properties", type=table, default={}, metavar="JSON",
        help="properties of the messages, by their names",
    )
    add("--random-bodies", action="store_true", help="bodies of random octets, the same in every run")
    _add_pattern(add, group)


def add_writing(add):
    """Options for writing and waiting, added by the ``add_argument`` of a group."""
    add(
        "--write-octets", type=count, default=messages.WRITE_OCTETS, metavar="N",
        help="octets per write (%(default)s); 1: a message in each, and a TCP segment",
    )
    add(
        "--mergeable", action="store_true",
        help="with --write-octets 1: the system may merge writes that have to wait, as those of most clients",
    )
    add(
        "--burst", type=count, default=1, metavar="N",
        help="with --rate: so many messages are published at a time (%(default)s)",
    )
    add(
        "--processes", type=count, default=0, metavar="N",
        help="at most N processes for publishers and for consumers (half the processors)",
    )
    add(
        "--drain", dest="drain_s", type=real, default=30, metavar="SECONDS",
        help="wait for consumers and confirms at the end (%(default)s)",
    )


def _add_pattern(add, group):
    add(
        f"--{group}-pattern", dest="pattern", metavar="NAME-%%",
        help=f"many {group}s, %% standing for a number; publishers and consumers for each",
    )
    add(
        f"--{group}-pattern-from", dest="pattern_from", type=count, default=1, metavar="N",
        help="first number (%(default)s)",
    )
    add(
        f"--{group}-pattern-to", dest="pattern_to", type=count, default=1, metavar="N",
        help="last number (%(default)s)",
    )


def check_load(options):
    """Raises ValueError for options of ``add_load`` that do not go together."""
    needed = messages.Stamps(options.verify, options.measure_latency).end
    if options.size[0] < needed:
        raise ValueError(f"--verify and --measure-latency need bodies of {needed} octets")


def groups(options, group, single):
    """The names of all queues or topics: ``single``, or those of the pattern. Raises ValueError."""
    if not options.pattern:
        names = [single]
    else:
        numbers = range(options.pattern_from, options.pattern_to + 1)
        if "%" not in options.pattern or not numbers:
            raise ValueError(
                f"--{group}-pattern needs a % for the number, and numbers from --{group}-pattern-from up to "
                f"--{group}-pattern-to"
            )
        names = [options.pattern.replace("%", str(number)) for number in numbers]
    if len(names) * max(options.publishers, options.consumers) > MOST_CONNECTIONS:
        raise ValueError(f"more than {MOST_CONNECTIONS} publishers or consumers in all")
    return names


def count(text):
    """A count of things that this process holds."""
    return _number(text, int, MOST)


def at_least_one(text):
    """A count that is not 0."""
    return _number(text, int, MOST, 1)


def prefetch(text):
    """A 16-bit number."""
    return _number(text, int, 65535)


def amount(text):
    """A count of messages."""
    return _number(text, int, 1 << 62)


def real(text):
    """Seconds, or messages per second."""
    return _number(text, float, 1e9)


def _number(text, kind, most, least=0):
    """A number in bounds. Raises ArgumentTypeError with a one-line text."""
    try:
        number = kind(text)
    except ValueError:
        number = -1
    if not least <= number <= most or math.isnan(number):
        raise argparse.ArgumentTypeError(f"a number from {least} to {most:,.0f} is needed, not {text!r}")
    return number


def size(text):
    """The result of ``messages.parse_size``. Raises ArgumentTypeError."""
    try:
        sizes = messages.parse_size(text)
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"a size is a number of octets, a range such as 16-512, or a list such as 16,512,64, not {text!r}"
        ) from None
    if sizes[1] > MOST_OCTETS:
        raise argparse.ArgumentTypeError(f"a body has at most {MOST_OCTETS:,} octets")
    return sizes


def table(text):
    """A JSON object. Raises ArgumentTypeError."""
    try:
        found = json.loads(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"no JSON: {error}") from None
    if not isinstance(found, dict):
        raise argparse.ArgumentTypeError("a JSON object is needed")
    return found
