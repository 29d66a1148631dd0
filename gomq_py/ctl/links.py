"""Commands that define shovels and federation upstreams: lavinmqctl's flags, rabbitmqctl's parameters."""
import json

import click

from gomq_py.ctl.api import APIError
from gomq_py.ctl.commands import ctl
from gomq_py.ctl.completion import argument

_TRUTH = click.BOOL
_ACK_MODES = click.Choice(["on-confirm", "on-publish", "no-ack"])


class _JSON(click.ParamType):
    """A JSON object."""

    name = "json"

    def convert(self, value, param, ctx):
        try:
            found = json.loads(value) if isinstance(value, str) else value
        except (ValueError, RecursionError):
            found = None
        if not isinstance(found, dict):
            self.fail('is no JSON object, as {"x-queue-type": "stream"} is', param, ctx)
        return found


class _Messages(click.ParamType):
    """A word of src-delete-after, or a number of messages."""

    name = "never|queue-length|number"

    def convert(self, value, param, ctx):
        if value in ("never", "queue-length") or isinstance(value, int):
            return value
        if not value.isdecimal():
            self.fail("is neither never, queue-length nor a number", param, ctx)
        return int(value)


JSON, MESSAGES = _JSON(), _Messages()
# Flags that may be repeated.
_LISTS = ("--src-uri", "--dest-uri", "--uri")
# flag: (key of the definition, type, required, help)
SHOVEL = {
    "--src-uri": ("src-uri", str, True, "Where from; amqp:// is this broker. May be given several times."),
    "--src-queue": ("src-queue", str, False, "Queue to take from..."),
    "--src-queue-args": ("src-queue-args", JSON, False, "...declared with these arguments where it is not "
                         "there (JSON)..."),
    "--src-exchange": ("src-exchange", str, False, "...or exchange to bind to..."),
    "--src-exchange-key": ("src-exchange-key", str, False, "...with this routing key."),
    "--src-consumer-args": ("src-consumer-args", JSON, False, "Arguments of the consumer (JSON)."),
    "--dest-uri": ("dest-uri", str, True, "Where to: a broker or a web server. May be given several times."),
    "--dest-queue": ("dest-queue", str, False, "Queue to publish to..."),
    "--dest-queue-args": ("dest-queue-args", JSON, False, "...declared with these arguments where it is not "
                          "there (JSON)..."),
    "--dest-exchange": ("dest-exchange", str, False, "...or exchange..."),
    "--dest-exchange-key": ("dest-exchange-key", str, False, "...with this routing key."),
    "--src-prefetch-count": ("src-prefetch-count", int, False, "Messages on the way at most."),
    "--src-delete-after": (
        "src-delete-after", MESSAGES, False, "When it is done: never, queue-length or a number of messages."
    ),
    "--src-predeclared": ("src-predeclared", _TRUTH, False, "Whether the source is there, or waited for."),
    "--dest-predeclared": ("dest-predeclared", _TRUTH, False, "The same of the destination."),
    "--ack-mode": ("ack-mode", _ACK_MODES, False, "When messages leave the source."),
    "--reconnect-delay": ("reconnect-delay", float, False, "Seconds before the first new attempt."),
    "--dest-add-forward-headers": (
        "dest-add-forward-headers", _TRUTH, False, "Say in each message where it has been."),
    "--dest-add-timestamp-header": (
        "dest-add-timestamp-header", _TRUTH, False, "Say in each message when it went through."),
    "--dest-publish-properties": (
        "dest-publish-properties", JSON, False, "Properties that each message gets (JSON)."),
    "--dest-refusal-limit": (
        "dest-refusal-limit", int, False,
        "How often a message may be refused before it is rejected to its source; 0: for ever."),
    "--dest-timeout": ("dest-timeout", float, False, "Seconds that a web server may take."),
    "--dest-cacertfile": (
        "dest-cacertfile", str, False, "Authority that vouches for a web server: a file in tls_folder."),
    "--dest-certfile": ("dest-certfile", str, False, "Certificate to show to a web server..."),
    "--dest-keyfile": ("dest-keyfile", str, False, "...and its key."),
    "--dest-verify": (
        "dest-verify", click.Choice(["verify_peer", "verify_none"]), False,
        "Whether a web server's certificate is verified; it is, by default."),
    "--dest-server-name-indication": (
        "dest-server-name-indication", str, False, "Name that a web server's certificate is for."),
    "--dest-depth": ("dest-depth", int, False, "Authorities between its certificate and a known one."),
}
UPSTREAM = {
    "--uri": ("uri", str, True, "Where from. May be given several times."),
    "--queue": ("queue", str, False, "Queue there, when it is called otherwise."),
    "--exchange": ("exchange", str, False, "Exchange there, when it is called otherwise."),
    "--prefetch-count": ("prefetch-count", int, False, "Messages on the way at most."),
    "--reconnect-delay": ("reconnect-delay", float, False, "Seconds before the first new attempt."),
    "--ack-mode": ("ack-mode", _ACK_MODES, False, "When messages leave the upstream."),
    "--expires": ("expires", int, False, "Milliseconds after which an unused queue there goes."),
    "--message-ttl": ("message-ttl", int, False, "Milliseconds that messages wait there."),
    "--max-hops": ("max-hops", int, False, "Brokers that a message passes at most."),
    "--consumer-tag": ("consumer-tag", str, False, "Consumer tag there."),
    "--trust-user-id": ("trust-user-id", _TRUTH, False, "Whether messages keep the user id from there."),
    "--bind-nowait": ("bind-nowait", _TRUTH, False, "Whether bindings are made there without answers."),
    "--queue-type": ("queue-type", click.Choice(["classic", "quorum"]), False, "Type of queues made there."),
    "--resource-cleanup-mode": (
        "resource-cleanup-mode", click.Choice(["default", "never"]), False,
        "Whether what was made there goes with the link."),
}


