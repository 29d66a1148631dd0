"""Completion: names that a shell offers, from the broker of the present command line.

Hides its errors, never waits long, and offers no name that a shell would misread.
"""
import os
import re

import click

from gomq_py.ctl.api import APIError
from gomq_py.ctl.session import make_session

TIMEOUT_S = 2
# Most names offered: more do not fit a screen, and a broker may have a hundred thousand.
MOST = 200
# bash pastes a completion unquoted, and begins a new word at : and =.
_PLAIN = re.compile(r"[\w./@%+,-]+")
_PAGED = ("queues", "exchanges", "connections")


def names(*path, per_vhost=True, field="name"):
    """A ``shell_complete`` for names in the list at ``path``."""

    def complete(context, _parameter, incomplete):
        try:
            session = make_session(
                **{**context.find_root().params, "password_file": None}, timeout_s=TIMEOUT_S
            )
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
    """A click argument that is completed by its name."""
    return click.argument(name, shell_complete=OF_ARGUMENT.get(name), **options)
