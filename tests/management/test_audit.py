"""Who did it: the user whom events name, and the audit log's lines, by each way that a request can come."""
import http.client
import os
import socket
import threading

import pika
import pytest

from tests.management.conftest import API
from tests.support.broker_process import BrokerProcess
from tests.support.waiting import wait_until


@pytest.fixture(scope="module")
def audited(tmp_path_factory):
    folder = tmp_path_factory.mktemp("audited")
    (folder / "gomq.ini").write_text("[main]\nevent_exchange = true\n")
    with BrokerProcess(
        folder / "data", config=folder / "gomq.ini", http_port=0, control_unix_path=folder / "control.sock"
    ) as process:
        yield process


@pytest.fixture
def guest(audited):
    return API(f"http://127.0.0.1:{audited.ports['http']}")


@pytest.fixture
def heard(audited):
    """A list of (key, user who performed the action), as the event exchange publishes them."""
    found = []
    connection = pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", audited.port))
    channel = connection.channel()
    queue = channel.queue_declare("", exclusive=True).method.queue
    channel.queue_bind(queue, "amq.rabbitmq.event", "#")
    is_over = threading.Event()

    def hear():
        for method, properties, _ in channel.consume(queue, inactivity_timeout=0.1):
            if method is not None:
                found.append((method.routing_key, properties.headers["user_who_performed_action"]))
            if is_over.is_set():
                break

    thread = threading.Thread(target=hear)
    thread.start()
    yield found
    is_over.set()
    thread.join()
    connection.close()


def test_events_name_the_user_who_asked_over_http(guest, heard):
    guest.put("users/aud", {"password": "not for the log", "tags": "monitoring"})
    guest.put("permissions/%2F/aud", {"configure": "^$", "write": "^$", "read": "^$"})
    guest.put("policies/%2F/p", {"pattern": "^none$", "definition": {"max-length": 1}})
    guest.put("vhosts/audited")
    guest.put("queues/%2F/audited")
    guest.delete("queues/%2F/audited")
    guest.delete("policies/%2F/p")
    guest.delete("vhosts/audited")
    guest.delete("users/aud")

    wanted = {(key, "guest") for key in (
        "user.created", "user.tags.set", "permission.created", "policy.set", "vhost.created",
        "queue.created", "queue.deleted", "policy.cleared", "vhost.deleted", "user.deleted")}
    wait_until(lambda: wanted <= set(heard), what=lambda: heard)


def test_line_names_the_user_the_address_and_the_way(audited, guest):
    guest.put("queues/%2F/by-http")
    guest.post("definitions", {"queues": [
        {"name": "by-import", "vhost": "/", "durable": True, "auto_delete": False, "arguments": {}}]})
    parameters = pika.ConnectionParameters("127.0.0.1", audited.port, client_properties={
        "connection_name": "billing"})
    with pika.BlockingConnection(parameters) as connection:
        connection.channel().queue_declare("by-amqp", durable=True)

    about = r"info +audit: queue '{}' in vhost '/' created by user 'guest' \({} from 127\.0\.0\.1:\d+{}\)$"
    for name, way, given in (
        ("by-http", "HTTP", ""), ("by-import", "import by HTTP", ""),
        ("by-amqp", "AMQP 0-9-1", " as 'billing'"),
    ):
        audited.wait_for_log(about.format(name, way, given))


def test_line_of_the_control_socket_names_the_users_id(audited):
    connection = http.client.HTTPConnection("localhost")
    connection.sock = socket.socket(socket.AF_UNIX)
    connection.sock.connect(str(audited.data_dir.parent / "control.sock"))
    connection.request(
        "PUT", "/api/queues/%2F/by-control", b"{}", {"Content-Type": "application/json"})
    assert connection.getresponse().status == 201
    connection.close()

    audited.wait_for_log(
        r"queue 'by-control' in vhost '/' created by user 'gomq-py-ctl' "
        rf"\(control socket from uid {os.getuid()}\)$")


def test_line_of_a_setting_names_the_administrator_the_address_and_both_values(audited, guest):
    guest.put("settings/free_disk_min", {"value": 4096})

    audited.wait_for_log(
        r"info +audit: setting 'free_disk_min' changed from 0 to 4096 by user 'guest' "
        r"\(HTTP from 127\.0\.0\.1:\d+\)$")
