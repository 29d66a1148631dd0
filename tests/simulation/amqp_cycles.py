"""AMQP clients of three queues whose dead letters go round. Where messages expire in all three, one that
comes to a queue that it has died in by itself is dropped; where they do not expire in the last one they are
there until a client takes them, however often one has rejected them.
"""
from tests.simulation.amqp_channel import OF_CONSUMERS, OF_PUBLISHERS, Channel
from tests.simulation.amqp_clients import AMQPClient
from tests.simulation.queue_ledger import QueueLedger

SHARE = 0.15
QUEUES = 3
REJECTED = "rejected"


class CycleLedger(QueueLedger):
    """Of one queue of a cycle, which may be ``automatic``."""

    def __init__(self, world, name, book, expires, is_automatic):
        super().__init__(world, name, book, ["letters", *["expiring"] * expires])
        self._is_automatic = is_automatic

    def may_drop(self, message, ttl_s=None):
        return self._is_automatic

    def check_death(self, message, copy, headers, root):
        super().check_death(message, copy, headers, root)
        if headers["x-last-death-reason"] == REJECTED:
            return
        for death in headers["x-death"]:  # the latest first
            if death["reason"] == REJECTED:
                self.exercised["rejected in a cycle"] += 1
                return
            if death["queue"] == self.name:
                self.find(f"{copy} has come round")
        self.exercised["in a cycle"] += 1


def clients_of_cycles(world, network, book, left):
    """Those of a seed that has them, or none."""
    random = world.random("cycles")
    if not left(["y0"], random.random() < SHARE):
        return []
    is_automatic = random.random() < 0.5
    ledgers = [
        CycleLedger(world, f"y0-{number}", book, is_automatic or number < QUEUES - 1, is_automatic)
        for number in range(QUEUES)]
    for number, ledger in enumerate(ledgers):
        ledger.dies_to = ledgers[(number + 1) % QUEUES]
    world.say("y0", "is automatic" if is_automatic else "ends with its clients")
    roles = [(Channel, ledgers[0], None, False, False, [
        "publish", *random.sample(OF_PUBLISHERS, random.randrange(len(OF_PUBLISHERS) + 1))])]
    for ledger in [ledgers[-1], *random.sample(ledgers[:-1], random.choice((0, 0, 1)))]:
        actions = random.sample(OF_CONSUMERS, random.randrange(len(OF_CONSUMERS) + 1))
        roles.append((Channel, None, ledger, False, random.random() < 0.7, [
            *dict.fromkeys((*actions, "reject", "ack_multiple", "get"))]))
    count = random.randrange(1, len(roles) + 1)
    return [
        AMQPClient(world, network, f"cycling-{number}", book, roles[number::count])
        for number in range(count)]
