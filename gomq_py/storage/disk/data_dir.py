r"""Data folder: locks it, checks its schema version, and gives the paths of its files and folders.

The first step of a boot: other code uses the folder after ``open`` has returned. One process at a time holds
the lock; a second process gets an error that names the first.

    <data folder>/
      .lock               held with flock while a broker runs; text "PID 4711 @ host", then "stopped" when
                          the run has ended normally
      .last-run           how the last run ended. After a stop: "stopped\n", the SHA-256 of .segments, and the
                          lengths of definitions and users in lines "NAME ID BYTES\n". During a run and after
                          a kill: the machine's boot id, and the flushed lengths. On a follower:
                          "followed\n" and the boot id. A power loss, or an end as follower, stays on record
                          until the next boot is complete
      .cluster            which cluster and node the folder belongs to (cluster.identity)
      .sync*              a follower's sync, and its swap (storage.disk.swap); gone after a boot
      .segments           segments that held messages at the last normal stop (storage.disk.segment_list)
      schema_version      "2\n"; a boot writes it over "1\n". A folder that has content but not this file, or
                          an unknown version, is left alone
      definitions         framed log of the durable topology (storage.logs.framed_log)
      users               framed log of users and permissions
      cluster_name        the broker's name among brokers; its existence shows that the first boot is over:
                          from then on definitions and users are never empty
      pool/               spare segment files: emptied ones, and new ones made ahead; cleared at boot
      queues/<id>.<inc>/  one folder per durable queue: msgs.NNNNNNNNNN, acks.NNNNNNNNNN
      transient/          files of transient queues are made here, without names, so the folder is empty
      set-aside/          files that no queue or log uses, kept for the operator; never read

``<id>`` is the first 160 bits of SHA-256 over vhost and queue name, in hex, because names may contain "/",
".." and NUL, and may be longer than a file name. ``<inc>`` is the start of the queue's incarnation, in hex.
Code that reads older schema versions stands beside each format, not here.
"""
import contextlib
import errno
import fcntl
import os
import posix
import re
import socket
import weakref

from gomq_py.digests import sha256
from gomq_py.observability.log import logger
from gomq_py.storage.disk import atomic_file, segment_list, swap
from gomq_py.storage.disk.files import FILE_MODE, NO_ROOM, Files, with_path
from gomq_py.storage.errors import DataDirError
from gomq_py.storage.format.log import HEAD_SIZE, LogError, LogScan, log_id_of

LOG = logger("storage")
SCHEMA_VERSION = 2
SCHEMA_VERSIONS = ("1", str(SCHEMA_VERSION))

LOCK = ".lock"
LAST_RUN = ".last-run"
NEXT_NOTE = ".last-run.next"
SEGMENTS = ".segments"
CLUSTER = ".cluster"
SCHEMA = "schema_version"
DEFINITIONS = "definitions"
USERS = "users"
CLUSTER_NAME = "cluster_name"
POOL = "pool"
QUEUES = "queues"
TRANSIENT = "transient"
SET_ASIDE = "set-aside"

# Files about this machine, which are not replicated. They and lost+found count as an empty folder.
OF_THIS_NODE = frozenset({LOCK, LAST_RUN, NEXT_NOTE, SEGMENTS, CLUSTER, swap.SYNC})
NOT_CONTENT = OF_THIS_NODE | {"lost+found"}

