"""The image of etc/Dockerfile is built as it stands, and its broker runs in a container."""
import os

import pika
import pytest

from tests.e2e.test_packaging import copy  # noqa: F401 (a fixture: sources of which one module is compiled)
from tests.support.container import Container, Image

pytestmark = [
    pytest.mark.timeout(600), pytest.mark.needs_program("buildah"), pytest.mark.needs_program("cc"),
    pytest.mark.skipif(os.geteuid() != 0, reason="buildah without a daemon is root"),
]


@pytest.fixture
def image(copy, tmp_path):  # noqa: F811
    (tmp_path / "image").mkdir()
    return Image(tmp_path / "image", copy)


def test_image_is_built_and_its_broker_serves_the_first_user_of_a_file(image, tmp_path):
    password = tmp_path / "password"
    password.write_text("a-Secret\n")
    password.chmod(0o644)
    broker = Container(
        image, "gomq", {password: "/run/secrets/password"}, {
            "GOMQ_DEFAULT_USER": "admin", "GOMQ_DEFAULT_PASSWORD_FILE": "/run/secrets/password",
            "GOMQ_DEFAULT_USER_ONLY_LOOPBACK": "no"},
        http_port=0, mqtt_port=0, metrics_http_port=0)
    check = " ".join(image.health_check)

    with broker:
        pika.BlockingConnection(pika.URLParameters(broker.url("admin", "a-Secret"))).close()
        for port, protocol in (("5672", "amqp"), ("15692", "metrics")):
            assert f"/{port}" in check
        health = [
            word.replace("/5672", f"/{broker.port}").replace("/15692", f"/{broker.ports['metrics']}")
            for word in image.health_check]
        assert broker.execute(*health) == (0, "")
        code, status = broker.execute("gomq-py-ctl", "status")
        assert code == 0 and "Node: gomq@gomq\n" in status, status
        user = broker.execute("id", "-u")[1].strip()
        assert [str(number) for number in broker.broker.uids()] == [user] * 3 and user != "0"
        assert broker.execute("touch", "/opt/gomq/x")[0] != 0, "it may write to its own folders alone"
        assert broker.stop() == 0

    assert broker.execute(*health)[0] != 0
    assert broker.execute("cat", "/var/lib/gomq/.last-run")[0] == 0, "the data is in the volume"
