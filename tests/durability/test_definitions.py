"""Definitions under power cuts: what was answered is there, what was deleted stays away, and the second cut
during recovery changes nothing.
"""
import os
from random import Random

import pytest

from gomq_py.broker.broker import Broker
from gomq_py.broker.topology import steps
from gomq_py.config.settings import Settings
from gomq_py.hub.context import Hub
from gomq_py.hub.scheduler import SliceClock
from gomq_py.storage.disk.data_dir import DataDir
from gomq_py.storage.flush.durability import Durability
from gomq_py.storage.flush.group_commit import GroupCommit
from gomq_py.storage.logs import definition_log
from tests.durability.seeds import seeds
from tests.support.passwords import has_password
from tests.support.power_cut import Disk, PowerCutFiles
from tests.support.unflushed import Unflushed

KEYS = ("a.*", "b.#")
DEFAULTS = {("vhost", "/"): "", ("user", "guest"): ("administrator",), ("permission", "guest", "/"): ".*"}


class Account:
    """Each fact ("queue q0 is there with these arguments") with the values it may have after a cut: as last
    answered, and every later one.
    """

    def __init__(self):
        # fact -> list of values, the first one answered
        self.possible = {fact: [None, value] for fact, value in DEFAULTS.items()}
        self._copies = []

    def copy(self):
        """The account of a cut at this moment.

        What the change that is under way will have done is possible there too.
        """
        other = Account()
        other.possible = {fact: list(values) for fact, values in self.possible.items()}
        self._copies.append(other)
        return other

    def now(self, facts):
        """The model changed: these are its facts from here on."""
        for other in self._copies:
            other.now(facts)
        self._copies = []
        for fact in facts.keys() | self.possible.keys():
            values = self.possible.setdefault(fact, [None])
            if values[-1] != facts.get(fact):
                values.append(facts.get(fact))

    def answered(self):
        """Everything so far has been promised."""
        for values in self.possible.values():
            del values[:-1]

    def check(self, facts):
        for fact, values in self.possible.items():
            if (
                fact[0] == "binding" and facts.get(fact) is None
                and None in values + [facts.get(end) for end in fact[2:4]]
            ):
                continue
            if fact[0] == "permission" and facts.get(fact) is None and facts.get(("vhost", fact[2])) is None:
                continue  # rights go with their vhost, in later slices of its deletion
            assert facts.get(fact) in values, (fact, facts.get(fact), values)
        assert facts.keys() <= self.possible.keys()


def facts_of(broker):
    """What is durable in a broker, as {fact: value}."""
    facts = {}
    for vhost in broker.vhosts.values():
        facts["vhost", vhost.name] = vhost.description
        for queue in vhost.queues.values():
            facts["queue", vhost.name, queue.name] = repr(queue.arguments)
        for exchange in vhost.exchanges.values():
            if exchange.name and not exchange.name.startswith("amq."):
                facts["exchange", vhost.name, exchange.name] = exchange.type
            for binding in exchange.bindings():
                ends = (
                    ("exchange", vhost.name, binding.source.name),
                    ("queue", vhost.name, binding.destination.name),
                )
                facts["binding", binding.routing_key, *ends] = True
    for user in broker.users:
        facts["user", user.name] = user.tags
        for permission in user.permissions.values():
            facts["permission", user.name, permission.vhost] = permission.configure
    return facts


def change(broker, random, number):
    """One random change of the topology or the users."""
    vhost = broker.vhosts.get(random.choice(("/", "v")))
    queue, exchange, key = (
        f"q{random.randrange(4)}", random.choice(("x0", "x1", "amq.topic")), random.choice(KEYS)
    )
    draw = random.random()
    if vhost is None:
        broker.create_vhost("v", f"made {number}")
    elif draw < 0.03 and vhost.name == "v":
        broker.delete_vhost("v")
    elif draw < 0.15 and queue in vhost.queues:
        vhost.redefine_queue(vhost.queues[queue], {"x-number": number})
    elif draw < 0.35 and queue not in vhost.queues:
        vhost.declare_queue(queue, durable=True, arguments={"x-number": number})
    elif draw < 0.5:
        vhost.delete_queue(queue)
    elif draw < 0.6:
        vhost.declare_exchange(f"x{number % 2}", "topic", durable=True)
    elif draw < 0.65:
        vhost.delete_exchange(f"x{number % 2}")
    elif draw < 0.85 and queue in vhost.queues and exchange in vhost.exchanges:
        vhost.bindings.bind_queue(queue, exchange, key)
    elif draw < 0.93:
        vhost.bindings.unbind_queue(queue, exchange, key)
    else:
        broker.users.set_user(f"u{number % 3}", password_hash="", tags=(str(number),))
        broker.users.set_permission(f"u{number % 3}", vhost.name, str(number), "", "")


