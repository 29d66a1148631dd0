"""Makes a command's session (API, output, virtual host), and completes names in a shell.

Completion hides its errors, never waits long, and offers no name that a shell would misread.
"""
import math
import os
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import click

from gomq_py.config import control, sources
from gomq_py.ctl.api import API, DEFAULT_URI, TIMEOUT_S, APIError
from gomq_py.ctl.output import Output

COMPLETION_TIMEOUT_S = 2
# Most names offered: more do not fit a screen, and a broker may have a hundred thousand.
MOST = 200
# bash pastes a completion unquoted, and begins a new word at : and =.
_PLAIN = re.compile(r"[\w./@%+,-]+")
_PAGED = ("queues", "exchanges", "connections")


class Seconds(click.FloatRange):
    """The type of an option in seconds: a year at most, because sockets and sleeps refuse infinity."""

    def __init__(self, min_open=False):
        super().__init__(0, 366 * 86400, min_open=min_open)

    def convert(self, value, param, ctx):
        seconds = super().convert(value, param, ctx)
        if math.isnan(seconds):  # which is in every range
            self.fail(f"{value!r} is not a number of seconds.", param, ctx)
        return seconds


@dataclass
class AdminSession:
    """The first argument of each command: the API, the output ``out`` and the virtual host."""

    connect: Callable[[], API]
    """Finds the control socket or the address anew; raises APIError. Commands for folders never call it."""
    out: Output
    vhost: str

    @cached_property
    def api(self):
        """The API that the options of the command group specify, made at the first use. Raises APIError."""
        return self.connect()

    @property
    def answered_at(self):
        """The address of the API if it has answered this command, otherwise ""."""
        return self.api.address if "api" in vars(self) and self.api.has_answered else ""


def make_session(
    uri=None, hostname=None, port=None, scheme=None, user="guest", password=None, password_file=None,
    control_unix_path=control.AUTO, insecure=False, cacert=None, cert=None, key=None, vhost="/", form="table",
    quiet=False, node=None, timeout_s=TIMEOUT_S,
):
    """Return the AdminSession for the options of the command group. Raises APIError."""
    if not vhost:
        raise APIError("--vhost is empty: a virtual host has a name")
    if key and not cert:
        raise APIError("--key is the key of a certificate: give --cert, too")
    if password_file is not None:
        password = password_file.readline().rstrip("\n")
    if hostname or port or scheme:
        uri = f"{scheme or 'http'}://{hostname or '127.0.0.1'}" + (f":{port}" if port else "")

    def connect():
        unix_path = "" if uri else _control_socket(control_unix_path)
        return API(
            uri or DEFAULT_URI, user, password or "guest", unix_path, not insecure, timeout_s, cacert,
            (cert, key) if cert else None)

    return AdminSession(connect, Output(form, quiet), vhost)


def _control_socket(given):
    """Return the path of the control socket to use, "" for none. Raises APIError.

    ``given``: a path, "" for none, or control.AUTO for the socket of this machine's broker, if there is one.
    """
    if given not in ("", control.AUTO):
        if not control.is_usable(given):
            raise APIError(f"no control socket at {given}, or you may not use it")
        return given
    if not given:
        return ""
    settings = sources.of_this_machine(os.environ)
    if settings.control_unix_path == control.AUTO:
        return control.path_to_use(settings.data_dir)
    return settings.control_unix_path if control.is_usable(settings.control_unix_path) else ""


def names(*path, per_vhost=True, field="name"):
    """Return a function for click's ``shell_complete`` that offers names from the API's list at ``path``.

    A name is the ``field`` of an item. ``per_vhost``: only the items of the session's vhost.
    """

    def complete(context, _parameter, incomplete):
        try:
            session = make_session(
                **{
                    **context.find_root().params, "password_file": None, "timeout_s": COMPLETION_TIMEOUT_S})
            query = {"columns": field}
            if path[0] in _PAGED:
                query.update(page=1, page_size=MOST, name=incomplete)
            found = session.api.get(*path, *((session.vhost,) if per_vhost else ()), **query)
        except APIError:
            return []
        rows = found.get("items", ()) if isinstance(found, dict) else found
        return [
            name
            for name in dict.fromkeys(row.get(field) for row in rows) if _may_be_offered(name, incomplete)
        ][:MOST]

    return complete


def _may_be_offered(name, incomplete):
    if not isinstance(name, str) or not name.startswith(incomplete) or not name.isprintable():
        return False
    return (
        not os.environ.get("_GOMQ_PY_CTL_COMPLETE", "").startswith("bash")
        or _PLAIN.fullmatch(name) is not None
    )


QUEUES = names("queues")
EXCHANGES = names("exchanges")
USERS = names("users", per_vhost=False)
VHOSTS = names("vhosts", per_vhost=False)
CONNECTIONS = names("connections", per_vhost=False)

# Argument of a command -> its completion.
OF_ARGUMENT = {
    "queue": QUEUES, "destination": QUEUES, "exchange": EXCHANGES, "user": USERS, "vhost": VHOSTS,
    "connection": CONNECTIONS,
    "policy": names("policies"), "operator_policy": names("operator-policies"),
    "client_id": names("mqtt", "sessions", field="client_id"),
    "shovel": names("shovels"), "upstream": names("parameters", "federation-upstream"),
    "federation_link": names("federation-links", field="id"),
}


def argument(name, **options):
    """Return a click argument. A shell completes its values if OF_ARGUMENT has its name."""
    return click.argument(name, shell_complete=OF_ARGUMENT.get(name), **options)
