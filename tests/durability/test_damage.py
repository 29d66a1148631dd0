"""Torn and bit-flipped segments: a file cut at every octet, every octet of a file flipped;
a fault costs what it hit, and not more.

Each damaged folder is recovered twice, because the first recovery must not make it worse for the second
(LavinMQ lost messages at the second start).
"""
import os
import shutil

import pytest

from gomq_py.ctl.fsck import check_folder
from tests.durability.store_driver import Life
from tests.support.node import Node
from tests.support.unflushed import Unflushed

SIZES = (1, 30, 5, 0, 17)
COUNT = len(SIZES)
PADDING = 8  # records end at a multiple of this; the last octets may be nothing
ACKED = {1, 3}
KEPT = [number for number in range(COUNT) if number not in ACKED]


class Original:
    """A store's folder that was left by a kill or by an orderly stop, and where its records lie."""

    def __init__(self, root, orderly):
        self.root = root
        life = Life(root, Unflushed())
        for number in range(COUNT):
            life.publish(number, True, SIZES[number])
        life.store.write_out()
        taken = life.take_all()
        self.positions = [location & 0xFFFFFFF for _, location, _, _ in taken]
        for number, location, _, _ in reversed(taken):
            if number in ACKED:
                life.store.delete(location)
            else:
                life.store.requeue(location)
        life.store.write_out()
        self.folder = life.store.folder
        if orderly:
            life.stop()
        self.msgs = os.path.join(self.folder, "msgs.0000000001")
        self.acks = os.path.join(self.folder, "acks.0000000001")
        with open(self.msgs, "rb") as file:
            content = file.read()
        self.end = len(content.rstrip(b"\0"))
        self.end += -self.end % PADDING

    def hit(self, at):
        """The number of the message whose record holds this octet, or None."""
        before = [number for number, position in enumerate(self.positions) if position <= at]
        return before[-1] if before else None


@pytest.fixture(autouse=True)
def quiet(caplog):
    """What is reported is reported thousands of times here."""
    caplog.set_level("CRITICAL", "gomq_py")


@pytest.fixture(params=[False, True], ids=["killed", "stopped"])
def original(request, tmp_path):
    return Original(tmp_path / "original", request.param)


def recovered(root, thoroughly):
    """The numbers that are there; ``thoroughly``: the same in a second recovery,
    and in a third one with a message more.
    """
    numbers = one_recovery(root)
    if thoroughly:
        assert one_recovery(root) == numbers, "a second recovery finds something else"
        assert one_recovery(root, 99) == numbers + [99]
    return numbers


def one_recovery(root, more=None):
    life = Life(root, Unflushed())
    if more is not None:
        life.publish(more, True)
    taken = life.take_all()
    for _, location, _, _ in taken:
        life.store.requeue(location)
    life.stop()
    return [number for number, _, _, _ in taken]


def damaged_copy(original, tmp_path, path, change):
    """A copy of the original with ``change(octets)`` in place of one file's octets."""
    root = tmp_path / "damaged"
    if root.exists():
        shutil.rmtree(root)
    shutil.copytree(original.root, root)
    target = root / os.path.relpath(path, original.root)
    target.write_bytes(change(target.read_bytes()))
    return root


def flipped(octets, at):
    return octets[:at] + bytes((octets[at] ^ 0x41,)) + octets[at + 1:]


def test_messages_cut_at_every_octet_leave_the_whole_records_before(original, tmp_path):
    ends = original.positions[1:] + [original.end]
    for size in [*range(original.end + 1), original.end + 1000]:
        root = damaged_copy(original, tmp_path, original.msgs, lambda octets: octets[:size])

        numbers = recovered(root, size % 4 == 0)

        whole = {number for number in KEPT if ends[number] <= size}
        nearly = {number for number in KEPT if ends[number] - PADDING < size}
        assert whole <= set(numbers) <= nearly and numbers == sorted(numbers), size


def test_every_flipped_octet_of_messages_costs_at_most_the_record_it_hit(original, tmp_path):
    for at in range(original.end):
        root = damaged_copy(original, tmp_path, original.msgs, lambda octets: flipped(octets, at))

        numbers = recovered(root, at % 4 == 0)

        lost = set(KEPT) - set(numbers)
        assert lost <= {original.hit(at)}, f"octet {at}"
        assert set(numbers) <= set(KEPT), f"octet {at}: acked messages are back"
        assert numbers == sorted(numbers)


