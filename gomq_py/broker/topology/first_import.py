"""First import: imports the file of the setting load_definitions, once in the life of a data folder.

The node calls it at boot. An import at each boot, or for each promoted follower, would bring back deleted
entities. Later boots only compare the file with the imported one, and log a difference.
"""
import json
import os

from gomq_py.broker.policies.parameters import OPERATOR
from gomq_py.broker.signals.events import INTERNAL
from gomq_py.broker.topology.definitions import Importer
from gomq_py.digests import sha256
from gomq_py.errors import DefinitionsError
from gomq_py.global_names import IMPORTED
from gomq_py.observability.log import logger

LOG = logger("broker")
_PIECE_OCTETS = 1 << 20  # of a file at a time: exports of large brokers have some hundred MB


def import_once(broker, path):
    """Import a file of definitions, once in the life of the data folder. Later calls only log whether the
    file is another one. Raises DefinitionsError, or OSError if the disk fails. After an error the next boot
    imports again. Blocks; may switch greenlets.
    """
    path, parameters = os.path.abspath(path), broker.parameters
    if IMPORTED in parameters.internal:
        _compare(path, parameters.internal[IMPORTED])
        return
    digest = load(broker, path)
    # Users and definitions are in two logs, which one flush writes in two threads: without this wait, a kill
    # could leave the note and lose users. Nobody was promised anything: no follower is waited for.
    disk = broker.durability.disk
    disk.wait()
    parameters.set_internal(IMPORTED, {"path": path, "sha256": digest})
    disk.wait()


def load(broker, path):
    """Import a definitions file at boot. Returns the SHA-256 of the file as hexadecimal digits. Entries that
    fail are logged. Raises DefinitionsError. Blocks; may switch greenlets.
    """
    try:
        with open(path, "rb") as file:
            content = file.read()
        definitions = json.loads(content.decode("utf-8"))
    except OSError as error:
        raise DefinitionsError(f"cannot read definitions from {path}: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise DefinitionsError(f"definitions in {path} are no JSON: {error}") from error
    digest = sha256(content).hexdigest()
    del content  # an import may last minutes
    try:
        actor = INTERNAL._replace(protocol=f"import of {path}")
        report = broker.events.on_behalf_of(actor, Importer(broker, by=OPERATOR).run, definitions)
    except DefinitionsError as error:
        raise DefinitionsError(f"definitions in {path}: {error}") from error
    for problem in report.problems:
        LOG.warning("definitions in %s: %s", path, problem)
    for change in report.changed:
        LOG.info("definitions in %s: %s", path, change)
    LOG.info(
        "imported definitions from %s: %s", path,
        ", ".join(f"{count} {key}" for key, count in report.imported.items()) or "nothing",
    )
    return digest


def _compare(path, note):
    if not isinstance(note, dict):
        note = {"path": note}
    imported, digest = note.get("path"), _digest_of(path)
    if digest is None:
        LOG.info(
            "load_definitions: %s is not there or cannot be read, and not needed: this data folder has "
            "imported %s", path, imported)
    elif path == imported and note.get("sha256") in (None, digest):
        LOG.debug("load_definitions: %s is imported already", path)
    else:
        LOG.warning(
            "load_definitions: %s is not imported, because this data folder has imported %s already, %s; to "
            "import it now, unless that is done: gomq-py-ctl import_definitions %s", path, imported,
            "and the file has changed since" if path == imported else "which is another file", path)


def _digest_of(path):
    """Return the SHA-256 of a file as hexadecimal digits; None if it is unreadable or no regular file."""
    # A pipe could block the boot.
    if not os.path.isfile(path):
        return None
    try:
        with open(path, "rb") as file:
            digest = sha256()
            while piece := file.read(_PIECE_OCTETS):
                digest.update(piece)
    except OSError:
        return None
    return digest.hexdigest()
