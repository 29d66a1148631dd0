"""storage.disk.files: the seam does what it says on a real file system, and tells its listeners."""
import contextlib
import errno
import fcntl
import os
from unittest import mock

import pytest

from gomq_py.storage.disk import files as files_module, mapping, open_file, pages
from gomq_py.storage.disk.files import Files
from gomq_py.storage.disk.mapping import flush_mapping
from gomq_py.storage.disk.register import Register
from gomq_py.storage.disk.replication import Range, Replicator


class Events(Replicator):
    """Writes down what it hears, ranges with their octets."""

    def __init__(self):
        self.heard = []

    def created(self, file_id, path, size):
        self.heard.append(("created", os.path.basename(path), size))

    def folder_created(self, path):
        self.heard.append(("folder_created", os.path.basename(path)))

    def appended(self, file_id, file, start, end):
        self.heard.append(("appended", os.path.basename(file.path), start, file.read(start, end)))

    def overwritten(self, file_id, file, start, end):
        self.heard.append(("overwritten", os.path.basename(file.path), start, file.read(start, end)))

    def resized(self, file_id, path, size):
        self.heard.append(("resized", os.path.basename(path), size))

    def renamed(self, file_id, source, target):
        self.heard.append(("renamed", os.path.basename(source), os.path.basename(target)))

    def unlinked(self, file_id, path):
        self.heard.append(("unlinked", os.path.basename(path)))

    def folder_removed(self, path):
        self.heard.append(("folder_removed", os.path.basename(path)))

    def flushed(self):
        self.heard.append(("flushed",))


@pytest.fixture
def files():
    return Files()


class ShortWrites(Files):
    """The kernel takes three octets at a time."""

    def _write_once(self, file, at, octets):
        return super()._write_once(file, at, octets[:3])


class FullDisk(Files):
    """The kernel takes five octets in all, then says that the disk is full; cutting back may fail too."""

    def __init__(self, cut_fails=False):
        super().__init__()
        self.room = 5
        self.cut_fails = cut_fails

    def _write_once(self, file, at, octets):
        if not self.room:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        written = super()._write_once(file, at, octets[:self.room])
        self.room -= written
        return written

    def _cut(self, fd, size):
        if self.cut_fails:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        super()._cut(fd, size)


def test_created_file_is_mapped_zero_and_has_its_room_on_disk(files, tmp_path):
    file = files.create(tmp_path / "msgs", 1 << 16)

    assert file.map[:] == bytes(1 << 16)
    assert os.stat(file.path).st_blocks * 512 >= 1 << 16


def test_create_refuses_to_take_over_an_existing_file(files, tmp_path):
    (tmp_path / "msgs").write_bytes(b"precious")

    with pytest.raises(FileExistsError):
        files.create(tmp_path / "msgs", 4096)

    assert (tmp_path / "msgs").read_bytes() == b"precious"


def test_create_without_room_leaves_no_file_and_names_it(files, tmp_path):
    with pytest.raises(OSError) as raised:
        files.create(tmp_path / "msgs", 1 << 60)

    assert raised.value.errno in (errno.ENOSPC, errno.EFBIG)
    assert raised.value.filename == str(tmp_path / "msgs")
    assert os.listdir(tmp_path) == []


def test_written_octets_are_in_file_and_mapping_and_announced(tmp_path):
    events = Events()
    files = ShortWrites((events,))
    file = files.create(tmp_path / "msgs", 4096)

    files.write(file, 10, memoryview(b"0123456789"))

    assert file.map[8:22] == (tmp_path / "msgs").read_bytes()[8:22] == b"\0\0" + b"0123456789" + b"\0\0"
    assert events.heard[1:] == [("appended", "msgs", 10, b"0123456789")]


def test_write_that_fails_names_the_file_and_announces_nothing(tmp_path):
    files, events = FullDisk(), Events()
    files.register = Register((events,))
    file = files.create(tmp_path / "msgs", 4096)

    with pytest.raises(OSError) as raised:
        files.write(file, 10, b"0123456789")

    assert (raised.value.errno, raised.value.filename) == (errno.ENOSPC, str(tmp_path / "msgs"))
    assert len(events.heard) == 1


def test_mapped_writes_are_in_the_file(files, tmp_path):
    file = files.create(tmp_path / "msgs", 4096)

    file.map[10:13] = b"abc"

    assert (tmp_path / "msgs").read_bytes()[10:13] == b"abc"


