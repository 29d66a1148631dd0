"""Sockets that are written to without end, and not read: what load.attacks and load.mqtt_attacks share."""
import select
import time


def ready(sockets, event, most_s=0.0):
    """Those of the sockets that are ``event`` (select.POLLIN or POLLOUT) or broken, after at most so long.

    Any number, unlike select.select().
    """
    poll = select.poll()
    by_descriptor = {one.fileno(): one for one in sockets}
    for descriptor in by_descriptor:
        poll.register(descriptor, event)
    return [by_descriptor[descriptor] for descriptor, _ in poll.poll(most_s * 1000)]


def write_until(sockets, octets, ends_at, most_octets=None):
    """Write ``octets`` again and again to all sockets, at most so many to each, reading nothing.

    Returns (octets taken, sockets closed on us).
    """
    rest = {one: b"" for one in sockets}
    taken = dict.fromkeys(sockets, 0)
    sent = closed = 0
    while rest and time.monotonic() < ends_at:
        for one in ready(
            [one for one in rest if most_octets is None or taken[one] < most_octets], select.POLLOUT, 0.1
        ):
            data = rest[one] or octets
            try:
                count = one.send(data)
            except BlockingIOError:
                continue
            except OSError:
                closed += 1
                del rest[one]
                continue
            rest[one] = data[count:]
            taken[one] += count
            sent += count
    return sent, closed
