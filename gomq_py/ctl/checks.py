"""Commands that check or mend the data folder of a stopped broker, and ``doctor``.

``doctor`` checks a running broker and this machine.
"""
import sys
from contextlib import contextmanager

import click

import gomq_py
from gomq_py.ctl import doctor as checkup
from gomq_py.ctl.access import asked_password
from gomq_py.ctl.api import APIError
from gomq_py.ctl.commands import command
from gomq_py.ctl.output import Progress, say
from gomq_py.ctl.transfer import OUTPUT_FILE, write_definitions

# Commands import the modules for folders themselves: half a broker is too slow to import for every one.
EXIT_DAMAGED, EXIT_UNUSABLE = 1, 2


@contextmanager
def in_folder():
    """Context manager: prints a FolderError as one line, and ends the command with exit code 2."""
    from gomq_py.ctl.offline import FolderError
    try:
        yield
    except FolderError as error:
        say(f"gomq-py-ctl: {error}", err=True)
        sys.exit(EXIT_UNUSABLE)


@command()
@click.argument("data_dir", type=click.Path())
def fsck(session, data_dir):
    """Check every checksum in the data folder of a stopped broker.

    Exit code 1 if data that had been flushed is damaged.
    """
    from gomq_py.ctl.fsck import check_folder
    with in_folder(), Progress(session.out) as progress:
        findings = check_folder(data_dir, progress)
    if session.out.form == "json":
        session.out.json({"counts": findings.counts, "damage": findings.damage, "notes": findings.notes})
    else:
        for path, text in findings.damage:
            say(f"DAMAGED {path}: {text}")
        if not session.out.quiet:
            for path, text in findings.notes:
                say(f"note    {path}: {text}")
            counts = ", ".join(f"{count} {name.replace('_', ' ')}" for name, count in findings.counts.items())
            sound = f"{len(findings.damage)} damaged" if findings.damage else "all sound"
            say(f"{counts}; {sound}")
    sys.exit(EXIT_DAMAGED if findings.damage else 0)


@command("definitions")
@click.argument("data_dir", type=click.Path())
@click.argument("file", type=OUTPUT_FILE, default="-")
def definitions_of_folder(_session, data_dir, file):
    """Write the definitions in the data folder of a stopped broker to FILE, which only its owner may read.

    Exit code 1 if some of them cannot be read, 2 if none can.
    """
    from gomq_py.ctl.offline import Definitions, held_folder
    with in_folder(), held_folder(data_dir):
        definitions = Definitions(data_dir)
    write_definitions(definitions.exported(), file)
    for problem in definitions.problems:
        say(f"gomq-py-ctl: {problem}", err=True)
    sys.exit(EXIT_DAMAGED if definitions.problems else 0)


@command()
def doctor(session):
    """Look for problems, present and to come: alarms, disk, descriptors, paused and closed queues, old
    messages.

    Exit code 1 if there is a present problem.
    """
    try:
        rows = list(checkup.examine(session.api, gomq_py.__version__))
    except APIError as error:
        rows = [checkup.Finding(checkup.BAD, "broker", str(error))]
        code = error.exit_code
    else:
        code = 1 if any(row.level == checkup.BAD for row in rows) else 0
    session.out.rows("Examining", [row._asdict() for row in rows], ("level", "subject", "text"))
    sys.exit(code)


@command("recover_users")
@click.argument("data_dir", type=click.Path())
@click.argument("name")
@click.argument("password", required=False)
def recover_users(session, data_dir, name, password):
    """Replace a missing or unreadable file of users in a data folder by one with a single administrator.
    Refuses if the file can be read.

    The broker must be stopped. Without PASSWORD, prompt for it or read it from a pipe.
    """
    from gomq_py.ctl import recover
    password = asked_password(password)
    with in_folder():
        recover.recover_users(data_dir, name, password)
    if not session.out.quiet:
        say(f"the users of {data_dir} begin anew with the administrator {name}")


@command("recover_definitions")
@click.argument("data_dir", type=click.Path())
def recover_definitions(session, data_dir):
    """Replace a missing or unreadable file of definitions in a data folder by one with only the virtual host
    /. Refuses if the file can be read.

    The broker must be stopped. The next boot keeps the messages of all queues in set-aside/, from where
    recover_queue brings them back.
    """
    from gomq_py.ctl import recover
    with in_folder():
        recover.recover_definitions(data_dir)
    if not session.out.quiet:
        say(f"the definitions of {data_dir} begin anew with the virtual host /")


@command("recover_queue")
@click.argument("data_dir", type=click.Path())
@click.argument("folder")
@click.argument("queue")
def recover_queue(session, data_dir, folder, queue):
    """Make a new durable queue of the virtual host (-p) from FOLDER in set-aside/, with its messages.

    The broker must be stopped. At its next boot the queue exists.
    """
    from gomq_py.ctl import recover
    with in_folder():
        arguments = recover.recover_queue(data_dir, folder, session.vhost, queue)
    if not session.out.quiet:
        told = ", ".join(f"{name}={value}" for name, value in arguments.items())
        say(
            f"queue {queue} in vhost {session.vhost} has the messages of {folder}{told and '; '}{told}")
