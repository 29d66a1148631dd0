"""Options of ``gomq-py-perf mqtt throughput``, and their checks."""
import os

from gomq_py.client.mqtt_url import DEFAULT_URL, VERSIONS, parse_mqtt_url
from gomq_py.mqtt.wire.constants import MQTT_3_1_1, MQTT_5, VARIABLE_MAX
from gomq_py.mqtt.wire.topics import is_shared, shared_fault, topic_filter_fault, topic_name_fault
from gomq_py.perf.mqtt_roles import encoded_properties, filter_of
from gomq_py.perf.options import add_common, add_load, add_writing, check_load, count, groups, prefetch

# Unacknowledged publishes must fit the 65535 packet identifiers of a connection.
_MOST_UNACKNOWLEDGED = 65535
_UNACKNOWLEDGED = 100


def throughput(options):
    """Add the options to a parser."""
    add_common(options, DEFAULT_URL)
    add_load(options, "topic")
    add = options.add_argument
    add("-u", "--topic", default="perf/test", help="topic name (%(default)s)")
    add("--filter", help="what the consumers subscribe to (the topic)")
    add(
        "--own-topics", action="store_true",
        help="publisher N publishes to TOPIC/N, consumers subscribe to TOPIC/+",
    )
    add("--share", metavar="NAME", help="the consumers of a topic are one shared subscription of that name")
    add("--qos", type=int, choices=(0, 1, 2), default=0, help="QoS of publishes (%(default)s)")
    add("--subscribe-qos", type=int, choices=(0, 1, 2), help="QoS of subscriptions (that of publishes)")
    add(
        "-c", "--confirm", type=count, default=_UNACKNOWLEDGED, metavar="N",
        help="at QoS 1 and 2 at most N publishes unacknowledged, and no more than the broker takes "
             "(%(default)s)",
    )
    add(
        "-p", "--persistent", action="store_true",
        help="consumers keep their sessions, so that the broker stores what is for them",
    )
    add(
        "-P", "--prefetch", type=prefetch, default=0, metavar="N",
        help="receive maximum of the consumers, needs MQTT 5 (65535)",
    )
    add(
        "-m", "--mqtt-version", choices=sorted(VERSIONS),
        help="protocol version (that of the URL, or 3.1.1)",
    )
    add_writing(add)


def checked(options):
    """Check options that depend on each other and derive others. Raises ValueError."""
    check_load(options)
    parameters = parse_mqtt_url(options.uri)
    options.version = (
        VERSIONS[options.mqtt_version] if options.mqtt_version
        else parameters.options.get("version", MQTT_3_1_1))
    if options.subscribe_qos is None:
        options.subscribe_qos = options.qos
    if not 1 <= options.confirm <= _MOST_UNACKNOWLEDGED:
        raise ValueError(f"--confirm is a number from 1 to {_MOST_UNACKNOWLEDGED}, not {options.confirm}")
    if options.prefetch and options.version < MQTT_5:
        raise ValueError("--prefetch needs --mqtt-version 5")
    if options.size[1] > VARIABLE_MAX - 2 * _MOST_UNACKNOWLEDGED:
        raise ValueError(f"a body of {options.size[1]} octets does not fit a packet of MQTT")
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