def test_descriptors_are_not_inherited_and_files_are_private(files, tmp_path):
    opened = [
        files.create(tmp_path / "a", 4096), files.open_log(tmp_path / "b"), files.open(tmp_path / "a"),
        files.create_unnamed(tmp_path, 4096),
    ]

    assert all(fcntl.fcntl(file.fd, fcntl.F_GETFD) & fcntl.FD_CLOEXEC for file in opened)
    assert {os.stat(tmp_path / name).st_mode & 0o777 for name in "ab"} == {0o600}


def test_folders_are_private(files, tmp_path):
    files.make_folder(tmp_path / "queue")

    assert os.stat(tmp_path / "queue").st_mode & 0o777 == 0o700


def test_open_maps_the_whole_file_for_writing(files, tmp_path):
    (tmp_path / "msgs").write_bytes(b"0123456789")

    file = files.open(tmp_path / "msgs")
    file.map[3:5] = b"__"

    assert file.size == 10
    assert (tmp_path / "msgs").read_bytes() == b"012__56789"


def test_an_empty_file_opens_without_a_mapping_and_gets_one_when_it_grows(files, tmp_path):
    (tmp_path / "msgs").touch()
    file = files.open(tmp_path / "msgs")
    assert file.map is None

    files.extend(file, 4096)

    assert file.map[:] == bytes(4096)


def test_unnamed_file_is_nowhere_to_be_seen(files, tmp_path):
    file = files.create_unnamed(tmp_path, 4096)

    file.map[0:2] = b"ok"

    assert os.listdir(tmp_path) == []
    assert file.read(0, 2) == b"ok"


def test_append_returns_where_the_record_begins(files, tmp_path):
    file = files.open_log(tmp_path / "log")

    assert files.append(file, b"first") == 0
    assert files.append(file, b"second") == 5
    assert (tmp_path / "log").read_bytes() == b"firstsecond"


def test_open_log_goes_on_at_the_end_of_what_is_there(files, tmp_path):
    (tmp_path / "log").write_bytes(b"first")

    file = files.open_log(tmp_path / "log")
    files.append(file, b"second")

    assert (tmp_path / "log").read_bytes() == b"firstsecond"


def test_short_writes_are_completed(tmp_path):
    files = ShortWrites()
    file = files.open_log(tmp_path / "log")

    files.append(file, b"0123456789")

    assert (tmp_path / "log").read_bytes() == b"0123456789"


def test_append_to_a_full_disk_leaves_nothing_of_the_record(tmp_path):
    files = FullDisk()
    file = files.open_log(tmp_path / "log")
    files.append(file, b"abc")

    with pytest.raises(OSError) as raised:
        files.append(file, b"0123456789")

    assert raised.value.errno == errno.ENOSPC and raised.value.filename == str(tmp_path / "log")
    assert (tmp_path / "log").read_bytes() == b"abc"
    files.room = 100
    assert files.append(file, b"def") == 3


def test_a_log_that_could_not_be_cut_back_takes_no_more(tmp_path):
    files = FullDisk(cut_fails=True)
    file = files.open_log(tmp_path / "log")
    with pytest.raises(OSError):
        files.append(file, b"0123456789")
    files.room = 100

    with pytest.raises(OSError, match="closed since"):
        files.append(file, b"more")

    assert (tmp_path / "log").read_bytes() == b"01234"


def test_truncate_remaps_at_the_new_size(files, tmp_path):
    file = files.create(tmp_path / "msgs", 8192)
    file.map[0:3] = b"abc"

    files.truncate(file, 100)

    assert file.size == len(file.map) == os.stat(file.path).st_size == 100
    assert file.read(0, 4) == b"abc\0"


def test_extend_keeps_the_content_and_takes_room(files, tmp_path):
    file = files.create(tmp_path / "msgs", 4096)
    file.map[0:3] = b"abc"

    files.extend(file, 1 << 16)

    assert file.map[0:4] == b"abc\0" and len(file.map) == 1 << 16
    assert os.stat(file.path).st_blocks * 512 >= 1 << 16


def test_allocate_fills_the_holes_of_a_sparse_file(files, tmp_path):
    (tmp_path / "acks").touch()
    os.truncate(tmp_path / "acks", 1 << 16)
    file = files.open(tmp_path / "acks")

    files.allocate(file)

    assert os.stat(file.path).st_blocks * 512 >= 1 << 16


def test_a_held_file_is_closed_by_its_last_holder(files, tmp_path):
    file = files.create(tmp_path / "msgs", 4096)
    file.retain()
    file.retain()

    files.close(file)
    file.release()
    assert not file.closed and file.is_retained

    file.release()
    assert file.closed


