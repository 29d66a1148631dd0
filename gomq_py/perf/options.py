"""Declares the command line options of all scenarios, and checks options that depend on each other."""
import argparse
import json
import math
import os
import struct

from gomq_py.client.url import DEFAULT_MQTT_URL, DEFAULT_URL, MQTT_VERSIONS, parse_mqtt_url
from gomq_py.mqtt.wire.constants import MQTT_3_1_1, MQTT_5, VARIABLE_MAX
from gomq_py.mqtt.wire.topics import is_shared, shared_fault, topic_filter_fault, topic_name_fault
from gomq_py.perf import messages
from gomq_py.perf.mqtt_throughput import encoded_properties, filter_of

# 16 million: a queue, window or table of this process that fits into memory.
MOST = 1 << 24
# Per kind: sockets of one machine to one port.
MOST_CONNECTIONS = 65535
# RabbitMQ's limit for a message.
MOST_OCTETS = 512 * 1024 * 1024
# Unacknowledged publishes must fit the 65535 packet identifiers of a connection.
_MOST_UNACKNOWLEDGED = 65535
_UNACKNOWLEDGED = 100


def add_amqp_throughput(options):
    """Add the options of ``amqp throughput``."""
    add_common(options, DEFAULT_URL)
    add_load(options, "queue")
    add = options.add_argument
    add("-a", "--ack", type=amount, default=0, metavar="N",
        help="acknowledge every N messages; 0: consume without acks (%(default)s)")
    add("-c", "--confirm", type=count, default=0, metavar="N",
        help="publisher confirms, at most N outstanding (off)")
    add("-t", "--transaction", dest="publish_transaction", type=amount, default=0, metavar="N",
        help="commit every N publishes (off)")
    add("-T", "--transaction-ack", dest="ack_transaction", type=amount, default=0, metavar="N",
        help="commit every N acks (off)")
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
    add("--binding-count", type=count, default=1, metavar="N",
        help="topic bindings of each queue, which match all keys together (%(default)s)")
    add("--header-count", type=count, default=0, metavar="N", help="entries of a headers table (none)")
    add("--header-every", type=lambda text: _number(text, int, MOST, 1), default=1, metavar="N",
        help="only every N-th message has that table (each has)")
    add("--mandatory", action="store_true", help="mandatory messages")
    add("--transient-queue", dest="durable", action="store_false", help="declare a queue that is not durable")
    add("--auto-delete", action="store_true", help="declare a queue that goes away with its consumers")
    add("--purge", action="store_true",
        help="empty the queues first; without it messages of earlier runs are consumed, too")
    add("--predeclared", action="store_true",
        help="declare, bind and empty nothing; use the queues and exchanges there are")
    add_writing(add)


def add_queue_count(options):
    """Add the options of ``queue-count``."""
    add_common(options, DEFAULT_URL)
    add = options.add_argument
    add("-q", "--queues", dest="count", type=count, default=100, help="how many (%(default)s)")
    add("-u", "--queue", default="perf-queue", help="beginning of their names (%(default)s)")
    add("-D", "--transient", dest="durable", action="store_false", help="queues that are not durable")
    add("-n", "--no-wait", action="store_true", help="declare without waiting for each answer")
    add("--arguments", type=table, default={}, metavar="JSON", help="arguments of the queues")
    add("--delete", action="store_true", help="delete them at the end")


def add_connection_count(options):
    """Add the options of ``connection-count``."""
    add_common(options, DEFAULT_URL)
    add = options.add_argument
    add("-x", "--connections", dest="count", type=count, default=100, help="how many (%(default)s)")
    add("-c", "--channels", type=count, default=1, help="channels of each connection (%(default)s)")
    add("-C", "--consumers", type=count, default=0, help="consumers of each channel (%(default)s)")
    add("-u", "--queue", default="perf-test", help="queue of the consumers (%(default)s)")
    add("-l", "--localhost", action="store_true", help="connect to random addresses in 127.0.0.0/16")
    add("-k", "--keepalive", metavar="IDLE:INTERVAL:COUNT",
        help="TCP keepalive of the connections, seconds and probes")
    add("-z", "--time", dest="seconds", type=real, default=0, metavar="SECONDS",
        help="hold them that long (until interrupted)")


def add_churn(options):
    """Add the options of the churn scenarios."""
    add_common(options, DEFAULT_URL)
    add = options.add_argument
    add("-z", "--time", dest="seconds", type=real, default=0, metavar="SECONDS",
        help="for that long (until interrupted)")
    add("-D", "--transient", dest="durable", action="store_false", help="with a queue that is not durable")
    add("-q", "--quiet", action="store_true", help="print the summary only")


