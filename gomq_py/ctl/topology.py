"""Commands that create, change and delete virtual hosts, queues, exchanges, bindings and policies."""
import json

import click

from gomq_py.broker.features.alternate_exchange import ARGUMENTS as ALTERNATE
from gomq_py.broker.features.table import ARGUMENTS
from gomq_py.ctl.commands import command
from gomq_py.ctl.session import argument


@command("add_vhost")
@click.argument("name")
@click.option("--description", help="What it is for.")
@click.option("--tags", help="Tags, separated by commas.")
@click.option("--default-queue-type", metavar="TYPE",
              help="Type of queues that are declared without one: classic, quorum or stream.")
def add_vhost(session, name, **described):
    """Create a virtual host, or change its description, tags or default queue type."""
    session.api.put(
        "vhosts", name, body={key: value for key, value in described.items() if value is not None})


def _trace_command(word):
    @command(
        f"trace_{word}", help=f"Switch tracing {word}: copies of all messages of the virtual host to the "
        "exchange amq.rabbitmq.trace.")
    def run(session):
        session.api.get("vhosts", session.vhost)  # a PUT would create it
        session.api.put("vhosts", session.vhost, body={"tracing": word == "on"})


_trace_command("on")
_trace_command("off")


@command("restart_vhost")
def restart_vhost(session):
    """Open those queues of the virtual host again that a fault has closed."""
    closed = [
        queue["name"] for queue in session.api.get("queues", session.vhost, columns="name,state")
        if queue["state"] == "stopped"]
    for queue in closed:
        session.api.put("queues", session.vhost, queue, "restart")
    session.out.said(f"{len(closed)} queues opened again")


def object_of(text, what):
    """Parse a JSON object of the command line. ``what``: its name for errors. Raises click.BadParameter."""
    try:
        value = json.loads(text)
        # 1e400 is read as infinity, which is no JSON for the broker
        json.dumps(value, allow_nan=False)
    except ValueError as error:
        raise click.BadParameter(f"{what} is no JSON: {error}") from None
    if not isinstance(value, dict):
        raise click.BadParameter(f"{what} must be a JSON object")
    return value


@command("delete_queue")
@argument("queue")
@click.option("--if-unused", is_flag=True, help="Only without consumers.")
@click.option("--if-empty", is_flag=True, help="Only without messages.")
def delete_queue(session, queue, if_unused, if_empty):
    """Delete a queue."""
    conditions = {"if_unused": if_unused, "if_empty": if_empty}
    session.api.delete(
        "queues", session.vhost, queue, **{name: "true" for name, wanted in conditions.items() if wanted})


# (argument of a queue, its flag); a flag without a kind takes no value.
_FLAGS = [(row.argument, row.flag) for row in ARGUMENTS.values() if row.flag is not None]


def _with_flags(function):
    """Decorator: adds the options in _FLAGS to a command, which gets them as keyword arguments."""
    for _, flag in reversed(_FLAGS):
        function = click.option(
            flag.name, type=flag.kind, is_flag=flag.kind is None, default=None, help=flag.help)(function)
    return function


@command("create_queue")
@click.argument("queue")
@click.option("--durable/--transient", default=True, show_default=True)
@click.option("--auto-delete", is_flag=True)
@_with_flags
def create_queue(session, queue, durable, auto_delete, **flags):
    """Declare a queue."""
    arguments = {}
    for name, flag in _FLAGS:
        value = flags[flag.name.removeprefix("--").replace("-", "_")]
        if value is not None and value is not False:
            arguments[name] = flag.value if flag.kind is None else value
    session.api.put("queues", session.vhost, queue, body={
        "durable": durable, "auto_delete": auto_delete, "arguments": arguments})


@command("create_exchange")
@click.argument("type_", metavar="TYPE")
@click.argument("exchange")
@click.option("--durable/--transient", default=True, show_default=True)
@click.option("--auto-delete", is_flag=True)
@click.option("--internal", is_flag=True)
@click.option("--delayed", is_flag=True, help="Messages with x-delay wait here.")
@click.option("--alternate-exchange", help="Exchange for messages that no queue takes.")
def create_exchange(session, type_, exchange, durable, auto_delete, internal, delayed, alternate_exchange):
    """Declare an exchange: direct, fanout, topic, headers, x-consistent-hash..."""
    arguments = {} if alternate_exchange is None else {ALTERNATE[0]: alternate_exchange}
    if delayed:
        type_, arguments["x-delayed-type"] = "x-delayed-message", type_
    session.api.put("exchanges", session.vhost, exchange, body={
        "type": type_, "durable": durable, "auto_delete": auto_delete, "internal": internal,
        "arguments": arguments})


@command("delete_exchange")
@argument("exchange")
@click.option("--if-unused", is_flag=True, help="Only without bindings.")
def delete_exchange(session, exchange, if_unused):
    """Delete an exchange."""
    session.api.delete("exchanges", session.vhost, exchange, **({"if_unused": "true"} if if_unused else {}))


@command("delete_schedule")
@argument("exchange")
@click.argument("schedule")
def delete_schedule(session, exchange, schedule):
    """Delete a schedule of a delayed exchange."""
    session.api.delete("schedules", session.vhost, exchange, schedule)


def _set_policy_command(word, path):
    @command(f"set_{word}", help="Create or replace; DEFINITION is JSON.")
    @argument(word)
    @click.argument("pattern")
    @click.argument("definition")
    @click.option("--priority", type=int, default=0, show_default=True)
    @click.option("--apply-to", default="all", show_default=True,
                  help="all, queues, exchanges, classic_queues, quorum_queues or streams")
    def set_policy(session, pattern, definition, priority, apply_to, **named):
        session.api.put(path, session.vhost, named[word], body={
            "pattern": pattern, "definition": object_of(definition, "DEFINITION"), "priority": priority,
            "apply-to": apply_to})


_set_policy_command("policy", "policies")
_set_policy_command("operator_policy", "operator-policies")