# How the last run ended: in order; by a kill, which keeps all that was written; as a follower, which keeps
# all that it received of another node's run; or with the machine, which may have lost what was not flushed.
# An unknown end (an earlier version, a copy, a full disk) counts as one with the machine.
STOPPED, KILLED, FOLLOWED, POWER_LOST = "stopped", "killed", "followed", "power lost"
_STOPPED_TEXT = b"stopped\n"
_FOLLOWED_TEXT = b"followed\n"
# Longest kept part of a name: file systems take 255 bytes, and a number is appended.
_NAME_OCTETS = 200
_LOG_LEFT = re.compile(rb"(definitions|users) (\d+) (\d+)")
_CLUSTER_NAME_OCTETS = 255
# Advice for a missing log that an earlier run had.
_WAYS_OUT = {
    DEFINITIONS: (
        "and nothing else knows whose messages those in queues/ are. Restore it from a backup, or begin "
        "without definitions by 'gomq-py-ctl recover_definitions {}': the next boot then keeps the messages "
        "in set-aside/"
    ),
    USERS: (
        "and the default user must not come back unasked. Restore it from a backup, or begin with one "
        "administrator by 'gomq-py-ctl recover_users {} NAME'"
    ),
}
_BOOT_ID = "/proc/sys/kernel/random/boot_id"


class DataDirLocked(DataDirError):
    """Another broker is using the data folder."""


