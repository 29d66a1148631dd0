"""Finds the control socket's default path, and the user whom gomq-py-ctl trusts to listen at such a socket.

The broker and gomq-py-ctl both use these functions. A client of the socket may do everything, and gomq-py-ctl
sends passwords. So the socket lies in a folder that only the broker's user, or root, can write to. In /tmp
another user could create a socket of that name first.
"""
import os
import stat
from collections.abc import Mapping
from contextlib import suppress

# Value of control_unix_path that selects the rule of this module.
AUTO = "auto"
SYSTEM_FOLDER = "/run/gomq-py"
NAME = "ctl.sock"
_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH


def folders(data_dir: str, environment: Mapping[str, str]) -> list[str]:
    """Return the folders in which the control socket may lie, the preferred first, the data folder last."""
    runtime = environment.get("XDG_RUNTIME_DIR", "")
    return [
        SYSTEM_FOLDER, *([os.path.join(runtime, "gomq-py")] if os.path.isabs(runtime) else []),
        os.path.abspath(data_dir),
    ]


def path_to_serve(data_dir: str, environment: Mapping[str, str] = os.environ) -> str:
    """Return the path for the broker's control socket: in the first of the ``folders`` that is this user's
    and writable for no other, otherwise in the data folder. Creates a missing folder, but no data folder.
    """
    found = folders(data_dir, environment)
    return os.path.join(next((folder for folder in found[:-1] if _is_own(folder)), found[-1]), NAME)


def path_to_use(data_dir: str, environment: Mapping[str, str] = os.environ) -> str:
    """Return the path of the first usable socket in the ``folders``, for gomq-py-ctl; "" if there is none."""
    return next(
        (
            path
            for path in (os.path.join(folder, NAME) for folder in folders(data_dir, environment))
            if is_usable(path)
        ), "",
    )


def is_usable(path: str) -> bool:
    """Return True if the path is a socket that this user may connect to."""
    try:
        return stat.S_ISSOCK(os.stat(path).st_mode) and os.access(path, os.R_OK | os.W_OK)
    except (OSError, ValueError):
        return False


def _is_own(folder: str) -> bool:
    if not os.path.exists(folder) and _belongs_to_me(os.path.dirname(folder)):
        with suppress(OSError):
            os.mkdir(folder, 0o755)
    return _belongs_to_me(folder)


def _belongs_to_me(folder: str) -> bool:
    try:
        found = os.lstat(folder)
    except OSError:
        return False
    mine = stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid() and not found.st_mode & _OTHERS_WRITE
    return mine and os.access(folder, os.W_OK)  # a container's may be read-only


def is_shared(folder: str) -> bool:
    """Return True if users other than its owner may write to this folder; False if it is missing."""
    try:
        return bool(os.stat(folder).st_mode & _OTHERS_WRITE)
    except OSError:
        return False


def owner_by_path(path: str) -> int | None:
    """Return the id of the user who owns the socket's folder. None if a folder on the path is missing, or can
    be changed by a user other than that owner and root.
    """
    folder = os.path.dirname(os.path.realpath(path))
    try:
        owner = os.stat(folder).st_uid
        while True:
            found = os.stat(folder)
            if found.st_uid not in (0, owner) or found.st_mode & _OTHERS_WRITE:
                return None
            if folder == os.path.dirname(folder):
                return owner
            folder = os.path.dirname(folder)
    except OSError:
        return None
