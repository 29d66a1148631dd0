"""Session: the API, output and virtual host of a command."""
import os
from dataclasses import dataclass

from gomq_py.config import control, sources
from gomq_py.ctl.api import API, DEFAULT_URI, TIMEOUT_S, APIError
from gomq_py.ctl.output import Output


@dataclass
class Session:
    """API, output and virtual host of a command."""

    api: API
    out: Output
    vhost: str


def make_session(
    uri=None, hostname=None, port=None, scheme=None, user="guest", password=None, password_file=None,
    control_unix_path=control.AUTO, insecure=False, cacert=None, vhost="/", form="table", quiet=False,
    node=None, timeout_s=TIMEOUT_S,
):
    """The Session for the group's options. Raises APIError."""
    if not vhost:
        raise APIError("--vhost is empty: a virtual host has a name")
    if password_file is not None:
        password = password_file.readline().rstrip("\n")
    unix_path = ""
    if hostname or port or scheme:
        uri = f"{scheme or 'http'}://{hostname or '127.0.0.1'}" + (f":{port}" if port else "")
    elif not uri:
        unix_path = _control_socket(control_unix_path)
    return Session(
        API(uri or DEFAULT_URI, user, password or "guest", unix_path, not insecure, timeout_s, cacert),
        Output(form, quiet), vhost,
    )


def _control_socket(given):
    """The named control socket, or the one of this machine's broker; empty without one. Raises APIError."""
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