class DataDir:
    """One data folder. ``open`` locks it, ``close`` unlocks it. ``open`` also sets facts about the last run:

        last_end     how it ended: STOPPED, KILLED, FOLLOWED or POWER_LOST
        listed       {queue folder: segment_list.Listed} of its segments; empty if not recorded
        logs_left    {name: {log id: flushed bytes}} of its logs; empty if not recorded
    """

    def __init__(self, path, files=None, lock=True):
        """With ``lock=False``, for file systems without flock, nothing keeps out a second broker."""
        self.path = os.path.abspath(os.fspath(path))
        self.definitions_path = self._at(DEFINITIONS)
        self.users_path = self._at(USERS)
        self.pool_folder = self._at(POOL)
        self.queues_folder = self._at(QUEUES)
        self.transient_folder = self._at(TRANSIENT)
        self._files = Files() if files is None else files
        self._lock_fd = -1
        self._lock_text = None
        self._wants_lock = lock
        self.last_end = STOPPED
        self.cluster_name = ""  # until keep_cluster_name
        self.listed = {}
        self.logs_left = {}
        self._logs = {}  # of this run
        self._note = b""  # note of the run's end in case of a kill
        self._content = {}
        self._follows = False

    def __enter__(self):
        return self.open()

    def __exit__(self, *_):
        self.close()

    def open(self):
        """Create the folder if necessary, lock it and check its version. Returns this object. Blocks; for
        boot. Raises DataDirError; raises OSError if the system refuses (permissions, a full disk).
        """
        if not self._follows:
            self._make_root()
            if self._wants_lock:
                self._lock()
        self._follows = False
        try:
            swap.finish(Files(), self.path, NOT_CONTENT)  # without a word to replicators
            self._files.register.seed(self.path, NOT_CONTENT)
            self._check_schema()
            for name in (POOL, QUEUES, TRANSIENT):
                make_place(self._files, self._at(name))
            self._note_run()
            self._files.sync_folder(self.path)
        except BaseException:
            self.close()
            raise
        return self

    def follow(self):
        """Lock the folder of a cluster follower, which copies the leader's files. Returns this object. If the
        node becomes the leader, call ``open``. Finishes an interrupted swap. Blocks; raises as ``open``.
        """
        self._make_root()
        if self._wants_lock:
            self._lock()
        try:
            swap.finish(Files(), self.path, NOT_CONTENT)  # without a word to replicators
            self._check_version()
            self._write_note(_FOLLOWED_TEXT + boot_id())
        except BaseException:
            self.close()
            raise
        self._follows = True
        return self

    def close(self, in_order=False):
        """Unlock the folder. A second call does nothing. The lock file stays: without it, two processes could
        lock two different files. ``in_order``: record that this run has finished all work on its files.
        """
        self._follows = False
        if in_order:
            # without the note the next boot reports less about missing files
            with contextlib.suppress(OSError):
                self._write_note(_STOPPED_TEXT + self._write_list() + _logs_now(self.path))
                self._mark_lock()
        if self._lock_fd >= 0:
            # unlocks also for a just forked child that has not closed its copy yet
            fcntl.flock(self._lock_fd, fcntl.LOCK_UN)
            self.forget()

    def forget(self):
        """Close a forked child's copy of the lock, in that child. The folder stays locked."""
        if self._lock_fd >= 0:
            _held.discard(self)
            posix.close(self._lock_fd)
            self._lock_fd = -1

    @property
    def locked(self):
        return self._lock_fd >= 0

    def list_segments(self, content):
        """Keep ``content``, {queue folder: segment_list.Listed}, until ``close(in_order=True)`` saves it.
        The next boot then notices missing segments.
        """
        self._content = content

    def check_logs(self):
        """Raise DataDirError if definitions or users of an earlier run are missing or empty. For boot, before
        the logs are opened.
        """
        # A boot would replace such a log with a first boot's content.
        for path, reason in lost_logs(self.path, self.last_end):
            raise DataDirError(f"{path} {reason}")

    def note_logs(self, logs):
        """Record the lengths of the logs, {log name: {log id: bytes}}, in .last-run, for the boot after a
        kill. Blocks; for boot. Raises OSError, but not on a full disk.
        """
        self._note = boot_id()
        with _room_or_not():
            self._note_anew(logs)

    def note_log(self, name, left):
        """Save a log's length {id: bytes} in .last-run. For a thread, one call at a time. Raises OSError."""
        self._note_anew({**self._logs, name: left})

    def keep_cluster_name(self, is_first):
        """Set ``cluster_name`` from its file, or choose a name and save it there. Blocks; for boot. Raises
        OSError.

        The saved name survives a rename of the machine. ``is_first``: whether this is a first boot, which
        chooses a name with a random suffix. Later boots choose gomq@HOST, as earlier versions did.
        """
        path = self._at(CLUSTER_NAME)
        make_way(self._files, path)
        was_there = os.path.exists(path)
        self.cluster_name = _octets_of(path, _CLUSTER_NAME_OCTETS).decode("utf-8", "replace").strip()
        if self.cluster_name:
            return
        suffix = f"-{os.urandom(4).hex()}" if is_first else ""  # unique among brokers of this machine
        self.cluster_name = f"gomq{suffix}@{socket.gethostname()}"
        if was_there:
            LOG.error(
                "%s is empty: the broker calls itself %s from now on. If it had another name, set that as "
                "its cluster name, or federation does not find what it has left in upstream queues",
                path, self.cluster_name)
        try:
            atomic_file.replace(self._files, path, f"{self.cluster_name}\n".encode())
        except OSError as error:
            if is_first or error.errno not in NO_ROOM:
                raise

    # layout

    def queue_folder(self, vhost, queue):
        """Return the path of a durable queue's folder, without the "." and <inc> at its end."""
        return os.path.join(self.queues_folder, queue_id(vhost, queue))

    def set_aside(self, path):
        """Move an unused file or folder into set-aside/. Returns its new path. Blocks; for boot."""
        target = move_aside(self._files, self.path, path, os.path.basename(path))
        self._files.sync_folder(os.path.dirname(target))
        return target

    def kept_paths(self):
        """Return sorted paths of copies of damaged logs and of all in set-aside/. Reads two folders."""
        paths = [self._at(name) for name in os.listdir(self.path) if ".damaged" in name]
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):
            paths += [os.path.join(self._at(SET_ASIDE), name) for name in os.listdir(self._at(SET_ASIDE))]
        return sorted(paths)

    # helpers

    def _at(self, name):
        return os.path.join(self.path, name)

    def _make_root(self):
        missing = []
        folder = self.path
        while not os.path.isdir(folder):
            if os.path.lexists(folder):
                raise DataDirError(f"data folder {self.path}: {folder} is not a folder")
            missing.append(folder)
            folder = os.path.dirname(folder)
        for folder in reversed(missing):
            self._files.making_folder(folder).act()  # without telling: replicators have this folder
            self._files.sync_folder(os.path.dirname(folder))

    def _lock(self):
        if self._lock_fd >= 0:
            raise DataDirLocked(f"data folder {self.path} is already open in this process")
        # Not through Files: the lock's text is not replicated, and a simulated crash must not lose it.
        fd = os.open(self._at(LOCK), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, FILE_MODE)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            holder = os.pread(fd, 300, 0).decode("utf-8", "replace").strip() or "another process"
            posix.close(fd)
            if error.errno not in (errno.EWOULDBLOCK, errno.EACCES):
                raise
            raise DataDirLocked(f"data folder {self.path} is in use by {holder}") from None
        try:
            self._lock_text = os.pread(fd, 300, 0) or None  # may be missing in a copied folder
            os.ftruncate(fd, 0)
            os.pwrite(fd, f"PID {os.getpid()} @ {socket.gethostname()}\n".encode(), 0)
        except OSError as error:
            posix.close(fd)
            raise with_path(error, self._at(LOCK)) from error
        self._lock_fd = fd
        _held.add(self)

    def _mark_lock(self):
        """Write "stopped" into the lock file. Raises OSError. A later run overwrites this word, so a file
        with the word shows that no later run has begun.
        """
        if self._lock_fd >= 0:
            os.pwrite(self._lock_fd, _STOPPED_TEXT, os.fstat(self._lock_fd).st_size)
            os.fsync(self._lock_fd)

    def _note_run(self):
        """Find out how the last run ended, and record in .last-run that a run has begun."""
        # Written without Files, because followers must not get the record: it is about this machine only.
        boot = boot_id()
        for name in (LAST_RUN, SEGMENTS):
            make_way(self._files, self._at(name))
        self.last_end = _last_end(_note_in(self.path), self._lock_text, boot)
        self.listed = _listed(self.path, self.last_end)
        self.logs_left = logs_left_in(self.path, self.last_end)
        self._note = {FOLLOWED: _FOLLOWED_TEXT + boot, POWER_LOST: b""}.get(self.last_end, boot)
        self._write_note(self._note + _lines_of(self.logs_left))
        for name in (SEGMENTS, NEXT_NOTE):
            with contextlib.suppress(OSError):
                os.unlink(self._at(name))

    def _write_note(self, text):
        """Write ``text`` into .last-run. On a full disk the file stays empty or incomplete."""
        with _room_or_not():
            self._write_whole(LAST_RUN, text)

    def _note_anew(self, logs):
        """Replace the lengths of the logs in .last-run atomically."""
        # The folder is not flushed here: the rename of a log, which follows, flushes it.
        self._logs = logs
        self._write_whole(NEXT_NOTE, self._note + _lines_of(logs))
        os.replace(self._at(NEXT_NOTE), self._at(LAST_RUN))

    def _write_list(self):
        """Write the file .segments. Returns its digest as a line for .last-run, or b"" if not written."""
        prefix = os.path.join(self.queues_folder, "")
        content = segment_list.encode(
            {folder.removeprefix(prefix): entry for folder, entry in self._content.items()}
        )
        if not content:
            return b""
        try:
            self._write_whole(SEGMENTS, content)
        except OSError:
            return b""
        return _digest_line(content)

    def _write_whole(self, name, content):
        fd = os.open(self._at(name), os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, FILE_MODE)
        try:
            left = memoryview(content)
            while left:
                left = left[os.write(fd, left):]
        finally:
            try:
                os.fsync(fd)
            finally:
                posix.close(fd)

    def _check_schema(self):
        if self._check_version() != str(SCHEMA_VERSION):  # before the first segment of a new version
            atomic_file.replace(self._files, self._at(SCHEMA), f"{SCHEMA_VERSION}\n".encode())
        atomic_file.sweep(self._files, self.path)

    def _check_version(self):
        """Return the folder's schema version, or "" if the folder is empty. Raises DataDirError if the
        folder is not a data folder, or is of an unknown version.
        """
        names = set(os.listdir(self.path))
        if SCHEMA not in names:
            content = content_of(self.path)
            if content:
                raise DataDirError(
                    f"{self.path} is not a gomq-py data folder: it holds {content[0]!r} but no {SCHEMA}"
                )
            return ""
        with open(self._at(SCHEMA), "rb") as file:
            found = file.read(100).decode("ascii", "replace").strip()
        if found not in SCHEMA_VERSIONS:
            raise DataDirError(
                f"data folder {self.path} has schema version {found!r}, this gomq-py knows "
                f"{' and '.join(SCHEMA_VERSIONS)}; it was left as it is")
        return found


