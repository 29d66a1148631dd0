"""Field tables of clients: too long and too deep ones close the connection, in arguments and in headers."""
import pytest

from gomq_py.amqp.wire.methods import BasicGet, BasicGetOk, ConnectionClose, QueueDeclare, QueueDeclareOk
from gomq_py.broker.tables import TableLimits
from gomq_py.content.properties import Properties
from gomq_py.errors import Malformed
from tests.support.door import Door


@pytest.fixture
def limited(tmp_path):
    """A server with small limits; a queue q is there."""
    with Door(tmp_path / "data", max_table_entries=300, max_table_depth=4) as door:
        door.client().call(QueueDeclare(queue="q"), QueueDeclareOk)
        yield door


def nested(depth):
    """A table in which tables lie within each other."""
    table = {}
    for _ in range(depth):
        table = {"t": table, "filled": "x" * 100}
    return table


@pytest.mark.parametrize(("table", "text"), [
    (
        {str(number): number for number in range(301)},
        "field table of more than 300 entries (max_table_entries)",
    ),
    ({"list": [True] * 300}, "field table of more than 300 entries (max_table_entries)"),
    ({"list": [{"a": [1] * 10}] * 50}, "field table of more than 300 entries (max_table_entries)"),
    (nested(5), "field table nested deeper than 4 (max_table_depth)"),
    ({"list": [[[[[]]]]], "filled": "x" * 100}, "field table nested deeper than 4 (max_table_depth)"),
])
@pytest.mark.parametrize("where", ["arguments", "headers"])
def test_table_that_is_too_long_or_too_deep_closes_the_connection(limited, table, text, where):
    client = limited.client()

    if where == "arguments":
        client.send_method(QueueDeclare(queue="other", arguments=table))
    else:
        client.publish("q", properties=Properties(headers=table).encode())

    client.expect_error(ConnectionClose, 502, f"SYNTAX_ERROR - {text}", 0)
    assert limited.queue("q").ready_count == 0 and "other" not in limited.vhost.queues


@pytest.mark.parametrize("table", [
    {str(number): number for number in range(300)}, {"list": [True] * 299}, nested(4)
])
def test_table_at_the_limit_is_taken(limited, table):
    client = limited.client()

    client.publish("q", properties=Properties(headers=table).encode())

    client.send_method(BasicGet(queue="q", no_ack=True))
    assert Properties.decode(client.expect_message(BasicGetOk)[1]).headers == table


def test_small_tables_are_not_looked_at():
    limits = TableLimits(32, 1000)

    limits.check(None, 1000)

    with pytest.raises(Malformed):
        limits.check([0] * 1001, 1001)
