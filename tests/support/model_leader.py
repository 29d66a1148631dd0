"""ModelLeader: files in memory that are changed at random, and told to a follower as a leader's are.

``steps`` is a sync as the leader does it: listed in slices, compared and sent by blocks, with changes between
any two of its operations.
"""
from gomq_py.cluster.wire.messages import block_digest


class ModelLeader:
    """``tell``: a follower's operations, called at once; set it later to have changes nobody hears of."""

    def __init__(self, random, tell=None):
        self.random = random
        self.tell = tell
        self.folders = set()
        # every data folder has this file
        self.files = {1: ["schema_version", bytearray(2)]}  # id -> [path, content]
        self._last_id = 1
        if tell is not None:
            tell.created(1, 2, "schema_version")

    @property
    def content(self):
        """As tests.support.mirror.folder_content."""
        return {
            **dict.fromkeys(self.folders), **{path: bytes(octets) for path, octets in self.files.values()}}

    def change(self, count=1):
        """Some changes."""
        for _ in range(count):
            change = self.random.choice((
                self._create, self._create, self._write, self._write, self._write, self._resize,
                self._rename, self._replace, self._unlink, self._make_folder, self._rename_folder,
                self._remove_folder, self._flush))
            change()

    def steps(self, checksums, block):
        """Yields between the operations of a sync. ``checksums``: a function that returns what the follower
        answered, {id: checksums of its blocks}; ``block``: their size.
        """
        listed = set()
        ids = list(self.files)
        while missing := self.folders - listed:
            for path in sorted(missing)[:3]:
                listed.add(path)
                self.tell.listed_folder(path)
            yield
        for file_id in ids:
            if file_id in self.files:
                path, octets = self.files[file_id]
                self.tell.listed(file_id, len(octets), path)
                yield
        for path in sorted(self.folders - listed):
            self.tell.listed_folder(path)
        self.tell.listed_all()
        yield
        answers = checksums()
        self.random.shuffle(ids)
        for file_id in ids:
            yield from self._send(file_id, answers.get(file_id, ()), block)
        self.tell.synced()

    def _send(self, file_id, checksums, block):
        """Yields between the blocks of a file that are sent."""
        number = 0
        while file_id in self.files and number * block < len(self.files[file_id][1]):
            octets = bytes(self.files[file_id][1][number * block:(number + 1) * block])
            is_lacked = number >= len(checksums)
            if octets.strip(b"\0") if is_lacked else digest_of(octets) != checksums[number]:
                self.tell.written(file_id, number * block, memoryview(octets))
            number += 1
            yield

    # changes

    def _path(self):
        """A path that nothing has."""
        while True:
            folder = self.random.choice(["", *sorted(self.folders)])
            path = f"{folder}/{self.random.randrange(30)}".lstrip("/")
            if path not in self.content:
                return path

    def _some_file(self):
        others = sorted(self.files.keys() - {1})
        return self.random.choice(others) if others else None

    def _create(self):
        if len(self.files) < 25:
            self._last_id += 1
            path, size = self._path(), self.random.randrange(40)
            self.files[self._last_id] = [path, bytearray(size)]
            self.tell.created(self._last_id, size, path)

    def _write(self):
        file_id = self._some_file()
        if file_id is not None:
            octets = self.files[file_id][1]
            start = self.random.randrange(len(octets) + 1)
            new = self.random.choice((self.random.randbytes, bytes))(self.random.randrange(1, 20))
            octets[start:start + len(new)] = new
            self.tell.written(file_id, start, memoryview(new))

    def _resize(self):
        file_id = self._some_file()
        if file_id is not None:
            octets, size = self.files[file_id][1], self.random.randrange(40)
            octets[size:] = bytes(max(0, size - len(octets)))
            self.tell.resized(file_id, size)

    def _rename(self):
        file_id = self._some_file()
        if file_id is not None:
            self._name(file_id, self._path())

    def _replace(self):
        """Rename a file over another one."""
        file_id, other = self._some_file(), self._some_file()
        if file_id != other:
            self._name(file_id, self.files.pop(other)[0])

    def _name(self, file_id, target):
        source, self.files[file_id][0] = self.files[file_id][0], target
        self.tell.renamed(file_id, source, target)

    def _unlink(self):
        file_id = self._some_file()
        if file_id is not None:
            self.tell.unlinked(file_id, self.files.pop(file_id)[0])

    def _make_folder(self):
        if len(self.folders) < 6:
            path = self._path()
            self.folders.add(path)
            self.tell.folder_created(path)

    def _rename_folder(self):
        if self.folders:
            source, target = self.random.choice(sorted(self.folders)), self._path()
            if not f"{target}/".startswith(f"{source}/"):
                inside = f"{source}/"
                self.folders = {
                    target + path[len(source):] if f"{path}/".startswith(inside) else path
                    for path in self.folders}
                for file in self.files.values():
                    if file[0].startswith(inside):
                        file[0] = target + file[0][len(source):]
                self.tell.renamed(0, source, target)

    def _remove_folder(self):
        names = self.content
        empty = [path for path in self.folders if not any(name.startswith(f"{path}/") for name in names)]
        if empty:
            path = self.random.choice(sorted(empty))
            self.folders.remove(path)
            self.tell.folder_removed(path)

    def _flush(self):
        self.tell.flushed()


def digest_of(octets):
    """A checksum as the wire has it."""
    return block_digest(octets)
