"""Commands that say what is wrong: fsck over a data folder, doctor over a running broker and its machine."""
import click

import gomq_py
from gomq_py.ctl import doctor as checkup
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
    # which brings the storage's formats: too slow for every other command
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
