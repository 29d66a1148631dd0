"""The command group: options that every command has, and how a command gets its API and its output. The commands are in the modules beside."""
import errno
from dataclasses import dataclass

import click

import gomq_py
from gomq_py.config.settings import BY_ATTRIBUTE
from gomq_py.ctl.api import API, DEFAULT_URI, TIMEOUT_S, APIError, control_socket
from gomq_py.ctl.output import Output

CONTEXT = {"help_option_names": ["-h", "--help"], "auto_envvar_prefix": "GOMQ_CTL", "max_content_width": 120}
DEFAULT_SOCKET = BY_ATTRIBUTE["control_unix_path"].default


@dataclass
class Session:
    """What a command works with."""

    api: API
    out: Output
    vhost: str


class Group(click.Group):
    """Commands in the order of their definition; what the broker says becomes one line and an exit code."""

    def list_commands(self, ctx):
        return sorted(self.commands)

    def invoke(self, ctx):
        try:
            return super().invoke(ctx)
        except APIError as error:
            click.echo(f"gomq-py-ctl: {error}", err=True)
            ctx.exit(error.exit_code)
        except OSError as error:
            if error.errno == errno.EPIPE:
                raise  # head has seen enough: click leaves without a word
            click.echo(f"gomq-py-ctl: {error.filename or 'output'}: {error.strerror or error}", err=True)
            ctx.exit(1)


def _vhosts(*arguments):
    from gomq_py.ctl.completion import VHOSTS  # whose commands are of the group below
    return VHOSTS(*arguments)


@click.group(cls=Group, context_settings=CONTEXT)
@click.option("-U", "--uri", help=f"Address of the management API.  [default: the control socket when there is one, else {DEFAULT_URI}]",
              envvar=["GOMQ_CTL_URI", "GOMQCTL_HOST", "LAVINMQCTL_HOST"])
@click.option("--hostname", "-H", "--host", help="Host of the management API, instead of --uri.")
@click.option("-P", "--port", type=int, help="Its port.")
@click.option("--scheme", type=click.Choice(["http", "https"]), help="http or https.")
@click.option("-u", "--user", default="guest", show_default=True, envvar=["GOMQ_CTL_USER"], help="Who asks.")
@click.option("--password", envvar=["GOMQ_CTL_PASSWORD"], help="Better in $GOMQ_CTL_PASSWORD or a file; other users see command lines.", hidden=True)
@click.option("--password-file", type=click.File("r"), help="File whose first line is the password; - for standard input.")
@click.option("--control-unix-path", envvar=["GOMQ_CONTROL_UNIX_PATH", "GOMQ_CTL_CONTROL_UNIX_PATH", "LAVINMQCTL_CONTROL_UNIX_PATH"],
              default=DEFAULT_SOCKET, show_default=True, help="The broker's control socket, which takes no password.")
@click.option("--insecure", is_flag=True, help="Do not verify the certificate.")
@click.option("-p", "--vhost", default="/", show_default=True, help="Virtual host.", shell_complete=_vhosts)
@click.option("-f", "--format", "form", type=click.Choice(["table", "text", "json"]), default="table", show_default=True,
              help="text is tab separated.")
@click.option("-q", "--quiet", "-s", "--silent", is_flag=True, help="Data only.")
@click.option("-n", "--node", hidden=True, help="Accepted and ignored, for scripts made for rabbitmqctl.")
@click.version_option(gomq_py.__version__, "-v", "--version", prog_name="gomq-py-ctl")
@click.pass_context
def ctl(context, **options):
    """Manage a gomq-py broker (or any with RabbitMQ's management API)."""
    context.obj = make_session(**options)


def make_session(uri=None, hostname=None, port=None, scheme=None, user="guest", password=None, password_file=None, control_unix_path="",
                 insecure=False, vhost="/", form="table", quiet=False, node=None, timeout_s=TIMEOUT_S):
    """The Session that the group's options ask for. Raises APIError."""
    if not vhost:
        raise APIError("--vhost is empty: a virtual host has a name")
    if password_file is not None:
        password = password_file.readline().rstrip("\n")
    unix_path = ""
    if hostname or port or scheme:
        uri = f"{scheme or 'http'}://{hostname or '127.0.0.1'}" + (f":{port}" if port else "")
    elif not uri:
        unix_path = control_socket(control_unix_path)
        if not unix_path and control_unix_path not in ("", DEFAULT_SOCKET):
            raise APIError(f"no control socket at {control_unix_path}, or you may not use it")
    return Session(API(uri or DEFAULT_URI, user, password or "guest", unix_path, not insecure, timeout_s), Output(form, quiet), vhost)