def test_a_held_file_that_is_closed_aside_is_closed_aside_by_its_last_holder(files, tmp_path):
    file = files.create(tmp_path / "a", 4096)
    file.retain()
    put_aside = []

    files.close(file, lambda function, *arguments: put_aside.append((function, arguments)))
    assert not file.closed and not put_aside
    file.release()

    (function, arguments), = put_aside
    assert file.closed and file.map is None
    function(*arguments)
    with pytest.raises(OSError):
        os.fstat(arguments[1])


def test_nobody_hears_of_a_file_made_in_a_thread_before_the_hub_says_so(tmp_path):
    events = Events()
    files = Files((events,))

    kept, gone = files.make(tmp_path / "a", 4096), files.make(tmp_path / "b", 4096)
    files.unmake(gone)
    assert events.heard == [] and os.listdir(tmp_path) == ["a"]
    files.made(kept)

    assert events.heard == [("created", "a", 4096)]


def test_a_released_file_that_its_owner_has_open_stays_open(files, tmp_path):
    file = files.create(tmp_path / "msgs", 4096)
    file.retain()

    file.release()

    assert not file.closed and not file.is_retained


def test_rename_replaces_and_the_open_file_follows(files, tmp_path):
    (tmp_path / "new").write_bytes(b"old content")
    file = files.create(tmp_path / "msgs", 4096)

    files.rename(tmp_path / "msgs", tmp_path / "new", file)

    assert file.path == str(tmp_path / "new")
    assert os.stat(tmp_path / "new").st_size == 4096


def test_sync_remembers_how_long_the_file_was(files, tmp_path):
    file = files.open_log(tmp_path / "log")
    files.append(file, b"abc")

    files.sync(file)
    files.append(file, b"def")

    assert file.synced_size == 3


def test_folder_that_a_thread_makes_is_told_of_before_what_is_in_it_and_once(tmp_path):
    events = Events()
    files = Files((events,))
    coming, refused, unused = (
        files.having_folder(tmp_path / name) for name in ("coming", "refused", "unused")
    )

    coming.act()  # the thread's half: nobody has been told
    files.have_folder(tmp_path / "coming")
    files.create(tmp_path / "coming" / "msgs", 4096)
    coming.told()
    files.have_folder(tmp_path / "refused")  # before the thread comes to it
    refused.make()
    unused.make()

    assert events.heard == [
        ("folder_created", "coming"), ("created", "msgs", 4096), ("folder_created", "refused"),
        ("folder_created", "unused")]


@pytest.mark.parametrize("failed_is_told_first", [True, False])
def test_folder_that_one_thread_could_not_make_and_another_could_is_told_of(tmp_path, failed_is_told_first):
    events = Events()
    files = Files((events,))
    first, second = (
        files.having_folder(tmp_path / "queue" / "level"), files.having_folder(tmp_path / "queue" / "level")
    )
    with pytest.raises(FileNotFoundError):
        first.act()
    (tmp_path / "queue").mkdir()
    second.act()

    for change in (first, second) if failed_is_told_first else (second, first):
        change.told()

    assert events.heard == [("folder_created", "level")] and not files.is_making_folder(tmp_path / "queue")


def test_folder_is_being_made_until_the_last_who_would_make_it_is_done(tmp_path):
    files = Files()
    first, second = files.having_folder(tmp_path / "queue"), files.having_folder(tmp_path / "queue")
    first.make()

    assert files.is_making_folder(tmp_path / "queue")
    second.make()
    assert not files.is_making_folder(tmp_path / "queue")


@pytest.mark.parametrize("path, error", [
    ("nowhere/queue", FileNotFoundError), ("in the way", FileExistsError)
])
def test_folder_that_a_thread_could_not_make_is_tried_again_by_who_needs_it(tmp_path, path, error):
    events = Events()
    files = Files((events,))
    (tmp_path / "in the way").write_bytes(b"")
    coming = files.having_folder(tmp_path / path)

    with pytest.raises(error):
        coming.act()
    coming.told()

    assert events.heard == [] and files.lacks_folder(tmp_path / path)
    with pytest.raises(error):
        files.have_folder(tmp_path / path)
    (tmp_path / path).parent.mkdir(exist_ok=True)
    (tmp_path / "in the way").unlink()
    files.have_folder(tmp_path / path)
    assert events.heard == [("folder_created", (tmp_path / path).name)]