def boot(files, folder):
    data_dir = DataDir(folder, files).open()
    committer = GroupCommit(files)
    settings = Settings(max_deleted_definitions=15)
    broker = Broker(data_dir, files, Durability(committer), settings, Hub(settings))
    broker.recover()
    return data_dir, committer, broker


def stop(node):
    data_dir, committer, broker = node
    broker.close()
    committer.stop()
    data_dir.close()


def work(files, folder, random, account, steps):
    """Boot, change things, now and then wait as a door does before it answers, and stop in order."""
    node = data_dir, committer, broker = boot(files, folder)
    account.now(facts_of(broker))
    committer.wait()
    account.answered()
    for number in range(steps):
        change(broker, random, number)
        account.now(facts_of(broker))
        if random.random() < 0.3:
            committer.wait()
            account.answered()
    stop(node)
    account.answered()


def check_folder(folder, account):
    """A plain boot of what a cut left: facts in order, and a folder per queue at the most.

    Returns the facts.
    """
    node = data_dir, _, broker = boot(Unflushed(), folder)
    facts = facts_of(broker)
    account.check(facts)
    assert len([entry for entry in os.listdir(data_dir.queues_folder)]) <= sum(
        len(vhost.queues) for vhost in broker.vhosts.values()
    )
    stop(node)
    return facts


def cut_often(root, random, share, run, account, target):
    """Run with cuts before seam calls; returns [(folder, account of that moment)]."""
    taken = []

    def on_call(call, path):
        if random.random() < share:
            taken.append((disk.cut(f"{target}-{len(taken)}"), account.copy()))

    disk = Disk(root, random)
    run(PowerCutFiles(disk, on_call=on_call))
    disk.discard()
    return taken


@pytest.mark.parametrize("seed", seeds(8))
def test_cuts_lose_no_answered_definition_and_neither_do_cuts_of_the_recovery(tmp_path, seed, monkeypatch):
    """With a compaction every few dozen changes, and deletions of vhosts in slices of few steps,
    so that cuts fall into those too.
    """
    monkeypatch.setattr(definition_log, "SLICE", 3)
    random = Random(seed)

    class FickleClock(SliceClock):
        def is_over(self):
            return random.random() < 0.5

    for module in (definition_log, steps):
        monkeypatch.setattr(module, "SliceClock", FickleClock)
    (tmp_path / "data").mkdir()
    account = Account()

    first = cut_often(
        tmp_path / "data", random, 0.08, lambda files: work(files, tmp_path / "data", random, account, 120),
        account, tmp_path / "cut",
    )
    assert first

    for folder, then in first:
        def recover(files, folder=folder, then=then):
            node = boot(files, folder)
            then.check(facts_of(node[2]))
            then.now(facts_of(node[2]))
            then.answered()  # the broker acts upon what it found
            stop(node)

        for again, later in cut_often(folder, random, 0.1, recover, then, f"{folder}-again"):
            check_folder(again, later)
        check_folder(folder, then)


def test_cut_right_after_the_first_boot_leaves_a_broker_one_can_log_in_to(tmp_path):
    for seed in range(30):
        random = Random(seed)
        root = tmp_path / f"data{seed}"
        root.mkdir()
        cuts = []
        disk = Disk(root, random)

        def cut_now_and_then(call, path):
            if random.random() < 0.1:
                cuts.append(disk.cut(f"{root}-{len(cuts)}"))

        node = boot(PowerCutFiles(disk, on_call=cut_now_and_then), root)
        stop(node)
        disk.discard()
        for folder in cuts:
            again = boot(Unflushed(), folder)
            assert has_password(again[2].users, "guest", "guest")
            assert again[2].users.get("guest").permission("/") is not None
            stop(again)
