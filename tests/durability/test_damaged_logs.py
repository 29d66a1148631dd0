"""Every octet of the definitions and of the users flipped: it costs at most the record it hit, which is
reported, and never the boot.
"""
import logging
import shutil

import pytest

from gomq_py.ctl.fsck import check_folder
from tests.support.node import Node
from tests.support.unflushed import Unflushed


def facts_of(node):
    """What is set up, one fact per record of the logs."""
    found = {("user", user.name) for user in node.broker.users}
    for user in node.broker.users:
        found |= {("permission", user.name, vhost) for vhost in user.permissions}
    for vhost in node.broker.vhosts.values():
        found |= {("vhost", vhost.name)} | {("queue", vhost.name, name) for name in vhost.queues}
        for exchange in vhost.exchanges.values():
            if exchange.name and not exchange.name.startswith("amq."):
                found.add(("exchange", vhost.name, exchange.name))
            found |= {
                ("binding", exchange.name, binding.destination.name, binding.routing_key)
                for binding in exchange.bindings()
            }
    return found


@pytest.fixture
def original(tmp_path):
    """A data folder with a few definitions and users, flushed and closed."""
    node = Node(tmp_path / "original", Unflushed())
    vhost = node.vhost
    vhost.declare_queue("q", durable=True)
    vhost.declare_queue("p", durable=True, arguments={"x-max-length": 5})
    vhost.declare_exchange("x", "topic", True)
    vhost.bindings.bind_queue("q", "x", "#")
    node.broker.users.set_user("u", password_hash="", tags=("management",))
    node.broker.users.set_permission("u", "/", "a", "b", "c")
    node.stop()
    return tmp_path / "original"


# What goes with a thing that is gone.
DEPENDS = {
    ("queue", "/", "q"): {("binding", "x", "q", "#")}, ("exchange", "/", "x"): {("binding", "x", "q", "#")},
    ("user", "u"): {("permission", "u", "/")}, ("user", "guest"): {("permission", "guest", "/")},
}


@pytest.mark.parametrize("log, step", [
    ("definitions", 17), ("users", 17), pytest.param("definitions", 1, marks=pytest.mark.long),
    pytest.param("users", 1, marks=pytest.mark.long),
])
def test_a_flipped_octet_costs_at_most_its_record_and_is_said(original, tmp_path, caplog, log, step):
    whole = Node(original, Unflushed())
    expected = facts_of(whole)
    whole.stop()
    content = (original / log).read_bytes()
    for at in range(0, len(content), step):
        root = tmp_path / "damaged"
        shutil.rmtree(root, ignore_errors=True)
        shutil.copytree(original, root)
        (root / log).write_bytes(content[:at] + bytes((content[at] ^ 0x41,)) + content[at + 1:])
        caplog.clear()

        with caplog.at_level(logging.WARNING, "gomq_py"):
            node = Node(root, Unflushed())
        found = facts_of(node)
        node.stop()

        lost = expected - found
        roots = [
            fact
            for fact in lost if not any(fact in gone and owner in lost for owner, gone in DEPENDS.items())
        ]
        assert len(roots) <= 1, f"octet {at}: {lost}"
        assert not lost or log in caplog.text, f"octet {at}: {lost} without a word"
        again = Node(root, Unflushed())
        assert facts_of(again) == found, f"octet {at}"
        again.stop()


@pytest.mark.parametrize("log, last", [("users", "delete_user"), ("definitions", "delete_queue")])
def test_a_flip_in_the_last_change_is_loud_and_the_file_is_kept(original, tmp_path, caplog, log, last):
    """Whoever was deleted is there again, but nobody takes it for the ordinary end of a crash: file, octets
    and what to look at are in the log.
    """
    node = Node(original, Unflushed())
    before = (original / log).stat().st_size
    if last == "delete_user":
        node.broker.users.delete_user("u")
    else:
        node.vhost.delete_queue("p")
    node.stop()
    content = (original / log).read_bytes()
    assert len(content) > before
    for at in range(before, len(content), 7):
        root = tmp_path / "damaged"
        shutil.rmtree(root, ignore_errors=True)
        shutil.copytree(original, root)
        (root / log).write_bytes(damaged := content[:at] + bytes((content[at] ^ 0x41,)) + content[at + 1:])
        caplog.clear()

        with caplog.at_level(logging.ERROR, "gomq_py"):
            Node(root, Unflushed()).stop()

        assert (
            f"{log}: {root / log}: changes in bytes {before} to {len(content)} are lost" in caplog.text
        ), at
        assert (
            f"{log}.damaged. Check" in caplog.text and (root / f"{log}.damaged").read_bytes() == damaged
        ), at


def boot(root, caplog):
    """Boot and stop; what was logged from warnings on,
    once the log that was damaged has been written anew.
    """
    caplog.clear()
    with caplog.at_level(logging.WARNING, "gomq_py"):
        node = Node(root, Unflushed())
        logs = node.broker._log, node.broker.users._log
        node.wait(lambda: not any(log.is_compacting for log in logs))
        facts = facts_of(node)
        node.stop()
    return facts, caplog.text


@pytest.mark.parametrize("log", ["definitions", "users"])
def test_damage_in_a_log_is_said_once_its_copy_kept_and_the_log_is_whole_again(original, log, caplog):
    content = (original / log).read_bytes()
    damaged = content[:60] + bytes((content[60] ^ 0x41,)) + content[61:]
    (original / log).write_bytes(damaged)

    found, said = boot(original, caplog)
    again, said_again = boot(original, caplog)

    assert f"{log}.damaged. Check" in said and said_again == ""
    assert again == found
    assert (original / f"{log}.damaged").read_bytes() == damaged
    assert check_folder(original).damage == []


def test_damage_of_a_later_day_gets_a_copy_of_its_own(original, caplog):
    copies = []
    for number in range(3):
        content = (original / "users").read_bytes()
        copies.append(content[:60] + bytes((content[60] ^ 0x41,)) + content[61:])
        (original / "users").write_bytes(copies[-1])
        boot(original, caplog)
        node = Node(original, Unflushed())
        node.broker.users.set_user(f"new-{number}", password_hash="")
        node.broker.users.set_permission(f"new-{number}", "/", "a", "b", "c")
        node.stop()

    assert [
        (original / name).read_bytes() for name in ("users.damaged", "users.damaged.2", "users.damaged.3")
    ] == copies


@pytest.mark.parametrize("log", ["definitions", "users"])
def test_torn_end_of_a_log_is_a_warning_in_true_words_and_said_once(original, log, caplog):
    content = (original / log).read_bytes()
    (original / log).write_bytes(content + bytes(200))

    found, said = boot(original, caplog)
    again, said_again = boot(original, caplog)

    assert "were being written when the last run was cut off" in said and "are lost" not in said
    assert not [record for record in caplog.records if record.levelno > logging.WARNING]
    assert again == found and said_again == ""
    assert not (original / f"{log}.damaged").exists()