def test_sync_folder_works_on_a_folder_and_fails_on_a_missing_one(files, tmp_path):
    files.sync_folder(tmp_path)

    with pytest.raises(FileNotFoundError):
        files.sync_folder(tmp_path / "nowhere")


def test_listeners_hear_every_change_in_order(tmp_path):
    events = Events()
    files = Files((events,))
    files.make_folder(tmp_path / "queue")
    file = files.create(tmp_path / "queue" / "msgs", 4096)
    file.map[0:6] = b"record"
    files.appended(file, 0, 6)
    file.map[0:1] = b"R"
    files.overwritten(file, 0, 1)
    files.truncate(file, 6)
    files.rename(file.path, tmp_path / "queue" / "other", file)
    log = files.open_log(tmp_path / "log")
    files.append(log, b"entry")
    files.remove_tree(tmp_path / "queue")

    assert events.heard == [
        ("folder_created", "queue"), ("created", "msgs", 4096), ("appended", "msgs", 0, b"record"),
        ("overwritten", "msgs", 0, b"R"),
        ("resized", "msgs", 6), ("renamed", "msgs", "other"), ("created", "log", 0),
        ("appended", "log", 0, b"entry"),
        ("unlinked", "other"), ("folder_removed", "queue"),
    ]


def test_listeners_do_not_hear_of_unnamed_files(tmp_path):
    events = Events()
    files = Files((events,))

    file = files.create_unnamed(tmp_path, 4096)
    files.appended(file, 0, 10)
    files.overwritten(file, 0, 10)
    files.truncate(file, 10)

    assert events.heard == []


def test_range_is_read_when_it_is_taken_and_its_file_stays_open_until_then(tmp_path):
    files = Files((Events(),))
    file = files.create(tmp_path / "msgs", 1 << 17)
    content = Range(file, 0, 1 << 16)
    file.map[0:4] = b"late"
    files.close(file)
    head, rest = bytearray(4), bytearray(b"x" * (1 << 17))

    assert not file.closed
    assert content.take_into(memoryview(head)) == 4 and head == b"late"
    assert not file.closed
    assert content.take_into(memoryview(rest)) == (1 << 16) - 4
    assert rest.count(0) == (1 << 16) - 4
    assert file.closed


def test_range_whose_file_cannot_be_read_gives_it_back(tmp_path, monkeypatch):
    file = Files().create(tmp_path / "msgs", 4096)
    content = Range(file, 0, 4096)

    def read_into(_file, target, start, end):
        raise OSError(errno.EIO, "unreadable")

    monkeypatch.setattr(type(file), "read_into", read_into)

    with pytest.raises(OSError, match="unreadable"):
        content.take_into(memoryview(bytearray(10)))
    assert not file.is_retained


def test_range_that_is_dropped_gives_its_file_back(tmp_path):
    file = Files().create(tmp_path / "msgs", 4096)
    content = Range(file, 0, 4096)

    content.drop()

    assert not file.is_retained


def test_listeners_do_not_hear_of_changes_that_failed(tmp_path):
    events = Events()
    files = Files((events,))

    for change in (files.unlink, files.remove_folder, files.open):
        with pytest.raises(FileNotFoundError):
            change(tmp_path / "nowhere")

    assert events.heard == []


@pytest.mark.parametrize("system", ["populates", "does not"])
def test_reading_through_a_file_that_was_cut_short_is_an_error(files, tmp_path, monkeypatch, system):
    """Touching the mapping behind its end would be the end of this process."""
    if system == "does not":
        monkeypatch.setattr(pages, "_POPULATE_READ", 9999)
    file = files.create(tmp_path / "msgs", 1 << 20)
    os.truncate(tmp_path / "msgs", 1 << 19)
    files.read_through(file, 4096, 1 << 19)

    with pytest.raises(OSError) as raised:
        files.read_through(file, 4096, 1 << 20)

    assert raised.value.errno == errno.EIO and raised.value.filename == str(tmp_path / "msgs")


def test_reading_through_meets_what_the_disk_cannot_give(files, tmp_path, monkeypatch):
    """A bad sector, by hand: what preadv says of it must come out as an error that names the file."""
    monkeypatch.setattr(files_module, "populate", lambda *_: False)
    file = files.create(tmp_path / "msgs", 3 << 20)
    files.read_through(file)
    read = os.preadv

    def bad_sector(fd, buffers, at):
        if at >= 2 << 20:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return read(fd, buffers, at)

    monkeypatch.setattr(os, "preadv", bad_sector)
    with pytest.raises(OSError) as raised:
        files.read_through(file)

    assert raised.value.errno == errno.EIO and raised.value.filename == str(tmp_path / "msgs")