@contextlib.contextmanager
def _room_or_not():
    """Return a context manager that suppresses the OSError of a full disk."""
    try:
        yield
    except OSError as error:
        if error.errno not in NO_ROOM:
            raise


def content_of(path):
    """Return the sorted names in a data folder, except NOT_CONTENT and temporary files. Raises OSError."""
    names = {*os.listdir(path)} - NOT_CONTENT
    return sorted(name for name in names if not atomic_file.is_temporary(name))


def make_place(files, folder):
    """Make a subfolder of the data folder if missing. A file that has this name is renamed."""
    if os.path.isdir(folder):
        return
    if os.path.lexists(folder):
        kept = _free_name(folder)
        files.rename(folder, kept)
        LOG.error("%s is no folder; it is kept as %s", folder, kept)
    files.make_folder(folder)
    files.sync_folder(os.path.dirname(folder))


def make_way(files, path):
    """Rename a folder, broken link or pipe at ``path``, where the broker needs a regular file."""
    if os.path.lexists(path) and not os.path.isfile(path):
        kept = _free_name(path)
        files.rename(path, kept)
        LOG.error("%s is no file; it is kept as %s", path, kept)


def move_aside(files, root, path, name):
    """Move an unused file or folder into set-aside/ of the data folder ``root``. Returns its new path.
    ``name``: the new name, which is shortened if too long, and gets a number at its end. Blocks; for boot.
    """
    folder = os.path.join(root, SET_ASIDE)
    make_place(files, folder)
    target = _free_name(os.path.join(folder, os.fsdecode(os.fsencode(name)[:_NAME_OCTETS])))
    files.rename(path, target)
    return target