def _add_command(name, takes, component, table, has, what):
    @ctl.command(name, help=f"Define {what}, or define it anew.")
    @argument(takes)
    @click.pass_obj
    def add(session, **options):
        _check_there(session.api, has, what)
        value = {
            key: _given(flag, options[_variable(flag)])
            for flag, (key, *_) in table.items() if options[_variable(flag)] is not None
        }
        session.api.put("parameters", component, session.vhost, options[takes], body={"value": value})

    for flag, (_, kind, required, text) in table.items():
        add.params.append(
            click.Option(
                [flag, _variable(flag)], type=kind, required=required, help=text, multiple=flag in _LISTS))


def _given(flag, value):
    """One URI as a text, several as a list."""
    if flag not in _LISTS:
        return value
    return value[0] if len(value) == 1 else list(value)


def _variable(flag):
    return "given_" + flag.removeprefix("--").replace("-", "_")


def _check_there(api, has, what):
    """Raises APIError if the broker cannot run the definition: storing it would look like success."""
    try:
        api.get(has)
    except APIError as error:
        if error.status == 404:
            raise APIError(
                f"the broker at {api.address} cannot run {what}; a definition would be without effect", 404
            ) from None
        raise


@ctl.command("set_parameter")
@click.argument("component")
@click.argument("name")
@click.argument("value")
@click.pass_obj
def set_parameter(session, component, name, value):
    """Define what a component is told: COMPONENT is shovel, federation-upstream...; VALUE is JSON."""
    try:
        value = json.loads(value, parse_constant=_refuse)
    except (ValueError, RecursionError):
        raise click.UsageError("VALUE is no JSON") from None
    session.api.put("parameters", component, session.vhost, name, body={"value": value})


@ctl.command("clear_parameter")
@click.argument("component")
@click.argument("name")
@click.pass_obj
def clear_parameter(session, component, name):
    """Take back what set_parameter has defined."""
    session.api.delete("parameters", component, session.vhost, name)


def _refuse(constant):
    raise ValueError(f"{constant} is no JSON")


_add_command("add_shovel", "shovel", "shovel", SHOVEL, "shovels", "a shovel")
_add_command(
    "add_federation", "upstream", "federation-upstream", UPSTREAM, "federation-links", "a federation upstream"
)