@pytest.mark.parametrize(
    "make", [lambda files, path: files.create(path, 4096), lambda files, path: files.open_log(path)],
    ids=["mapped", "log"],
)
def test_file_that_nobody_closed_goes_with_the_last_who_knew_it(files, tmp_path, make):
    file = make(files, tmp_path / "a")
    fd = file.fd
    os.fstat(fd)

    del file

    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(fd)


# without a descriptor


class FilesWithOne(Files):
    """One mapped file has a descriptor, the others do not."""

    mapped_descriptors = 1


def described():
    """What this process has descriptors of: a file without a name has the one that it had."""
    found = []
    for number in os.listdir("/proc/self/fd"):
        with contextlib.suppress(FileNotFoundError):
            found.append(os.readlink(f"/proc/self/fd/{number}"))
    return found


def descriptors_on(path):
    """How many descriptors this process has on a file."""
    return described().count(str(path))


def descriptors_below(folder):
    """How many descriptors this process has of files that are, or were, in a folder."""
    return sum(name.startswith(f"{folder}/") for name in described())


def mappings_below(folder):
    """How many mappings this process has of files that are, or were, in a folder."""
    with open("/proc/self/maps") as lines:
        return sum(f"{folder}/" in line for line in lines)


@pytest.fixture
def other(tmp_path):
    """A mapped file without a descriptor, and its Files."""
    files = FilesWithOne()
    first = files.create(tmp_path / "first", 4096)
    yield files, files.create(tmp_path / "other", 8192)
    files.close(first)


def test_a_mapping_keeps_no_descriptor_of_its_own(files, tmp_path):
    file = files.create(tmp_path / "msgs", 4096)

    assert descriptors_on(file.path) == 1
    files.close(file)
    assert descriptors_on(file.path) == 0


def test_so_many_mapped_files_have_a_descriptor_and_the_next_one_when_one_has_gone(tmp_path):
    files = FilesWithOne()
    made = [files.create(tmp_path / "a", 4096), files.make(tmp_path / "b", 4096), files.open(tmp_path / "a")]
    assert [descriptors_on(tmp_path / name) for name in "ab"] == [1, 0]

    files.close(made[0])

    assert descriptors_on(files.create(tmp_path / "c", 4096).path) == 1


def test_file_without_a_descriptor_is_flushed_through_its_mapping(other, monkeypatch):
    files, file = other
    flushed = []
    monkeypatch.setattr(open_file, "flush_mapping", flushed.append)

    files.sync(file)

    assert flushed == [file.map] and file.synced_size == 8192
    flush_mapping(file.map)


def test_flush_of_a_mapping_that_fails_names_the_file(other, monkeypatch):
    files, file = other
    monkeypatch.setattr(mapping, "_MS_SYNC", 1 << 20)  # a flag that msync does not know

    with pytest.raises(OSError) as raised:
        files.sync(file)

    assert raised.value.errno == errno.EINVAL and raised.value.filename == file.path and file.synced_size == 0


def test_file_without_a_descriptor_changes_its_size_and_its_name(other, tmp_path):
    files, file = other
    file.map[:3] = b"abc"

    files.extend(file, 65536)
    files.rename(file.path, tmp_path / "renamed", file)
    file.map[65535:] = b"z"
    files.truncate(file, 40000)
    files.allocate(file)
    files.read_through(file)

    assert (tmp_path / "renamed").read_bytes() == b"abc".ljust(40000, b"\0")
    assert descriptors_on(file.path) == 0


def test_file_that_grows_while_a_thread_is_about_to_flush_it_fails_no_flush(other, monkeypatch):
    files, file = other
    file.map[:3] = b"abc"

    def grown_meanwhile(mapping):
        files.extend(file, 65536)
        flush_mapping(mapping)

    monkeypatch.setattr(open_file, "flush_mapping", grown_meanwhile)

    files.sync(file)

    assert file.synced_size == 8192 and len(file.map) == file.size == 65536 and file.map[:3] == b"abc"


def test_file_that_has_grown_and_cannot_be_mapped_keeps_its_mapping(other, monkeypatch):
    files, file = other

    def refused(fd, size, path):
        raise OSError(errno.ENOMEM, "no more mappings", path)

    monkeypatch.setattr(open_file, "map_file", refused)

    with pytest.raises(OSError, match="no more mappings"):
        files.extend(file, 65536)

    assert len(file.map) == file.size == 8192


