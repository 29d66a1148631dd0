"""The log tells an operator why each connection went, and never what it must not hold."""
import re
import socket

import pika
import pytest

from gomq_py.client.connection import Connection

PROTOCOL_HEADER = b"AMQP\x00\x00\x09\x01"


def raw(broker, octets):
    """Send octets on a connection of their own and wait until the broker has closed it."""
    with socket.create_connection(("127.0.0.1", broker.port), timeout=60) as client:
        client.sendall(octets)
        while client.recv(4096):
            pass


def test_login_is_logged_with_user_and_vhost(broker):
    with pika.BlockingConnection(pika.URLParameters(broker.amqp_url)):
        broker.wait_for_log(r"info  amqp: connection 127\.0\.0\.1:\d+ -> 127\.0\.0\.1:\d+: user 'guest' opened vhost '/'")


def test_close_by_the_client_is_logged_with_its_words(broker):
    pika.BlockingConnection(pika.URLParameters(broker.amqp_url)).close(200, "had enough")

    broker.wait_for_log(r"closed: by the client: 200 had enough")


def test_lost_client_is_told_from_one_that_said_goodbye(broker):
    Connection(broker.amqp_url).abort()

    broker.wait_for_log("closed: the client closed the socket without connection.close")


def test_close_by_the_broker_is_logged_with_its_reason(broker):
    connection = pika.BlockingConnection(pika.URLParameters(broker.amqp_url))
    with pytest.raises(pika.exceptions.ChannelClosedByBroker):
        connection.channel().queue_declare("absent", passive=True)

    broker.wait_for_log(r"channel 1: closing the channel with 404 NOT_FOUND - no queue 'absent' in vhost '/'")


def test_refused_login_is_logged_with_the_user_and_without_the_password(broker_process):
    broker = broker_process(log_level="debug").start()
    with pytest.raises(pika.exceptions.AMQPConnectionError):
        pika.BlockingConnection(pika.URLParameters(broker.url(password="s3cret-Pa55")))

    broker.wait_for_log("refused: user 'guest' gave a wrong password or does not exist")
    assert "s3cret" not in broker.log_text


def test_peer_of_another_protocol_is_logged_as_such(broker):
    raw(broker, b"GET / HTTP/1.1\r\n\r\n")

    broker.wait_for_log("refused: the peer does not speak AMQP")


def test_broken_frame_is_logged_with_what_was_wrong(broker):
    raw(broker, PROTOCOL_HEADER + b"\x01\x00\x00\x00\x00\x00\x04abcd\xff")

    broker.wait_for_log("501 FRAME_ERROR")


def test_user_name_cannot_forge_a_line(broker):
    name = "x\n2026-01-01T00:00:00.000Z info  boot: stopped"
    parameters = pika.ConnectionParameters(port=broker.port, credentials=pika.PlainCredentials(name, "x"))
    with pytest.raises(pika.exceptions.AMQPConnectionError):
        pika.BlockingConnection(parameters)

    broker.wait_for_log("gave a wrong password or does not exist")
    assert [line for line in broker.log if re.match(r"2026-01-01T00:00:00.000Z", line)] == []
