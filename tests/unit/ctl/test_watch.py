"""The live table of queues, beside what tests/ctl asks of it at a broker."""
from gomq_py.ctl import watch

OVERVIEW = {
    "node": "gomq@here", "queue_totals": {"messages_ready": 3}, "object_totals": {},
    "message_stats": {"publish_details": {"rate": 0.6629486738646422}},
}


class Answers:
    """An API of one broker without alarms."""

    def get(self, name):
        return {"overview": OVERVIEW, "nodes": []}[name]


def test_rates_have_one_decimal():
    assert watch._head(Answers()) == (
        "gomq@here: 3 ready, 0 unacked, 0 connections; 0.7 in/s, 0 out/s")
