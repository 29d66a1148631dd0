"""RabbitMQ's Java client on Netty, from Maven Central: it reads with a timeout of one heartbeat interval."""
import math
import subprocess
from pathlib import Path

import pytest

from tests.support.broker_process import BrokerProcess
from tests.support.maven import class_path
from tests.support.ports import reserve
from tests.support.programs import find
from tests.support.waiting import in_time

PROGRAM = Path(__file__).parent / "foreign" / "Netty.java"
PATIENCE_S = in_time(100)
# On a busy machine both sides are late.
HEARTBEAT_S = math.ceil(in_time(2))


@pytest.mark.needs_program("java")
@pytest.mark.needs_program("mvn")
def test_java_client_on_netty_stays_while_nothing_is_sent_and_recovers(tmp_path):
    jars = class_path("com.rabbitmq", "amqp-client", "5.35.0")
    with BrokerProcess(tmp_path / "data", port=reserve()) as broker:
        command = [
            find("java"), "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-cp", jars, str(PROGRAM),
            broker.amqp_url, str(HEARTBEAT_S)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as client:
            try:
                said = _read_until(client, "ok quiet")
                broker.restart()
                said += client.communicate(timeout=PATIENCE_S)[0]
            finally:
                client.kill()
        assert client.returncode == 0 and "ok published and consumed again" in said, said


def _read_until(client, line):
    """Read what it says up to a line, or its end; it gives up by itself."""
    said = ""
    for each in client.stdout:
        said += each
        if each.startswith(line):
            break
    return said
