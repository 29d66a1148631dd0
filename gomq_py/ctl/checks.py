"""Commands that check: fsck for a data folder, doctor for a running broker and its machine."""
import click

import gomq_py
from gomq_py.ctl import doctor as checkup
from gomq_py.ctl.access import asked_password
from gomq_py.ctl.api import APIError
from gomq_py.ctl.commands import ctl

EXIT_DAMAGED, EXIT_UNUSABLE = 1, 2


@ctl.command()
@click.argument("data_dir", type=click.Path())
@click.pass_obj
@click.pass_context
def fsck(context, session, data_dir):
    """Check every checksum of a data folder that no broker holds.

    Exit code 1 when something that had been flushed does not check.
    """
    # imported here: the storage's formats are too slow to import for every command
    from gomq_py.ctl.fsck import check_folder
    from gomq_py.ctl.offline import FolderError
    try:
        findings = check_folder(data_dir)
    except FolderError as error:
        click.echo(f"gomq-py-ctl: {error}", err=True)
        context.exit(EXIT_UNUSABLE)
    if session.out.form == "json":
        session.out.json({"counts": findings.counts, "damage": findings.damage, "notes": findings.notes})
    else:
        for path, text in findings.damage:
            click.echo(f"DAMAGED {path}: {text}")
        if not session.out.quiet:
            for path, text in findings.notes:
                click.echo(f"note    {path}: {text}")
            click.echo(
                ", ".join(f"{count} {name.replace('_', ' ')}" for name, count in findings.counts.items()) + (
                    f"; {len(findings.damage)} damaged" if findings.damage else "; all sound"
                )
            )
    context.exit(EXIT_DAMAGED if findings.damage else 0)


@ctl.command()
@click.pass_obj
@click.pass_context
def doctor(context, session):
    """Look for what is wrong, or soon will be: alarms, disk, descriptors, paused and closed queues, old
    messages.

    Exit code 1 when something is.
    """
    try:
        rows = list(checkup.examine(session.api, gomq_py.__version__))
    except APIError as error:
        rows = [checkup.Finding(checkup.BAD, "broker", str(error))]
        code = error.exit_code
    else:
        code = 1 if any(row.level == checkup.BAD for row in rows) else 0
    session.out.rows("Examining", [row._asdict() for row in rows], ("level", "subject", "text"))
    context.exit(code)


def _recovering(context, function, *arguments):
    """Call a function of ctl.recover by its name; a refusal is one line and exit code 2."""
    # imported here: half a broker
    from gomq_py.ctl import recover
    from gomq_py.ctl.offline import FolderError
    try:
        return getattr(recover, function)(*arguments)
    except FolderError as error:
        click.echo(f"gomq-py-ctl: {error}", err=True)
        return context.exit(EXIT_UNUSABLE)


@ctl.command("recover_users")
@click.argument("data_dir", type=click.Path())
@click.argument("name")
@click.argument("password", required=False)
@click.pass_obj
@click.pass_context
def recover_users(context, session, data_dir, name, password):
    """Begin the users of a data folder anew with one administrator, where the file is gone, empty or
    cannot be read.

    No broker may hold the folder. The password is asked for when it is not given, or read from a pipe.
    """
    _recovering(context, "recover_users", data_dir, name, asked_password(password))
    if not session.out.quiet:
        click.echo(f"the users of {data_dir} begin anew with the administrator {name}")


@ctl.command("recover_definitions")
@click.argument("data_dir", type=click.Path())
@click.pass_obj
@click.pass_context
def recover_definitions(context, session, data_dir):
    """Begin the definitions of a data folder anew, where the file is gone, empty or cannot be read.

    No broker may hold the folder. The next boot keeps the messages of all queues in set-aside/, from where
    recover_queue brings them back.
    """
    _recovering(context, "recover_definitions", data_dir)
    if not session.out.quiet:
        click.echo(f"the definitions of {data_dir} begin anew with the virtual host /")


@ctl.command("recover_queue")
@click.argument("data_dir", type=click.Path())
@click.argument("folder")
@click.argument("queue")
@click.pass_obj
@click.pass_context
def recover_queue(context, session, data_dir, folder, queue):
    """Give the messages of FOLDER in set-aside/ to a new durable queue of the virtual host (-p).

    No broker may hold the data folder. The queue is there at the next boot, with its messages.
    """
    arguments = _recovering(context, "recover_queue", data_dir, folder, session.vhost, queue)
    if not session.out.quiet:
        told = ", ".join(f"{name}={value}" for name, value in arguments.items())
        click.echo(
            f"queue {queue} in vhost {session.vhost} has the messages of {folder}{told and '; '}{told}")
