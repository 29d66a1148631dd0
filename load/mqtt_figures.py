"""The MQTT rows of the performance table that one ``gomq-py-perf`` cannot measure: what an idle connection
takes, what a publish costs among a hundred thousand subscriptions, and what goes from MQTT to AMQP.
"""
import json
import random
import time

from gomq_py.client.mqtt import MQTTClient
from gomq_py.perf.process import cpu_seconds, memory_octets, raise_descriptor_limit
from load.scenarios import start

CONNECTION_COUNT = 1000
CLIENTS, FILTERS = 100, 1000  # of each client
PUBLISHES, TOPICS = 20_000, 1000
CROSSED = 500_000
SETTLE_S, PATIENCE_S = 1, 120
SEED = 1  # of the topics that are drawn

# key: (title, at most, what of)
LIMITS = {
    "idle": (
        "an idle connection with a clean session and one subscription: anonymous memory", 12 * 1024, "octets"
    ),
    "subscriptions": (
        "a publish to one of 100 000 subscriptions with wildcards, of 1000 topics: CPU us", 10, "us"),
    "crossing": ("QoS 0 to an AMQP consumer, 16 octets, automatic acks: CPU us per message", 0.6, "us"),
}


def measured(broker, rounds, every=True):
    """{key: the best of some rounds}, of the keys of LIMITS; without the last where the broker has no AMQP
    (not ``every``).
    """
    raise_descriptor_limit()
    figures = {"idle": idle_octets(broker)}
    figures["subscriptions"] = min(among_subscriptions(broker) for _ in range(rounds))
    if every:
        figures["crossing"] = min(crossing(broker) for _ in range(rounds))
    return figures


def idle_octets(broker):
    """Anonymous memory of a connection with a clean session and one subscription."""
    time.sleep(SETTLE_S)
    before = memory_octets(broker.pid)["anonymous"]
    clients = []
    try:
        for number in range(CONNECTION_COUNT):
            clients.append(MQTTClient(broker.mqtt_uri, client_identifier=f"idle{number}"))
            clients[-1].subscribe(f"idle/{number}")
        time.sleep(SETTLE_S)
        return (memory_octets(broker.pid)["anonymous"] - before) / CONNECTION_COUNT
    finally:
        _close(clients)


def among_subscriptions(broker):
    """CPU us of a publish and its one delivery."""
    draw = random.Random(SEED)
    clients = []
    try:
        for number in range(CLIENTS):
            clients.append(MQTTClient(broker.mqtt_uri, client_identifier=f"many{number}"))
            for first in range(0, FILTERS, 100):
                clients[-1].subscribe(*(f"many/{number}/+/{each}" for each in range(first, first + 100)))
        publisher = MQTTClient(broker.mqtt_uri)
        clients.append(publisher)
        topics = [(client % CLIENTS, draw.randrange(FILTERS)) for client in range(TOPICS)]
        began = cpu_seconds(broker.pid)
        expected = [0] * CLIENTS
        for _ in range(PUBLISHES):
            client, each = draw.choice(topics)
            expected[client] += 1
            publisher.publish(f"many/{client}/of/{each}", b"x" * 16)
        for client, count in zip(clients, expected, strict=False):
            for _ in range(count):
                if client.next_message(PATIENCE_S) is None:
                    raise RuntimeError("a message does not come")
        return (cpu_seconds(broker.pid) - began) / PUBLISHES * 1e6
    finally:
        _close(clients)


def crossing(broker):
    """CPU us of a message that is published over MQTT and consumed over AMQP."""
    consumer = start(
        broker, f"-x 0 -y 1 -u bench-crossing -e amq.topic -k bench.crossing --auto-delete -D {CROSSED} "
        f"-z {PATIENCE_S}")
    time.sleep(2 * SETTLE_S)
    began = cpu_seconds(broker.pid)
    publisher = start(broker, f"-y 0 -u bench/crossing -C {CROSSED}", protocol="mqtt")
    publisher.communicate()
    output, errors = consumer.communicate()
    spent = cpu_seconds(broker.pid) - began
    consumed = json.loads(output)["consumed"] if output else 0
    if consumed < CROSSED:
        raise RuntimeError(f"{consumed} of {CROSSED} messages came over AMQP: {errors}")
    return spent / consumed * 1e6


def table(figures):
    """Lines of the page: {broker's name: what measured() gave}."""
    names = list(figures)
    lines = ["| over MQTT | at most | " + " | ".join(names) + " |", "|---|---|" + "---|" * len(names)]
    for key, (title, most, unit) in LIMITS.items():
        cells = [_shown(figures[name].get(key), most, unit, name == names[0]) for name in names]
        lines.append(f"| {title} | {_figure(most, unit)} | {' | '.join(cells)} |")
    return lines


def _shown(figure, most, unit, is_ours):
    if figure is None:
        return "-"
    text = _figure(figure, unit)
    return f"*{text}*" if is_ours and figure > most else text


def _figure(figure, unit):
    return f"{figure / 1024:.1f} KiB" if unit == "octets" else f"{figure:.2f}"


def _close(clients):
    for client in clients:
        client.close()