def _free_name(path):
    number = 0
    while os.path.lexists(found := f"{path}.{number}"):
        number += 1
    return found


def lost_logs(root, last_end):
    """Yield (path, error text) of each log of an earlier run that is now missing or empty. ``root``: the data
    folder. ``last_end``: how the last run ended.
    """
    for name in (DEFINITIONS, USERS):
        path = os.path.join(root, name)
        try:
            state = "" if os.stat(path).st_size else "is empty"
        except FileNotFoundError:
            state = "is gone"
        if state and _was_begun(root, name, last_end):
            yield path, f"{state} though an earlier run has left one, {_WAYS_OUT[name].format(root)}"


def _was_begun(root, name, last_end):
    """Return whether an earlier run had content in this log. False for an unfinished first boot, because a
    kill may then leave empty logs.
    """
    if os.path.lexists(os.path.join(root, CLUSTER_NAME)) or last_end == STOPPED:
        return True
    queues = os.path.join(root, QUEUES)
    if os.path.isdir(queues) and os.listdir(queues):
        return True
    if name != USERS:
        return False
    # an earlier version: only the first vhost is defined before the first users
    path = os.path.join(root, DEFINITIONS)
    try:
        return sum(1 for _ in LogScan(path, _octets_of(path))) > 1
    except LogError:
        return True


def last_end_of(path):
    """Return how the last run over data folder ``path`` ended: STOPPED, KILLED, FOLLOWED or POWER_LOST."""
    lock = os.path.join(path, LOCK)
    return _last_end(_note_in(path), _octets_of(lock, 300) or None, boot_id())


def listed_in(path):
    """Return {queue folder: segment_list.Listed} of the last run; empty after a crash or without a list."""
    return _listed(path, last_end_of(path))


