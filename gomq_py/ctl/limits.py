"""Commands that set, clear and list the limits of users and of virtual hosts, with rabbitmqctl's columns."""
import click

from gomq_py.ctl.commands import command
from gomq_py.ctl.session import argument
from gomq_py.ctl.topology import object_of

LIMITS = click.argument("limits", metavar="JSON")


def _set(api, path, limits, check):
    """Set limits, a JSON text, by one request each, after ``check(limits)`` has accepted all of them."""
    wanted = object_of(limits, "LIMITS")
    try:
        check(wanted)
    except ValueError as error:
        raise click.BadParameter(f"no limit is set: {error}") from None
    for name, value in wanted.items():
        api.put(*path, name, body={"value": value})


def _clear(api, path, wanted="all"):
    there = [name for row in api.get(*path) for name in row["value"]] if wanted == "all" else [wanted]
    for name in there:
        api.delete(*path, name)


def _rows(out, of, rows):
    out.rows(
        f"Listing limits of {of}s", [{of: row[of], "limits": row["value"]} for row in rows], (of, "limits"))


@command("set_user_limits")
@argument("user")
@LIMITS
def set_user_limits(session, user, limits):
    """Set max-connections and max-channels of a user, as JSON; negative: no limit."""
    from gomq_py.broker.policies.limits import check_limits
    _set(session.api, ("user-limits", user), limits, check_limits)


@command("clear_user_limits")
@argument("user")
@click.argument("limit", type=click.Choice(["max-connections", "max-channels", "all"]))
def clear_user_limits(session, user, limit):
    """Clear one limit of a user, or all."""
    _clear(session.api, ("user-limits", user), limit)


@command("list_user_limits")
@click.option("--user", "of_user", help="Those of one user.")
@click.option("--global", "_all", is_flag=True, help="Those of all users, as without it.")
def list_user_limits(session, of_user, _all):
    """List the limits of users."""
    _rows(session.out, "user", session.api.get("user-limits", *filter(None, [of_user])))


@command("set_vhost_limits")
@LIMITS
def set_vhost_limits(session, limits):
    """Set max-connections and max-queues of the virtual host, as JSON; negative: no limit."""
    from gomq_py.broker.policies.limits import check_vhost_limits
    _set(session.api, ("vhost-limits", session.vhost), limits, check_vhost_limits)


@command("clear_vhost_limits")
def clear_vhost_limits(session):
    """Clear all limits of the virtual host."""
    _clear(session.api, ("vhost-limits", session.vhost))


@command("list_vhost_limits")
@click.option("--global", "of_all", is_flag=True, help="Those of all virtual hosts, as without -p.")
@click.pass_context
def list_vhost_limits(context, session, of_all):
    """List the limits of all virtual hosts, or of one with -p."""
    is_one = context.find_root().get_parameter_source("vhost") != click.core.ParameterSource.DEFAULT
    only = [session.vhost] if is_one and not of_all else []
    _rows(session.out, "vhost", session.api.get("vhost-limits", *only))
