"""SIGKILL of either broker of a link at random moments: with on-confirm nothing is lost, and the order stays
but for what is sent again.

``make kills`` is 100 of them. The account is printed: kills a side, messages, how many came twice.
"""
import os
from random import Random

from gomq_py.content.properties import Properties
from tests.durability.seeds import seeds
from tests.support.links import connect, depth, ended, fill, numbers, take_all, until

KILLS = int(os.environ.get("GOMQ_LINK_KILLS", "6"))
EACH = 2000  # messages between two kills
KEPT = Properties(delivery_mode=2)
WIDTH = 200
SIDES = "source: ", "destination: "


def body():
    """Of a numbered message."""
    return b"%d " + b"x" * WIDTH


def pytest_generate_tests(metafunc):
    if "seed" in metafunc.fixturenames:
        metafunc.parametrize("seed", seeds(1))


def test_nothing_is_lost_and_order_is_kept_over_kills_of_either_side(pair, queues, make_link, seed):
    queue, *channels = queues
    draw = Random(seed)
    link = make_link()
    link.start()
    published, killed = 0, [0, 0]

    for number in range(KILLS):
        victim = number % 2
        fill(channels[0], queue, EACH, KEPT, body=body(), first=published)
        published += EACH
        wanted = link.status.moved + draw.choice((0, 1, draw.randrange(EACH)))
        until(lambda: link.status.moved >= wanted or not depth(channels[0], queue))  # noqa: B023
        pair[victim].kill()
        killed[victim] += 1
        until(lambda: link.status.error.startswith(SIDES[victim]))  # noqa: B023
        pair[victim].start()
        channels[victim].connection.abort()
        channels[victim] = connect(pair[victim].amqp_url, heartbeat_s=0).channel()
    until(lambda: link.status.state == "running")
    ended(link)
    while depth(channels[0], queue):  # what was delivered and not read yet comes back at a stop
        link.start()
        until(lambda: depth(channels[0], queue) == 0 and not link.status.unconfirmed)
        ended(link)

    came = numbers(take_all(channels[1], queue, depth(channels[1], queue)))
    firsts = list(dict.fromkeys(came))
    print(f"{killed} kills, {published} messages, {len(came) - published} more than once")
    assert firsts == list(range(published))
