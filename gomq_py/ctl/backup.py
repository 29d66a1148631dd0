"""Commands that copy a running broker's data folder, and make a data folder from such a copy."""
import time

import click

from gomq_py.ctl.checks import in_folder
from gomq_py.ctl.commands import command
from gomq_py.ctl.output import Progress

# Between two questions how far a copy is.
LOOK_S = 0.5


@command("backup")
@click.argument("folder", metavar="DIR", type=click.Path())
def backup(session, folder):
    """Copy the data folder of the running broker to DIR on this machine.

    All that was confirmed before the command is in the copy. DIR is new, empty, or an earlier backup of this
    broker: then only the differences are copied. For administrators, on the broker's own machine.
    """
    from gomq_py.ctl import backup_folder
    with in_folder(), Progress(session.out) as progress:
        backup_folder.prepare(folder)
        manifest = backup_folder.copy(
            folder, lambda: session.api.post("backup"), Figures(session.api, progress))
    session.out.said(f"{folder} is a whole backup: {_told(manifest)}")


@command("restore")
@click.argument("folder", metavar="DIR", type=click.Path())
@click.argument("data_dir", type=click.Path())
def restore(session, folder, data_dir):
    """Make a data folder from the backup in DIR. A broker can then be started with it.

    DATA_DIR is new or empty. Every file is checked; an incomplete backup is refused, and DATA_DIR stays
    empty. Run it as the broker's user.
    """
    from gomq_py.ctl import backup_folder
    with in_folder(), Progress(session.out) as progress:
        manifest = backup_folder.restore(folder, data_dir, progress)
    session.out.said(f"{data_dir} has the backup of {manifest['finished']}: {_told(manifest)}")


def _told(manifest):
    return f"{len(manifest['files'])} files, {manifest['bytes']} bytes"


class Figures:
    """Callback that shows the progress of backup_folder.copy; asks the broker for the bytes copied."""

    def __init__(self, api, progress):
        self._api, self._progress = api, progress
        self._next_s = 0.0

    def __call__(self, what, done, total):
        if done is None:
            if not self._progress.is_shown or time.monotonic() < self._next_s:
                return
            self._next_s = time.monotonic() + LOOK_S
            figures = self._api.get("backup")
            done, total = figures["done_bytes"], figures["total_bytes"]
        self._progress(what, done, total)
