"""Commands that define shovels and federation upstreams, for brokers that have them; lavinmqctl's flags."""
import click

from gomq_py.ctl.api import APIError
from gomq_py.ctl.commands import ctl
from gomq_py.ctl.completion import argument

_ACK_MODES = click.Choice(["on-confirm", "on-publish", "no-ack"])
# flag: (key of the definition, type, required, help)
SHOVEL = {
    "--src-uri": ("src-uri", str, True, "Where from."),
    "--src-queue": ("src-queue", str, False, "Queue to take from..."),
    "--src-exchange": ("src-exchange", str, False, "...or exchange to bind to..."),
    "--src-exchange-key": ("src-exchange-key", str, False, "...with this routing key."),
    "--dest-uri": ("dest-uri", str, True, "Where to."),
    "--dest-queue": ("dest-queue", str, False, "Queue to publish to..."),
    "--dest-exchange": ("dest-exchange", str, False, "...or exchange..."),
    "--dest-exchange-key": ("dest-exchange-key", str, False, "...with this routing key."),
    "--src-prefetch-count": ("src-prefetch-count", int, False, "Messages on the way at most."),
    "--src-delete-after": (
        "src-delete-after", click.Choice(["never", "queue-length"]), False, "When it is done."
    ),
    "--ack-mode": ("ack-mode", _ACK_MODES, False, "When messages leave the source."),
    "--reconnect-delay": ("reconnect-delay", int, False, "Seconds between attempts."),
}
UPSTREAM = {
    "--uri": ("uri", str, True, "Where from."),
    "--queue": ("queue", str, False, "Queue there, when it is called otherwise."),
    "--exchange": ("exchange", str, False, "Exchange there, when it is called otherwise."),
    "--prefetch-count": ("prefetch-count", int, False, "Messages on the way at most."),
    "--reconnect-delay": ("reconnect-delay", int, False, "Seconds between attempts."),
    "--ack-mode": ("ack-mode", _ACK_MODES, False, "When messages leave the upstream."),
    "--expires": ("expires", int, False, "Milliseconds after which an unused queue there goes."),
    "--message-ttl": ("message-ttl", int, False, "Milliseconds that messages wait there."),
    "--max-hops": ("max-hops", int, False, "Brokers that a message passes at most."),
    "--consumer-tag": ("consumer-tag", str, False, "Consumer tag there."),
}


def _add_command(name, takes, component, table, has, what):
    @ctl.command(name, help=f"Define {what}, or define it anew.")
    @argument(takes)
    @click.pass_obj
    def add(session, **options):
        _check_there(session.api, has, what)
        value = {
            key: options[_variable(flag)]
            for flag, (key, *_) in table.items() if options[_variable(flag)] is not None
        }
        session.api.put("parameters", component, session.vhost, options[takes], body={"value": value})

    for flag, (_, kind, required, text) in table.items():
        add.params.append(click.Option([flag, _variable(flag)], type=kind, required=required, help=text))


def _variable(flag):
    return "given_" + flag.removeprefix("--").replace("-", "_")


def _check_there(api, has, what):
    """Raises APIError where nobody would act on the definition: keeping it would look like success."""
    try:
        api.get(has)
    except APIError as error:
        if error.status == 404:
            raise APIError(
                f"the broker at {api.address} cannot run {what}; a definition would be without effect", 404
            ) from None
        raise


_add_command("add_shovel", "shovel", "shovel", SHOVEL, "shovels", "a shovel")
_add_command(
    "add_federation", "upstream", "federation-upstream", UPSTREAM, "federation-links", "a federation upstream"
)
