"""Clients in other languages, from Debian's packages: Java, Go, Ruby and C. Each runs a program of ours from
`foreign`, or its own tools.
"""
import os
import subprocess
from pathlib import Path

import pytest

from tests.support.waiting import in_time

FOREIGN = Path(__file__).parent / "foreign"
JAVA_CLIENT = "/usr/share/java/amqp-client.jar"
GO_CLIENT = "/usr/share/gocode/src/github.com/rabbitmq/amqp091-go"
RUBY_CLIENT = "/usr/share/doc/ruby-bunny"
# Compilers included, which take what the machine leaves them:
# the bound goes with its load, like that of any other wait.
PATIENCE_S = in_time(100)


def run(*command, input_text=None, **environment):
    """Run a command; fails with its output unless it leaves with 0. Returns what it printed."""
    done = subprocess.run(
        command, input=input_text, capture_output=True, text=True, timeout=PATIENCE_S, check=False,
        env={**os.environ, **environment})
    assert done.returncode == 0, f"{command[0]} left with {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.fixture
def url(broker_address):
    """The broker's URL with the vhost spelled out: to RabbitMQ's own clients a path of /
    is a vhost without a name.
    """
    host, port = broker_address
    return f"amqp://guest:guest@{host}:{port}/%2F"


@pytest.mark.needs_program("java")
@pytest.mark.needs_program(JAVA_CLIENT)
def test_java_client(url):
    """RabbitMQ's own Java client, compiled as it is run."""
    assert "ok a missing queue is 404" in run(
        "java", "-cp", f"{JAVA_CLIENT}:/usr/share/java/slf4j-api.jar", str(FOREIGN / "Smoke.java"), url
    )


@pytest.mark.long
@pytest.mark.needs_program("go")
@pytest.mark.needs_program(GO_CLIENT)
def test_go_client(url, tmp_path):
    """RabbitMQ's own Go client, built from Debian's sources without the network;
    Go compiles its library first, which takes it a third less without C, optimization and symbols.
    """
    out = run(
        "go", "run", "-gcflags=all=-N -l", "-ldflags=-s -w", str(FOREIGN / "smoke.go"), url,
        CGO_ENABLED="0", GO111MODULE="off", GOPATH="/usr/share/gocode", GOFLAGS="", GOTOOLCHAIN="local",
    )

    assert "ok a missing queue is 404" in out


@pytest.mark.needs_program("ruby")
@pytest.mark.needs_program(RUBY_CLIENT)
def test_ruby_client(url):
    """Bunny."""
    assert "ok a missing queue is 404" in run("ruby", str(FOREIGN / "smoke.rb"), url)


@pytest.mark.needs_program("amqp-publish")
def test_c_client(url, name):
    """librabbitmq, through its command line tools."""
    run("amqp-declare-queue", "-u", url, "-q", name, "-d")
    run("amqp-publish", "-u", url, "-r", name, "-p", "-C", "text/plain", "-H", "colour: red", "-b", "first")
    run("amqp-publish", "-u", url, "-r", name, input_text="second" * 50000)

    assert run("amqp-get", "-u", url, "-q", name) == "first"
    assert run("amqp-consume", "-u", url, "-q", name, "-c", "1", "cat") == "second" * 50000
    assert run("amqp-delete-queue", "-u", url, "-q", name) == "0\n"
