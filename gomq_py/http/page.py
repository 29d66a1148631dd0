"""Serves the files of the management web page: `/` is the page, `/ui/...` are its parts.

The files need no login and contain no secret. They are read and compressed at the first request, and again
when they have changed. Only plain names in plain folders are valid paths, so no other file on the disk is
ever read.
"""
import gzip
import hashlib
import re
from pathlib import Path

from flask import Blueprint, Response, abort, request

blueprint = Blueprint("page", __name__)
FOLDER = Path(__file__).parent / "ui"
# Every valid path: its only dot is before the ending, so that none leads out of the folder.
_PATH = re.compile(r"(?:[a-z0-9_]+/)*[a-z0-9_]+\.(html|css|js|svg)")
TYPES = {
    "html": "text/html; charset=utf-8", "css": "text/css; charset=utf-8",
    "js": "text/javascript; charset=utf-8", "svg": "image/svg+xml",
}
_files: dict[str, "_File"] = {}


class _File:
    """A file's content, plain and as gzip (``packed``). ``stamp``: time and size when read. ``tag``: ETag."""

    __slots__ = ("stamp", "octets", "packed", "tag", "content_type")

    def __init__(self, path, ending, stamp):
        self.stamp = stamp
        self.octets = path.read_bytes()
        self.packed = gzip.compress(self.octets, 9, mtime=0)
        self.tag = hashlib.sha256(self.octets).hexdigest()[:20]
        self.content_type = TYPES[ending]


@blueprint.get("/")
def index():
    """Return the management page."""
    return _answer("index.html")


@blueprint.get("/ui/<path:path>")
def file(path):
    """Return a file of the management page."""
    return _answer(path)


def _answer(path):
    found = _found(path)
    if found is None:
        abort(404)
    packed = request.accept_encodings["gzip"] > 0
    response = Response(found.packed if packed else found.octets, content_type=found.content_type)
    response.headers["Vary"] = "Accept-Encoding"
    if packed:
        response.headers["Content-Encoding"] = "gzip"
    response.set_etag(f"{found.tag}-gzip" if packed else found.tag)
    return response.make_conditional(request)


def _found(path):
    match = _PATH.fullmatch(path)
    if match is None:
        return None
    place = FOLDER / path
    try:
        status = place.stat()
        stamp = status.st_mtime_ns, status.st_size
        known = _files.get(path)
        if known is None or known.stamp != stamp:
            known = _files[path] = _File(place, match[1], stamp)
    except OSError:
        return None
    return known
