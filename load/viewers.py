"""``python -m load.viewers``: what a page of a long list costs,
for its first viewer of an interval and for the next ones.

CPU milliseconds of the broker's hub for each request to the management API, of a broker with many queues,
exchanges, channels and consumers. ``--size`` of each, fewer connections. Prints a table for
docs/performance.md.
"""
import argparse
import sys
import tempfile
import time

from gomq_py.amqp.wire.methods import BasicConsume, ChannelOpen, ExchangeDeclare
from gomq_py.amqp.wire.frames import method_frame
from load.brokers import GomqBroker
from load.long_work import Client

# etc/gomq.ini has no other stats_interval.
INTERVAL_S = 5
NEXT_VIEWERS = 5
CHANNELS_OF_A_CONNECTION = 2000
CONNECTIONS = 500
PAGE = "page=1&page_size=100"
SORTED = f"{PAGE}&sort=messages&sort_reverse=true"
PATHS = (
    f"queues?{PAGE}", f"queues?{SORTED}", f"queues?{SORTED}&name=7",
    f"queues?{SORTED}&name=q.*7&use_regex=true",
    f"queues?{PAGE}&sort=message_stats.publish_details.rate&sort_reverse=true",
    f"queues?{SORTED}&columns=name,messages", f"queues?{SORTED}&disable_stats=true&enable_queue_totals=true",
    "queues", f"exchanges?{PAGE}&sort=name", f"connections?{PAGE}&sort=channels",
    f"channels?{PAGE}&sort=name", f"consumers?{PAGE}&sort=queue.name",
)


def main(arguments=None):
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m load.viewers", description=__doc__)
    parser.add_argument(
        "--size", type=int, default=10_000, help="of everything but connections (%(default)s)"
    )
    parser.add_argument("--paths", nargs="*", default=PATHS, help="only these, below /api/")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="gomq-viewers-") as folder:
        broker = GomqBroker(folder, management=True, metered=True).start()
        try:
            clients = fill(broker, options.size)
            print(
                "| GET /api/ | first viewer of an interval | longest piece | next ones, each | after a "
                "declare |\n|---|---|---|---|---|"
            )
            for path in options.paths:
                print(line(broker, clients[0], path), flush=True)
        finally:
            broker.stop()
    return 0


def fill(broker, size):
    """Have so many of everything; answers the clients whose connections are among it."""
    client = Client(broker)
    client.declare(size)
    client.send(ExchangeDeclare(exchange=f"x{number}", type="topic", no_wait=True) for number in range(size))
    client.send(
        BasicConsume(queue=f"q{number}", consumer_tag=f"c{number}", no_wait=True) for number in range(size)
    )
    clients = [client]
    for _ in range(0, size, CHANNELS_OF_A_CONNECTION):
        clients.append(Client(broker))
        clients[-1].send(
            method_frame(number, ChannelOpen()) for number in range(2, CHANNELS_OF_A_CONNECTION + 2)
        )
    return [*clients, *(Client(broker) for _ in range(CONNECTIONS))]


def line(broker, client, path):
    """A row of the table."""
    time.sleep(INTERVAL_S + 1)
    longest, first = fetched(broker, client, path)
    following = [fetched(broker, client, path)[1] for _ in range(NEXT_VIEWERS)]
    client.channel.queue_declare(f"another-{time.monotonic_ns()}")
    time.sleep(0.1)
    _, after = fetched(broker, client, path)
    return f"| {path} | {first:.1f} | {longest:.1f} | {sum(following) / len(following):.1f} | {after:.1f} |"


def fetched(broker, client, path):
    """(longest piece, all) of the hub's CPU time that a request took, in ms."""
    broker.pieces()
    client.request("GET", path)
    return broker.pieces()


if __name__ == "__main__":
    sys.exit(main())