def add_mqtt_throughput(options):
    """Add the options of ``mqtt throughput``."""
    add_common(options, DEFAULT_MQTT_URL)
    add_load(options, "topic")
    add = options.add_argument
    add("-u", "--topic", default="perf/test", help="topic name (%(default)s)")
    add("--filter", help="what the consumers subscribe to (the topic)")
    add("--own-topics", action="store_true",
        help="publisher N publishes to TOPIC/N, consumers subscribe to TOPIC/+")
    add("--share", metavar="NAME", help="the consumers of a topic are one shared subscription of that name")
    add("--qos", type=int, choices=(0, 1, 2), default=0, help="QoS of publishes (%(default)s)")
    add("--subscribe-qos", type=int, choices=(0, 1, 2), help="QoS of subscriptions (that of publishes)")
    add("-c", "--confirm", type=count, default=_UNACKNOWLEDGED, metavar="N",
        help="at QoS 1 and 2 at most N publishes unacknowledged, and no more than the broker takes "
             "(%(default)s)")
    add("-p", "--persistent", action="store_true",
        help="consumers keep their sessions, so that the broker stores what is for them")
    add("-P", "--prefetch", type=prefetch, default=0, metavar="N",
        help="receive maximum of the consumers, needs MQTT 5 (65535)")
    add("-m", "--mqtt-version", choices=sorted(MQTT_VERSIONS),
        help="protocol version (that of the URL, or 3.1.1)")
    add_writing(add)


def add_common(options, url):
    """Add the options that every scenario has. ``url``: the broker's default URL."""
    options.add_argument("--uri", default=url, help="broker to load (%(default)s)")
    options.add_argument("--timeout", dest="timeout_s", type=real, default=30, metavar="SECONDS",
                         help="for each answer of the broker (%(default)s)")
    options.add_argument(
        "-j", "--json", action="store_true", help="print the result as JSON, and nothing else")
    options.add_argument("--broker-pid", type=count, default=0, metavar="PID",
                         help="measure that process's CPU time and memory, too")


def add_load(options, group):
    """Add the options for publishers and consumers. ``group``: "queue" or "topic", for the help texts."""
    add = options.add_argument
    add("-q", "--quiet", action="store_true", help="print the summary only")
    add("-x", "--publishers", type=count, default=1,
        help=f"connections that publish, per {group} (%(default)s)")
    add("-y", "--consumers", type=count, default=1,
        help=f"connections that consume, per {group} (%(default)s)")
    add("-s", "--size", type=size, default=(16, 16),
        help="bytes of a body, a range such as 16-512, or a list such as 16,512,64 taken in turn (16)")
    add("-V", "--verify", action="store_true",
        help="number the messages and check order, count and bodies; needs 8 bytes of body")
    add("-r", "--rate", type=real, default=0, help="messages per second of each publisher (unlimited)")
    add("-R", "--consumer-rate", dest="consume_rate", type=real, default=0,
        help="messages per second of each consumer (unlimited)")
    add("-z", "--time", dest="seconds", type=real, default=0, metavar="SECONDS",
        help="publish for that long (until interrupted)")
    add("-C", "--pmessages", dest="publish_count", type=amount, default=0, metavar="N",
        help="publish N messages in all")
    add("-D", "--cmessages", dest="consume_count", type=amount, default=0, metavar="N",
        help="stop after N consumed messages, or shortly after")
    add("-l", "--measure-latency", action="store_true",
        help="from write to read, by a timestamp in each body, which needs 8 bytes; of AMQP's confirms, too")
    add("--properties", type=table, default={}, metavar="JSON",
        help="properties of the messages, by their names")
    add("--random-bodies", action="store_true", help="bodies of random bytes, the same in every run")
    add(f"--{group}-pattern", dest="pattern", metavar="NAME-%%",
        help=f"many {group}s, %% standing for a number; publishers and consumers for each")
    add(f"--{group}-pattern-from", dest="pattern_from", type=count, default=1, metavar="N",
        help="first number (%(default)s)")
    add(f"--{group}-pattern-to", dest="pattern_to", type=count, default=1, metavar="N",
        help="last number (%(default)s)")


def add_writing(add):
    """Add the options for socket writes and waits. ``add``: ``add_argument`` of an argument group."""
    add("--write-octets", type=count, default=messages.WRITE_OCTETS, metavar="N",
        help="bytes per write (%(default)s); 1: a message in each, and a TCP segment")
    add("--mergeable", action="store_true",
        help="with --write-octets 1: the system may merge writes that have to wait, as those of most clients")
    add("--burst", type=count, default=1, metavar="N",
        help="with --rate: so many messages are published at a time (%(default)s)")
    add("--processes", type=count, default=0, metavar="N",
        help="at most N processes for publishers and for consumers (half the processors)")
    add("--drain", dest="drain_s", type=real, default=30, metavar="SECONDS",
        help="wait for consumers and confirms at the end (%(default)s)")


