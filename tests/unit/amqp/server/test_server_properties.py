"""What clients are told about the broker, as the libraries that act on it see it."""
from types import SimpleNamespace

from kombu.transport.pyamqp import Transport

import gomq_py
from gomq_py.amqp.server.server_properties import server_properties


def test_kombu_takes_global_prefetch_limits_for_the_channels():
    """kombu's own test decides whether Celery sets basic.qos per consumer or, as this broker and RabbitMQ 3.3
    to 3.13 mean it, for the channel.
    """
    connection = SimpleNamespace(server_properties=server_properties("here"))

    assert not Transport.qos_semantics_matches_spec(None, connection)


def test_capabilities_are_those_of_rabbitmq_3():
    assert server_properties("here")["capabilities"] == dict.fromkeys(
        (
            "publisher_confirms", "exchange_exchange_bindings", "basic.nack", "consumer_cancel_notify",
            "connection.blocked", "consumer_priorities", "authentication_failure_close", "per_consumer_qos",
            "direct_reply_to",
        ),
        True,
    )


def test_broker_says_what_it_really_is():
    properties = server_properties("gomq@here")

    assert properties["platform"] == f"gomq-py {gomq_py.__version__}"
    assert properties["cluster_name"] == "gomq@here"
    assert "gomq-py" in properties["copyright"]