def test_file_that_lost_its_name_to_another_is_not_taken_for_that(other, tmp_path):
    files, file = other
    (tmp_path / "new").write_bytes(bytes(100))
    os.rename(tmp_path / "new", file.path)

    with pytest.raises(OSError, match="another file has the name"):
        files.extend(file, 65536)

    assert os.path.getsize(file.path) == 100 and file.size == 8192


def test_file_that_is_written_with_calls_gets_its_descriptor_back(other):
    files, file = other

    files.write(file, 100, b"octets")

    assert file.map[100:106] == b"octets" and descriptors_on(file.path) == 1
    files.close(file)
    assert descriptors_on(file.path) == 0


def test_file_that_is_one_of_many_written_with_calls_is_left_without_its_descriptor(other, monkeypatch):
    files, file = other
    written = mock.Mock(wraps=os.pwrite)
    monkeypatch.setattr(os, "pwrite", written)

    files.put(file, 100, b"octets")

    assert file.map[100:106] == b"octets" and written.call_count == 1
    assert file.fd == -1 and descriptors_on(file.path) == 0


@pytest.mark.parametrize("verb", ["write", "put"])
def test_file_that_gets_no_descriptor_is_written_through_its_mapping(other, verb):
    files, file = other
    os.unlink(file.path)

    getattr(files, verb)(file, 100, memoryview(b"octets"))

    assert file.map[100:106] == b"octets" and file.fd == -1


def test_files_that_lose_their_names_wait_without_descriptors_for_their_room_to_be_given_back(
    files, tmp_path
):
    for name in "abc":
        (tmp_path / name).write_bytes(bytes(4096))
    (tmp_path / "empty").touch()
    changes, put_aside = [], []
    for name in ("a", "b", "c", "empty"):
        changes.append(files.unlinking(tmp_path / name, lambda *call: put_aside.append(call)))

    for change in changes:
        change.act()

    assert os.listdir(tmp_path) == [] and mappings_below(tmp_path) == 3 and descriptors_below(tmp_path) == 0
    for change in changes:
        change.told()
    assert mappings_below(tmp_path) == 3
    for function, *arguments in put_aside:
        function(*arguments)
    assert mappings_below(tmp_path) == 0 and descriptors_below(tmp_path) == 0


def test_of_very_many_files_that_lose_their_names_the_last_give_their_room_back_at_once(
    files, tmp_path, monkeypatch
):
    monkeypatch.setattr(files_module, "LEAVING", 2)
    for name in "abcd":
        (tmp_path / name).write_bytes(bytes(4096))
    put_aside = []
    changes = [files.unlinking(tmp_path / name, lambda *call: put_aside.append(call)) for name in "abc"]

    for change in changes:
        change.act()
        change.told()

    assert mappings_below(tmp_path) == 2 == len(put_aside) and os.listdir(tmp_path) == ["d"]
    function, *arguments = put_aside.pop()
    function(*arguments)
    files.unlinking(tmp_path / "d", lambda *call: put_aside.append(call)).make()
    assert mappings_below(tmp_path) == 2 == len(put_aside)
    for function, *arguments in put_aside:
        function(*arguments)


def test_file_that_keeps_its_name_is_not_held(files, tmp_path, monkeypatch):
    (tmp_path / "a").write_bytes(bytes(4096))
    monkeypatch.setattr(files, "_unlink", lambda path: os.rmdir(path))

    with pytest.raises(NotADirectoryError):
        files.unlinking(tmp_path / "a", print).make()

    assert mappings_below(tmp_path) == 0 and descriptors_on(tmp_path / "a") == 0


def test_file_that_cannot_be_mapped_is_an_error_that_names_it_and_leaves_nothing(other, tmp_path):
    _, file = other
    (tmp_path / "read only").write_bytes(bytes(65536))
    fd = os.open(tmp_path / "read only", os.O_RDONLY)
    try:
        with pytest.raises(PermissionError) as refused:
            mapping.map_file(fd, 4096, "its path")
        with pytest.raises(PermissionError) as grown:
            file.grow(65536, fd)
    finally:
        os.close(fd)
    assert (refused.value.filename, refused.value.strerror, grown.value.filename) == (
        "its path", os.strerror(errno.EACCES), file.path
    )
    assert descriptors_on(tmp_path / "read only") == 0