def _last_end(note, lock_text, boot):
    """Return how the last run ended. ``boot``: boot_id(). ``note``: text of .last-run. ``lock_text``: text
    found in the lock file, or None.
    """
    # An earlier version of the broker overwrites the lock file and leaves .last-run. If such a version ran
    # last, .last-run is not about the last run.
    if note.startswith(_STOPPED_TEXT):
        return STOPPED if lock_text is None or lock_text.endswith(_STOPPED_TEXT) else POWER_LOST
    if boot and note.startswith(_FOLLOWED_TEXT + boot):
        return FOLLOWED
    return KILLED if boot and note.startswith(boot) else POWER_LOST


def _listed(path, last_end):
    lines = _note_in(path).splitlines(keepends=True) if last_end == STOPPED else []
    digest_line = lines[1] if len(lines) > 1 else b""
    if not digest_line:
        return {}
    content = _octets_of(os.path.join(path, SEGMENTS))
    if _digest_line(content) != digest_line:  # of an earlier run, or incomplete
        return {}
    try:
        decoded = segment_list.decode(content)
    except ValueError:  # of a later version
        return {}
    queues = os.path.join(os.path.abspath(path), QUEUES)
    return {os.path.join(queues, folder): entry for folder, entry in decoded.items()}


def _note_in(path):
    return _octets_of(os.path.join(path, LAST_RUN), 300)


def logs_left_in(path, last_end):
    """Return the last run's logs, {file name: {log id: flushed bytes}}; {} if it did not note them."""
    note, found = _note_in(path), {}
    if note.startswith(_STOPPED_TEXT) and last_end != STOPPED:  # an earlier version ran since
        return found
    for match in filter(None, map(_LOG_LEFT.fullmatch, note.splitlines())):
        found.setdefault(match[1].decode(), {})[int(match[2])] = int(match[3])
    return found


def _lines_of(logs):
    return b"".join(
        b"%b %d %d\n" % (name.encode(), log_id, octets)
        for name, left in logs.items() for log_id, octets in left.items())


def forget_log_left(path, name):
    """Remove the recorded length of the log ``name`` from .last-run. Raises OSError."""
    lines = _note_in(path).splitlines(keepends=True)
    left = b"".join(line for line in lines if not line.startswith(name.encode() + b" "))
    if left != b"".join(lines):
        atomic_file.replace(Files(), os.path.join(path, LAST_RUN), left)


def _logs_now(path):
    """Return lines for .last-run with the present name, log id and length of both logs."""
    lines = []
    for name in (DEFINITIONS, USERS):
        place = os.path.join(path, name)
        with contextlib.suppress(OSError, LogError):
            log_id = log_id_of(_octets_of(place, HEAD_SIZE))
            if log_id is not None:
                lines.append(b"%b %d %d\n" % (name.encode(), log_id, os.stat(place).st_size))
    return b"".join(lines)


def _octets_of(path, most=-1):
    """Return a file's content, at most ``most`` bytes (-1: all); empty if it is missing or unreadable."""
    if not os.path.isfile(path):
        return b""
    try:
        with open(path, "rb") as file:
            return file.read(most)
    except OSError as error:
        LOG.warning("%s cannot be read, and is not needed: %s", path, error.strerror)
        return b""


def _digest_line(content):
    return sha256(content).hexdigest().encode() + b"\n"


def boot_id():
    """Return the kernel's random id of this boot of the machine, as bytes; empty if unknown."""
    try:
        with open(_BOOT_ID, "rb") as file:
            return file.read(100)
    except OSError:
        return b""


def queue_id(vhost, queue):
    """Return the hash in the name of a queue's folder: 40 hex digits. ``vhost`` and ``queue``: str, in which
    surrogates (surrogateescape) stand for bytes that are not UTF-8.
    """
    first, second = (name.encode("utf-8", "surrogateescape") for name in (vhost, queue))
    return sha256(b"%d:%b%b" % (len(first), first, second)).hexdigest()[:40]


# A forked child shares the parent's flock and would keep the folder locked after the parent's death, so it
# closes its copies first.
_held = weakref.WeakSet()


def _close_in_child():
    for data_dir in list(_held):
        data_dir.forget()


os.register_at_fork(after_in_child=_close_in_child)
