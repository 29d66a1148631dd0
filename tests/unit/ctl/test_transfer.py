"""Transfer: the definitions of another broker, with what its export leaves out."""
from types import SimpleNamespace

from gomq_py.ctl.transfer import bring_in, definitions_of


class OtherBroker:
    """Answers of a RabbitMQ, which exports no internal exchanges."""

    def __init__(self, exchanges):
        self.answers = {
            "definitions": {"vhosts": [{"name": "/"}], "exchanges": [exchange("shown")], "bindings": []},
            "vhosts": [{"name": "/", "description": "the shop", "cluster_state": {}}],
            "exchanges": exchanges,
        }

    def get(self, key):
        return self.answers[key]


def exchange(name, internal=False):
    return {
        "name": name, "vhost": "/", "type": "topic", "durable": True, "auto_delete": False,
        "internal": internal, "arguments": {"alternate-exchange": "x"},
    }


def test_internal_exchanges_come_from_the_list_of_exchanges():
    more = {"message_stats": {}, "policy": None, "user_who_performed_action": "guest"}
    listed = [
        {**exchange(name, internal), **more} for name, internal in (
            ("", False), ("amq.rabbitmq.trace", True), ("shown", False), ("inner", True), ("other", False))]

    assert definitions_of(OtherBroker(listed))["exchanges"] == [exchange("shown"), exchange("inner", True)]


def test_internal_exchange_that_is_exported_is_there_once():
    there = OtherBroker([exchange("shown", True)])
    there.answers["definitions"]["exchanges"] = [exchange("shown", True)]

    assert definitions_of(there)["exchanges"] == [exchange("shown", True)]


def test_vhosts_have_their_description():
    assert definitions_of(OtherBroker([]))["vhosts"] == [{"name": "/", "description": "the shop"}]


def test_dry_run_into_one_vhost_compares_with_that_vhost():
    """Its entries here name no vhost, those of the file another or none: all of them would go into it."""
    queue = {"durable": True, "auto_delete": False, "arguments": {}}
    there = {"queues": [{"name": "kept", "vhost": "/", **queue}, {"name": "r", **queue}]}
    answers = {("definitions", "v"): {"queues": [{"name": "kept", **queue}]}, ("overview",): {}}
    shown = []
    session = SimpleNamespace(
        api=SimpleNamespace(get=lambda *path: answers[path]),
        out=SimpleNamespace(rows=lambda title, rows, columns: shown.extend(rows)))

    bring_in(session, there, True, ("v",))

    assert [(row["action"], row["name"], row["note"]) for row in shown] == [("new", "r", "")]
