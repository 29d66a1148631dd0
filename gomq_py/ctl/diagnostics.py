"""Commands of rabbitmq-diagnostics: wait for a broker, show its listeners, and check it for monitoring.

A failed check ends with exit code 69, as in rabbitmq-diagnostics.
"""
import socket
import sys
import time
from datetime import datetime

import click

from gomq_py.ctl.api import APIError
from gomq_py.ctl.cluster import figures_of
from gomq_py.ctl.commands import command
from gomq_py.ctl.output import say
from gomq_py.ctl.session import Seconds, argument

# EX_UNAVAILABLE, with which rabbitmq-diagnostics ends where a check fails.
EXIT_FAILED = 69
# Seconds between two attempts to reach a broker that starts, and of one attempt to connect to a port.
AGAIN_S, CONNECT_S = 0.2, 5.0
UNITS = ("days", "weeks", "months", "years")
# Protocol of a listener -> what it is for, in RabbitMQ's words.
PURPOSES = {
    "amqp": "AMQP 0-9-1", "amqps": "AMQP 0-9-1 over TLS", "http": "HTTP API", "https": "HTTP API over TLS",
    "mqtt": "MQTT", "mqtts": "MQTT over TLS", "metrics": "Prometheus exporter API over HTTP",
}
# command: (arguments, path, what it says of success, help)
CHECKS = {
    "check_running": (
        "", "overview", "The broker is fully booted and running", "Fail if the broker serves no clients."),
    "check_alarms": ("", "health/checks/alarms", "No alarms", "Fail if an alarm is in effect."),
    "check_local_alarms": (
        "", "health/checks/local-alarms", "No alarms on this node", "The same, of this node alone."),
    "check_virtual_hosts": (
        "", "health/checks/virtual-hosts", "All virtual hosts are running",
        "Fail if a queue or an MQTT store is closed."),
    "check_port_listener": (
        "port", "health/checks/port-listener/{port}", "A listener for port {port} is running",
        "Fail if the broker does not listen on a port."),
    "check_protocol_listener": (
        "protocol", "health/checks/protocol-listener/{protocol}",
        "A listener for protocol {protocol} is running",
        "Fail if the broker has no listener for a protocol: amqp, amqps, mqtt, mqtts, http, https..."),
    "check_if_node_is_quorum_critical": (
        "", "health/checks/node-is-quorum-critical", "Node can be stopped: confirms go on without it",
        "Fail if confirms, or the service, would stop with this node: wait before you stop it."),
}


def _check(session, path, text):
    """Request a health check. Print ``text``, or end the command with the reason if the check fails."""
    try:
        session.api.get(*path)
    except APIError as error:
        if error.status != 503:
            raise
        _fail(str(error))
    session.out.said(text)


def _fail(reason):
    say(f"Error: {reason}", err=True)
    sys.exit(EXIT_FAILED)


def _add_check(name, arguments, path, said, text):
    def run(session, **given):
        _check(session, [part.format_map(given) for part in path.split("/")], said.format_map(given))

    for each in arguments.split():
        run = argument(each)(run)
    command(name, help=f"{text} Exit code {EXIT_FAILED} then.")(run)


for _name, _what in CHECKS.items():
    _add_check(_name, *_what)


@command("check_certificate_expiration")
@click.option("--within", type=click.IntRange(0), default=2, show_default=True)
@click.option("--unit", type=click.Choice(UNITS), default="weeks", show_default=True)
def check_certificate_expiration(session, within, unit):
    """Fail if the certificate of a listener ends within the time given. Exit code 69 then."""
    _check(
        session, ("health", "checks", "certificate-expiration", str(within), unit),
        f"No certificate ends within {within} {unit}")


@command("check_port_connectivity")
@click.option("--address", help="Host to connect to instead of the listeners' own.")
def check_port_connectivity(session, address):
    """Fail if a port of the broker cannot be reached from this machine. Exit code 69 then."""
    failed = [
        f"{host}:{port} ({error.strerror or error})"
        for one in session.api.get("overview")["listeners"]
        for host, port in [(address or _reachable(one["ip_address"], session.api), one["port"])]
        for error in [_why_not(host, port)] if port and error is not None]
    if failed:
        _fail(f"no connection to {', '.join(failed)}")
    session.out.said("Connections to all ports are possible")


def _reachable(address, api):
    """Return the host to connect to for a listener's address; for a wildcard, the host of the API."""
    if address not in ("", "0.0.0.0", "::"):
        return address
    return "localhost" if api.unix_path else api.host


def _why_not(host, port):
    try:
        socket.create_connection((host, port), CONNECT_S).close()
    except OSError as error:
        return error
    except UnicodeError:  # a label of it is empty or too long
        return OSError("no name of a host")
    return None


@command("ping")
def ping(session):
    """Succeed if a broker answers, whatever its state."""
    _reach(session.api)
    session.out.said("Ping succeeded")


@command("await_startup")
@click.option("-t", "--timeout", type=Seconds(), default=300, show_default=True,
              help="Seconds to wait.")
def await_startup(session, timeout):
    """Wait until the broker answers."""
    until = time.monotonic() + timeout
    while True:
        try:
            api = session.connect()  # the control socket may come meanwhile
            api.wait_at_most(max(AGAIN_S, until - time.monotonic()))
            return _reach(api)
        except APIError:
            if time.monotonic() >= until:
                raise
        time.sleep(AGAIN_S)


def _reach(api):
    """Raise APIError if no broker, leader or follower, answers. A refused login counts as an answer."""
    try:
        figures_of(api)
    except APIError as error:
        if error.status != 401:
            raise


@command("log_tail")
@click.option("-N", "--number", type=click.IntRange(1), default=50, show_default=True, help="Lines.")
def log_tail(session, number):
    """Print the last lines of the broker's log."""
    for line in session.api.get("log", last=number)["lines"]:
        at = datetime.fromtimestamp(line["at"] / 1000).isoformat(" ", "milliseconds")
        say(f"{at} {line['level']} {line['source']}: {line['message']}")


@command("listeners")
def listeners(session):
    """List the addresses and ports that the broker listens on."""
    session.out.rows("Listing listeners", [
        {
            "interface": one["ip_address"], "port": one["port"], "protocol": one["protocol"],
            "purpose": PURPOSES.get(one["protocol"], ""),
        }
        for one in session.api.get("overview")["listeners"]
    ], ("interface", "port", "protocol", "purpose"))