def check_amqp(options):
    """Check the options of ``amqp throughput`` together; set ``options.queues``. Raises ValueError."""
    check_load(options)
    if options.confirm and options.publish_transaction:
        raise ValueError("a channel is either transactional or confirming: --confirm or --transaction")
    if options.ack_transaction and not options.ack:
        raise ValueError("--transaction-ack needs --ack")
    if options.prefetch and options.ack > options.prefetch:
        raise ValueError("--ack every N with a smaller --prefetch would wait for ever")
    is_direct = options.exchange_type == "direct" or options.exchange == "amq.direct"
    if options.key_count > 1 and (not options.exchange or is_direct and not options.predeclared):
        raise ValueError(
            "--key-count needs an --exchange of --exchange-type topic; a direct exchange such as the default "
            "one would route none of the keys")
    try:
        messages.properties(options)
    except (TypeError, ValueError, AttributeError, struct.error) as error:
        raise ValueError(f"--properties: {error}") from None
    options.queues = groups(options, "queue", options.queue)
    return options


def check_mqtt(options):
    """Check the options of ``mqtt throughput`` together; set ``options.topics``. Raises ValueError."""
    check_load(options)
    parameters = parse_mqtt_url(options.uri)
    options.version = (
        MQTT_VERSIONS[options.mqtt_version] if options.mqtt_version
        else parameters.options.get("version", MQTT_3_1_1))
    if options.subscribe_qos is None:
        options.subscribe_qos = options.qos
    if not 1 <= options.confirm <= _MOST_UNACKNOWLEDGED:
        raise ValueError(f"--confirm is a number from 1 to {_MOST_UNACKNOWLEDGED}, not {options.confirm}")
    if options.prefetch and options.version < MQTT_5:
        raise ValueError("--prefetch needs --mqtt-version 5")
    if options.size[1] > VARIABLE_MAX - 2 * _MOST_UNACKNOWLEDGED:
        raise ValueError(f"a body of {options.size[1]} bytes does not fit a packet of MQTT")
    try:
        encoded_properties(options)
    except (TypeError, ValueError, AttributeError) as error:
        raise ValueError(f"--properties: {error}") from None
    options.topics = groups(options, "topic", options.topic)
    for topic in options.topics:
        topic_filter = filter_of(options, topic)
        fault = topic_name_fault(topic) or topic_filter_fault(topic_filter) or (
            is_shared(topic_filter) and shared_fault(topic_filter))
        if fault:
            raise ValueError(fault)
    # Prefix of client identifiers. The same in every run over a topic, so that kept sessions are found again.
    options.name = f"perf-{options.pattern or options.topic}" if options.persistent else f"perf-{os.getpid()}"
    return options


def check_load(options):
    """Raise ValueError if the options for publishers and consumers contradict each other."""
    needed = messages.Stamps(options.verify, options.measure_latency).end
    if options.size[0] < needed:
        raise ValueError(f"--verify and --measure-latency need bodies of {needed} bytes")


def groups(options, group, single):
    """Return the names of the run's queues or topics, as a list. Raises ValueError.

    The option ``pattern`` gives a name for each number of its range; without it ``single`` is the only name.
    ``group``: "queue" or "topic", for the error's text.
    """
    if not options.pattern:
        names = [single]
    else:
        numbers = range(options.pattern_from, options.pattern_to + 1)
        if "%" not in options.pattern or not numbers:
            raise ValueError(
                f"--{group}-pattern needs a % for the number, and numbers from --{group}-pattern-from up to "
                f"--{group}-pattern-to")
        names = [options.pattern.replace("%", str(number)) for number in numbers]
    if len(names) * max(options.publishers, options.consumers) > MOST_CONNECTIONS:
        raise ValueError(f"more than {MOST_CONNECTIONS} publishers or consumers in all")
    return names


def count(text):
    return _number(text, int, MOST)


def prefetch(text):
    """Parse a prefetch limit, a 16-bit number. Raises ArgumentTypeError."""
    return _number(text, int, 65535)


def amount(text):
    return _number(text, int, 1 << 62)


def real(text):
    """Parse a decimal number: seconds, or messages per second. Raises ArgumentTypeError."""
    return _number(text, float, 1e9)


def _number(text, kind, most, least=0):
    try:
        number = kind(text)
    except ValueError:
        number = -1
    if not least <= number <= most or math.isnan(number):
        raise argparse.ArgumentTypeError(f"a number from {least} to {most:,.0f} is needed, not {text!r}")
    return number


def size(text):
    """Parse the sizes of bodies as ``messages.parse_size`` does. Raises ArgumentTypeError."""
    try:
        sizes = messages.parse_size(text)
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"a size is a number of bytes, a range such as 16-512, or a list such as 16,512,64, not {text!r}"
        ) from None
    if sizes[1] > MOST_OCTETS:
        raise argparse.ArgumentTypeError(f"a body has at most {MOST_OCTETS:,} bytes")
    return sizes


def table(text):
    """Parse a JSON object into a dict. Raises ArgumentTypeError."""
    try:
        found = json.loads(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"no JSON: {error}") from None
    if not isinstance(found, dict):
        raise argparse.ArgumentTypeError("a JSON object is needed")
    return found
