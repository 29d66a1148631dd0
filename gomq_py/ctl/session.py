"""Session: what a command works with: the API of the broker that the command line means, its output and the virtual host."""
from dataclasses import dataclass

from gomq_py.config.settings import BY_ATTRIBUTE
from gomq_py.ctl.api import API, DEFAULT_URI, TIMEOUT_S, APIError, control_socket
from gomq_py.ctl.output import Output

DEFAULT_SOCKET = BY_ATTRIBUTE["control_unix_path"].default


@dataclass
class Session:
    """What a command works with."""

    api: API
    out: Output
    vhost: str


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
