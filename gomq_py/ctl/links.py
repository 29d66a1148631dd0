"""Commands that define shovels and federation upstreams, with the flags of lavinmqctl.

Also set_parameter and set_global_parameter, as in rabbitmqctl.
"""
import json

import click

from gomq_py.ctl.api import APIError
from gomq_py.ctl.commands import command
from gomq_py.ctl.session import argument

_ACK_MODES = click.Choice(["on-confirm", "on-publish", "no-ack"])


class _JSON(click.ParamType):
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
    name = "never|queue-length|number"

    def convert(self, value, param, ctx):
        if value in ("never", "queue-length") or isinstance(value, int):
            return value
        if not value.isdecimal():
            self.fail("is neither never, queue-length nor a number", param, ctx)
        return int(value)


JSON, MESSAGES = _JSON(), _Messages()
# Required, and may be repeated.
_URIS = ("src-uri", "dest-uri", "uri")
# key of the definition, and of the flag: (type, help)
SHOVEL = {
    "src-uri": (str, "Where from; amqp:// is this broker. May be given several times."),
    "src-queue": (str, "Queue to take from..."),
    "src-queue-args": (JSON, "...declared with these arguments where it is not there (JSON)..."),
    "src-exchange": (str, "...or exchange to bind to..."),
    "src-exchange-key": (str, "...with this routing key."),
    "src-consumer-args": (JSON, "Arguments of the consumer (JSON)."),
    "dest-uri": (str, "Where to: a broker or a web server. May be given several times."),
    "dest-queue": (str, "Queue to publish to..."),
    "dest-queue-args": (JSON, "...declared with these arguments where it is not there (JSON)..."),
    "dest-exchange": (str, "...or exchange..."),
    "dest-exchange-key": (str, "...with this routing key."),
    "src-prefetch-count": (int, "Messages on the way at most."),
    "src-delete-after": (MESSAGES, "When it is done: never, queue-length or a number of messages."),
    "src-predeclared": (bool, "Whether the source is there, or waited for."),
    "dest-predeclared": (bool, "The same of the destination."),
    "ack-mode": (_ACK_MODES, "When messages leave the source."),
    "reconnect-delay": (float, "Seconds before the first new attempt."),
    "dest-add-forward-headers": (bool, "Say in each message where it has been."),
    "dest-add-timestamp-header": (bool, "Say in each message when it went through."),
    "dest-publish-properties": (JSON, "Properties that each message gets (JSON)."),
    "dest-refusal-limit": (
        int, "How often a message may be refused before it is rejected to its source; 0: for ever."),
    "dest-timeout": (float, "Seconds that a web server may take."),
    "dest-cacertfile": (str, "Authority that vouches for a web server: a file in tls_folder."),
    "dest-certfile": (str, "Certificate to show to a web server..."),
    "dest-keyfile": (str, "...and its key."),
    "dest-verify": (
        click.Choice(["verify_peer", "verify_none"]),
        "Whether a web server's certificate is verified; it is, by default."),
    "dest-server-name-indication": (str, "Name that a web server's certificate is for."),
    "dest-depth": (int, "Authorities between its certificate and a known one."),
}
UPSTREAM = {
    "uri": (str, "Where from. May be given several times."),
    "queue": (str, "Queue there, when it is called otherwise."),
    "exchange": (str, "Exchange there, when it is called otherwise."),
    "prefetch-count": (int, "Messages on the way at most."),
    "reconnect-delay": (float, "Seconds before the first new attempt."),
    "ack-mode": (_ACK_MODES, "When messages leave the upstream."),
    "expires": (int, "Milliseconds after which an unused queue there goes."),
    "message-ttl": (int, "Milliseconds that messages wait there."),
    "max-hops": (int, "Brokers that a message passes at most."),
    "consumer-tag": (str, "Consumer tag there."),
    "trust-user-id": (bool, "Whether messages keep the user id from there."),
    "bind-nowait": (bool, "Whether bindings are made there without answers."),
    "queue-type": (click.Choice(["classic", "quorum"]), "Type of queues made there."),
    "resource-cleanup-mode": (
        click.Choice(["default", "never"]), "Whether what was made there goes with the link."),
}


def _add_command(name, takes, component, table, has, what):
    @command(name, help=f"Define {what}, or define it anew.")
    @argument(takes)
    def add(session, **options):
        _check_there(session.api, has, what)
        value = {
            key: _given(key, options[_variable(key)]) for key in table if options[_variable(key)] is not None
        }
        session.api.put("parameters", component, session.vhost, options[takes], body={"value": value})

    for key, (kind, text) in table.items():
        add.params.append(
            click.Option(
                [f"--{key}", _variable(key)], type=kind, required=key in _URIS, help=text,
                multiple=key in _URIS))


def _given(key, value):
    """Return the value to send for ``key``. A key for URIs gets a text for one URI, a list for several."""
    if key not in _URIS:
        return value
    return value[0] if len(value) == 1 else list(value)


def _variable(key):
    return "given_" + key.replace("-", "_")


def _check_there(api, has, what):
    """Raise APIError if the broker lacks the route ``has``, and so cannot run ``what``, a text."""
    # A definition would be stored without effect.
    try:
        api.get(has)
    except APIError as error:
        if error.status == 404:
            raise APIError(
                f"the broker at {api.address} cannot run {what}; a definition would be without effect", 404
            ) from None
        raise


@command("set_parameter")
@click.argument("component")
@click.argument("name")
@click.argument("value")
def set_parameter(session, component, name, value):
    """Set a parameter of COMPONENT (shovel, federation-upstream...); VALUE is JSON."""
    session.api.put("parameters", component, session.vhost, name, body=_value(value))


@command("set_global_parameter")
@click.argument("name")
@click.argument("value")
def set_global_parameter(session, name, value):
    """Set a parameter of the whole broker (mqtt_default_vhosts...); VALUE is JSON."""
    session.api.put("global-parameters", name, body=_value(value))


def _value(text):
    """Return the body of a request that sets a parameter to a JSON text's value. Raises UsageError."""
    try:
        return {"value": json.loads(text, parse_constant=_refuse)}
    except (ValueError, RecursionError):
        raise click.UsageError("VALUE is no JSON") from None


def _refuse(constant):
    raise ValueError(f"{constant} is no JSON")


_add_command("add_shovel", "shovel", "shovel", SHOVEL, "shovels", "a shovel")
_add_command(
    "add_federation", "upstream", "federation-upstream", UPSTREAM, "federation-links", "a federation upstream"
)
