"""The command group ``ctl`` with the options that all commands share.

The other modules of this package define the commands.
"""
import errno
import os

import click
from click.shell_completion import get_completion_class

import gomq_py
from gomq_py.config.control import AUTO
from gomq_py.ctl.api import DEFAULT_URI, TIMEOUT_S, APIError
from gomq_py.ctl.output import say
from gomq_py.ctl.session import VHOSTS, Seconds, make_session

# Errors of commands on an answer of an unexpected shape: commands read answers, they do not check them.
UNEXPECTED = (AttributeError, LookupError, TypeError, RecursionError, UnicodeError)
CONTEXT = {"help_option_names": ["-h", "--help"], "auto_envvar_prefix": "GOMQ_CTL", "max_content_width": 120}


class Group(click.Group):
    """A command group whose options may also follow the command. Prints broker errors as one line."""

    def list_commands(self, ctx):
        return sorted(self.commands)

    def parse_args(self, ctx, args):
        return super().parse_args(ctx, self._ours_first(ctx, args))

    def _ours_first(self, ctx, args):
        """Return ``args`` in the order: the group's options, the command, the command's options."""
        ours = _options(self, ctx)
        at = _first_plain(args, ours)
        command = self.commands.get(args[at]) if at < len(args) else None
        if command is None:
            return args
        theirs = _options(command, ctx)
        before, behind, rest = list(args[:at]), [args[at]], list(args[at + 1:])
        while rest:
            word = rest.pop(0)
            if word == "--":
                behind += [word, *rest]
                break
            name, has_value = _named(word)
            option, kept = (theirs.get(name), behind) if name in theirs else (ours.get(name), before)
            (behind if option is None else kept).append(word)
            if option is not None and not has_value and not _is_alone(option):
                if not rest:
                    raise click.BadOptionUsage(name, f"Option '{name}' requires an argument.", ctx)
                kept.append(rest.pop(0))
        return before + behind

    def invoke(self, ctx):
        try:
            return super().invoke(ctx)
        except APIError as error:
            say(f"gomq-py-ctl: {error}", err=True)
            ctx.exit(error.exit_code)
        except UNEXPECTED as error:
            if os.environ.get("GOMQ_CTL_TRACEBACK") or ctx.obj is None or not ctx.obj.answered_at:
                raise
            say(
                f"gomq-py-ctl: what answers at {ctx.obj.answered_at} is not what this command expects of a "
                "management API "
                f"({type(error).__name__}; GOMQ_CTL_TRACEBACK=1 shows where)", err=True,
            )
            ctx.exit(1)
        except OSError as error:
            if error.errno == errno.EPIPE:
                raise  # head has closed the pipe: click leaves silently
            say(f"gomq-py-ctl: {error.filename or 'output'}: {error.strerror or error}", err=True)
            ctx.exit(1)


def _options(command, ctx):
    return {
        name: one for one in command.get_params(ctx) if isinstance(one, click.Option)
        for name in (*one.opts, *one.secondary_opts)
    }


def _named(word):
    """Return (option in this word or None, whether the word also has its value, as in ``--vhost=x``)."""
    if word.startswith("--"):
        name, has_value, _ = word.partition("=")
        return name, bool(has_value)
    return (word[:2], len(word) > 2) if word.startswith("-") else (None, False)


def _is_alone(option):
    return option.is_flag or option.count


def _first_plain(args, options):
    """Return the index of the first word in ``args`` that is neither an option nor an option's value."""
    at = 0
    while at < len(args) and args[at].startswith("-"):
        name, has_value = _named(args[at])
        takes = name in options and not has_value and not _is_alone(options[name])
        at += 2 if takes else 1
    return at


@click.group(cls=Group, context_settings=CONTEXT)
@click.option("-U", "--uri",
              help="Address of the management API.  [default: the control socket when there is one, else "
              f"{DEFAULT_URI}]", envvar=["GOMQ_CTL_URI", "GOMQCTL_HOST", "LAVINMQCTL_HOST"])
@click.option("--hostname", "-H", "--host", help="Host of the management API, instead of --uri.")
@click.option("-P", "--port", type=int, help="Its port.")
@click.option("--scheme", type=click.Choice(["http", "https"]), help="http or https.")
@click.option("-u", "--user", default="guest", show_default=True, envvar=["GOMQ_CTL_USER"], help="Who asks.")
@click.option("--password", envvar=["GOMQ_CTL_PASSWORD"],
              help="Better in $GOMQ_CTL_PASSWORD or a file; other users see command lines.", hidden=True)
@click.option("--password-file", type=click.File("r"),
              help="File whose first line is the password; - for standard input.")
@click.option("--control-unix-path",
              envvar=["GOMQ_CONTROL_UNIX_PATH", "GOMQ_CTL_CONTROL_UNIX_PATH", "LAVINMQCTL_CONTROL_UNIX_PATH"],
              default=AUTO, show_default=True, help="The broker's control socket, which takes no password.")
@click.option("--cacert", type=click.Path(),
              help="File (PEM) of the authorities that vouch for the broker's certificate.")
@click.option("--cert", type=click.Path(),
              help="File (PEM) of a certificate of this client, for a broker that asks for one.")
@click.option("--key", type=click.Path(), help="File (PEM) of its key, unless that is in the same file.")
@click.option("--insecure", is_flag=True, help="Do not verify the certificate.")
@click.option("-p", "--vhost", default="/", show_default=True, help="Virtual host.", shell_complete=VHOSTS)
@click.option("-t", "--timeout", "timeout_s", type=Seconds(min_open=True), default=TIMEOUT_S,
              show_default=True, help="Seconds that one request may take.")
@click.option("-f", "--format", "--formatter", "form", type=click.Choice(["table", "text", "json"]),
              default="table", show_default=True, help="text is tab separated.")
@click.option("-q", "--quiet", "-s", "--silent", is_flag=True, help="Data only.")
@click.option("-n", "--node", hidden=True, help="Accepted and ignored, for scripts made for rabbitmqctl.")
@click.version_option(gomq_py.__version__, "-v", "--version", prog_name="gomq-py-ctl")
@click.pass_context
def ctl(context, **options):
    """Manage a gomq-py broker (or any broker with RabbitMQ's management API)."""
    context.obj = make_session(**options)


def command(name=None, **options):
    """Return a decorator: makes a function a command, whose first argument is the AdminSession."""
    return lambda function: ctl.command(name, **options)(click.pass_obj(function))


@ctl.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell):
    """Print the completion script for a shell: eval "$(gomq-py-ctl completion bash)"."""
    click.echo(get_completion_class(shell)(ctl, {}, "gomq-py-ctl", "_GOMQ_PY_CTL_COMPLETE").source())
