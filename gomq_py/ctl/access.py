"""Commands about users, passwords and tags."""
import sys

import click

from gomq_py import salted_hash
from gomq_py.ctl.api import APIError
from gomq_py.ctl.commands import command
from gomq_py.ctl.session import argument

TAGS_HELP = "administrator, monitoring, policymaker, management, impersonator"


def asked_password(given):
    """Return ``given`` or, if None, a password from a prompt or from the first line of a pipe."""
    if given is None and sys.stdin.isatty():
        given = click.prompt("Password", hide_input=True, confirmation_prompt=True, err=True)
    elif given is None:
        given = sys.stdin.readline().rstrip("\n")
    if not given:
        raise click.UsageError("the password is empty")
    return given


@command("add_user")
@click.argument("name")
@click.argument("password", required=False)
def add_user(session, name, password):
    """Create a user. Without PASSWORD, prompt for it or read it from a pipe."""
    try:
        session.api.get("users", name)
    except APIError as error:
        if error.status != 404:
            raise
    else:
        raise APIError(f"user '{name}' is there already, and would lose its tags: see change_password", 409)
    session.api.put("users", name, body={"password": asked_password(password), "tags": ""})


@command("change_password")
@argument("user")
@click.argument("password", required=False)
def change_password(session, user, password):
    """Change the password of a user; the tags stay."""
    there = session.api.get("users", user)
    session.api.put("users", user, body={"password": asked_password(password), "tags": there["tags"]})


@command("clear_password")
@argument("user")
def clear_password(session, user):
    """Remove a user's password; the tags stay, and logins by certificate or token still work."""
    session.api.put(
        "users", user, body={"password_hash": "", "tags": session.api.get("users", user)["tags"]})


@command("authenticate_user")
@argument("user")
@click.argument("password", required=False)
def authenticate_user(session, user, password):
    """Check whether a user can log in with a password. Exit code 1 if not.

    Without PASSWORD, prompt for it or read it from a pipe.
    """
    found = session.api.post("users", user, "authenticate", body={"password": asked_password(password)})
    if not found["authenticated"]:
        raise APIError(f"failed to authenticate: {found['reason']}", 401)
    session.out.said("Success")


@command("set_user_tags", help=f"Replace a user's tags: {TAGS_HELP}.")
@argument("user")
@click.argument("tags", nargs=-1)
def set_user_tags(session, user, tags):
    """Replace the tags of a user; the password stays."""
    there = session.api.get("users", user)
    tags = [tag for given in tags for tag in given.split(",") if tag]
    session.api.put("users", user, body={
        "password_hash": there["password_hash"], "hashing_algorithm": there.get("hashing_algorithm", ""),
        "tags": ",".join(tags)})


@command("hash_password")
@click.argument("password", required=False)
def hash_password(session, password):
    """Print the hash of a password, for definitions and configuration. Needs no broker."""
    session.out.value("password_hash", salted_hash.make(asked_password(password)))
