"""The management page's files: `/` is the page, `/ui/...` what it is made of, as it lies in the package.

A blueprint beside those of the API; knows nothing of a broker, needs no login and tells no secret. Files are
read and compressed once, and anew when they have changed, so that whoever works on the page need not restart
a broker. A path is either a plain name in plain folders or unknown: nothing else of the disk is ever looked
at.
"""
import gzip
import hashlib
import re
from pathlib import Path

from flask import Blueprint, Response, abort, request

blueprint = Blueprint("page", __name__)
FOLDER = Path(__file__).parent / "ui"
# Every path that there can be: no dot but the one before the ending, so that none leads out of the folder.
_PATH = re.compile(r"(?:[a-z0-9_]+/)*[a-z0-9_]+\.(html|css|js|svg)")
TYPES = {
    "html": "text/html; charset=utf-8", "css": "text/css; charset=utf-8",
    "js": "text/javascript; charset=utf-8", "svg": "image/svg+xml",
}
_files: dict[str, "_File"] = {}


class _File:
    """A file as it was when it had this ``stamp``; ``packed`` is the same in gzip."""

    __slots__ = ("stamp", "octets", "packed", "tag", "content_type")

    def __init__(self, path, ending, stamp):
        self.stamp = stamp
        self.octets = path.read_bytes()
        self.packed = gzip.compress(self.octets, 9, mtime=0)
        self.tag = hashlib.sha256(self.octets).hexdigest()[:20]
        self.content_type = TYPES[ending]


@blueprint.get("/")
def index():
    """The page."""
    return _answer("index.html")


@blueprint.get("/ui/<path:path>")
def file(path):
    """What the page is made of."""
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
    """The _File of a path, or None where there is none."""
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
