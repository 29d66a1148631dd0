"""The account of one queue: what was asked of the broker and what it answered, message by message, and what
therefore must hold after a crash.

Messages are numbers, published in rising order by one publisher, so a queue in order gives them in rising
order. Whoever drives the broker reports here; ``check`` compares with what a recovered queue gives. A kill
leaves the page cache, a power cut does not: they allow different things.
"""
import hashlib


def body_of(number, size=None):
    """The body of a message: its number and octets that follow from it, so that a mixed-up body is seen.

    ``size`` by the number when not given.
    """
    if size is None:
        size = (7, 40, 300, 1500, 5000)[number * 7919 % 5] if number % 97 else 150_000
    seed = hashlib.sha256(b"%d" % number).digest()
    return b"%d:%d:" % (number, size) + (seed * (size // len(seed) + 1))[:size]


def number_in(body):
    """The number in a body; AssertionError unless every octet is as published."""
    number, size = (int(part) for part in body.split(b":", 2)[:2])
    assert body == body_of(number, size), f"the body of {number} has changed"
    return number


class Account:
    """Sets of message numbers, each growing monotonically until a check makes the present known again."""

    def __init__(self):
        self.published = 0  # numbers below this were given to the broker
        self.given = set()  # those of them that this queue was to get, where it does not get all
        self.confirmed = set()  # the broker said so
        self.acked = set()  # an ack was sent, or the message may have gone otherwise
        self.settled = set()  # and a later answer on the same channel shows that the broker has seen it
        self.synced = set()  # and a sync has ended that began after that: the ack is on the disk
        self.received = set()  # the client has had it in hands at least once
        self.returned = {}  # number -> deliveries known to have failed
        self.deliveries = {}  # number -> deliveries seen

    def copy(self):
        other = Account()
        for name, value in vars(self).items():
            setattr(other, name, value if isinstance(value, int) else value.copy())
        return other

    def check(self, found, power_cut=False, order=True):
        """``found``: (number, redelivered) as the recovered queue gives them.

        AssertionError says what was promised and is not so.
        """
        numbers = [number for number, _ in found]
        present = set(numbers)
        assert len(numbers) == len(present), (
            f"twice: {sorted(number for number in present if numbers.count(number) > 1)}"
        )
        assert not order or numbers == sorted(numbers), (
            f"out of order: {[pair for pair in zip(numbers, numbers[1:]) if pair[0] > pair[1]]}"
        )
        assert all(number < self.published for number in present), "messages that nobody published"
        lost = self.confirmed - self.acked - present
        assert not lost, f"confirmed and lost: {sorted(lost)[:20]} of {len(lost)}; {len(present)} are there"
        gone = self.synced if power_cut else self.settled
        assert not gone & present, f"acked and back: {sorted(gone & present)[:20]}"
        if not power_cut:
            fresh = {number for number, redelivered in found if not redelivered}
            assert not fresh & self.received, (
                f"delivered before, but not marked as redelivered: {sorted(fresh & self.received)[:20]}"
            )

    def start_anew(self, found):
        """After a check of a restart: what was found is what there is, on the disk from here on,
        and those that were not are gone for good.
        """
        present = {number for number, _ in found}
        everything = self.given or set(range(self.published))
        self.acked |= everything - present
        self.settled |= everything - present
        self.acked -= present
        self.received |= present
        self.confirmed |= present