def test_a_record_that_was_flushed_is_reported_when_an_octet_of_it_has_changed(tmp_path):
    """Every octet of every record that had been flushed: head, names, properties, body, checksums.

    None is lost in silence.
    """
    original = Original(tmp_path / "original", True)
    for at in range(original.positions[0], original.end):
        root = damaged_copy(original, tmp_path, original.msgs, lambda octets: flipped(octets, at))

        life = Life(root, Unflushed())
        numbers = [number for number, _, _, _ in life.take_all()]
        life.committer.kill()

        lost = set(KEPT) - set(numbers)
        assert not lost or sum(count for *_, count in life.damaged) == len(lost), (
            f"octet {at}: {lost} lost, reported {life.damaged}"
        )
        assert not lost or all(start <= at < end for _, start, end, _ in life.damaged), (
            f"octet {at}: {life.damaged}"
        )


def test_acks_cut_at_every_octet_lose_no_message(original, tmp_path):
    for size in [*range(200), 400]:
        root = damaged_copy(original, tmp_path, original.acks, lambda octets: octets[:size])

        numbers = recovered(root, size % 4 == 0)

        assert set(KEPT) <= set(numbers) <= set(range(COUNT)), size


def test_every_flipped_octet_of_acks_costs_at_most_one_ack_and_no_message(original, tmp_path):
    for at in range(200):
        root = damaged_copy(original, tmp_path, original.acks, lambda octets: flipped(octets, at))

        numbers = recovered(root, at % 4 == 0)

        assert set(KEPT) <= set(numbers), f"octet {at}"
        assert len(set(numbers) - set(KEPT)) <= 1, f"octet {at}"


# acks that an orderly stop has left

@pytest.fixture
def stopped(tmp_path):
    """A folder of a queue "jobs" and how many messages were taken of it, by an orderly stop."""
    def stop(acknowledged):
        node = Node(tmp_path / "data")
        node.vhost.declare_queue("jobs", durable=True)
        for number in range(100):
            node.publish("", "jobs", b"%03d" % number, persistent=True)
        queues = tmp_path / "data" / "queues"
        node.wait(lambda: list(queues.rglob("acks.*")))  # a thread gives files their names
        for _ in range(acknowledged):
            node.take("jobs")
        node.stop()
        acks, = queues.rglob("acks.*")
        return acks
    return stop


def zeroed_head(octets):
    return bytes(512) + octets[512:]


def flipped_head(octets):
    return flipped(octets, 20)


def zeroed_entries(octets):
    return octets[:128] + bytes(len(octets) - 128)


@pytest.mark.parametrize(("acknowledged", "ruin", "back"), [
    (0, zeroed_head, 0), (50, zeroed_head, 50), (100, zeroed_head, 0),
    (50, flipped_head, None), (100, flipped_head, 0), (50, zeroed_entries, 50),
], ids=lambda value: getattr(value, "__name__", value))
def test_acks_that_an_orderly_stop_left_and_that_are_damaged_are_said_and_kept(
    stopped, caplog, acknowledged, ruin, back
):
    """The list of segments says how many were left: where none was, none comes back."""
    caplog.set_level("WARNING", "gomq_py")
    acks = stopped(acknowledged)
    root, ruined = acks.parents[2], ruin(acks.read_bytes())
    acks.write_bytes(ruined)
    findings = check_folder(root)

    node = Node(root)
    count, kept = node.vhost.queue("jobs").ready_count, node.broker.damage()[1]
    said = caplog.text
    caplog.clear()
    node.stop()
    Node(root).stop()

    assert str(acks) in [path for path, _ in findings.damage]
    assert acknowledged == 100 or f"damaged: {acks}" in said
    assert "damaged" in said and not caplog.text
    assert str(acks.with_name(f"damaged.{acks.name}")) in kept
    assert acks.with_name(f"damaged.{acks.name}").read_bytes() == ruined
    if back is None:  # the entries check by themselves where the head does not
        back = count - (100 - acknowledged)
    assert count == 100 - acknowledged + back and f"{back} message(s) that had been" in said or not back


def test_a_kill_leaves_acks_without_a_head_in_silence(tmp_path, caplog):
    """Nothing was promised of them, and files go round."""
    caplog.set_level("WARNING", "gomq_py")
    original = Original(tmp_path / "original", False)
    root = damaged_copy(original, tmp_path, original.acks, zeroed_head)

    assert one_recovery(root) == list(range(COUNT)) and not caplog.text
