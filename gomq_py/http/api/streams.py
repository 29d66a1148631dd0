"""/api/streams: shows a stream's content, and returns raw ranges of its segment files to programs that read
many messages.

A reader needs a consumer's read permission, but no tag. Only flushed messages can be read, so that an offset
never means another message after a power cut.
"""
import os
import posix
from functools import partial

from flask import Blueprint, Response, request

from gomq_py.broker.queues.stream_queue import StreamQueue
from gomq_py.broker.verbs import queues
from gomq_py.http.answers import integer_of, json_answer, no_content, paced_list
from gomq_py.http.api import messages
from gomq_py.http.errors import BadRequest, NoSuchObject
from gomq_py.http.entities import caller, find_queue
from gomq_py.http.login import ANYBODY, MANAGEMENT, access
from gomq_py.hub.threads import in_thread
from gomq_py.hub.turns import give_way
from gomq_py.storage.message import Message

blueprint = Blueprint("streams", __name__)

# Octets of a segment read at a time, in a thread: a cold file waits for the disk.
CHUNK_OCTETS = 256 * 1024
_HIGHEST = (1 << 63) - 1


@blueprint.get("/api/streams/<vhost>")
@access(ANYBODY)
def list_streams(vhost):
    """Return the streams of the vhost that the user may read, by name."""
    streams = [queue for queue in queues.readable(caller(vhost)) if isinstance(queue, StreamQueue)]
    return json_answer({"streams": [
        {"name": queue.name, "vhost": vhost, "epoch": queue.epoch}
        for queue in sorted(streams, key=lambda queue: queue.name)]})


@blueprint.get("/api/streams/<vhost>/<name>")
@access(ANYBODY)
def get_stream(vhost, name):
    """Return the stream's epoch and offsets, its consumers with their lag, and their stored positions."""
    stream = find_stream(vhost, name)
    return json_answer(
        {"name": name, "vhost": vhost, **stream.describe(), "segments": len(stream.segments())}
    )


@blueprint.get("/api/streams/<vhost>/<name>/segments")
@access(ANYBODY)
def list_segments(vhost, name):
    """Return the stream's segments, oldest first: offsets, message count and readable octets of each."""
    stream = find_stream(vhost, name)
    parts = [
        {key: part[key] for key in (
            "number", "first_offset", "next_offset", "count", "body_bytes", "sealed", "first_timestamp_ms",
            "last_timestamp_ms",
        )} | {"bytes": part["flushed_bytes"], "file": os.path.basename(part["file"])}
        for part in stream.segments()
    ]
    whole = stream.describe()
    bounds = {key: whole.get(key, 0) for key in ("epoch", "first_offset", "next_offset", "synced_offset")}
    return json_answer(bounds | {"segments": parts})


@blueprint.get("/api/streams/<vhost>/<name>/segments/<int:number>")
@access(ANYBODY)
def read_segment(vhost, name, number):
    """Return octets of a segment's file from position ``offset`` on: ``length`` octets, or all octets that
    may be read. 404 if the segment is deleted, or if ``epoch`` is of an earlier stream with this name.
    """
    stream = find_stream(vhost, name)
    if request.args.get("epoch", stream.epoch) != stream.epoch:
        raise NoSuchObject(f"the stream has another epoch: {stream.epoch}")
    at = integer_of(request.args, "offset", 0, highest=_HIGHEST)
    length = integer_of(request.args, "length", _HIGHEST, highest=_HIGHEST)
    found = stream.open_segment(number)
    if found is None:
        raise NoSuchObject(f"the stream has no segment {number}")
    fd, there = found
    count = max(0, min(length, there - at))
    response = Response(
        _chunks(fd, at, at + count), mimetype="application/octet-stream",
        headers={"Content-Length": str(count), "X-Stream-Epoch": stream.epoch, "X-Segment-Bytes": str(there)})
    response.call_on_close(partial(posix.close, fd))  # the generator of a HEAD request never starts
    return response


@blueprint.get("/api/streams/<vhost>/<name>/messages")
@access(ANYBODY)
def peek_stream(vhost, name):
    """Return up to ``count`` messages from ``offset`` on, or from the oldest message if that offset is
    deleted. The ``position`` of each message is its offset. Nothing is delivered or counted.
    """
    stream = find_stream(vhost, name)
    look = messages.Look(integer_of(request.args, "offset", 0, highest=_HIGHEST))
    cursor = stream.cursor_at(look.offset)
    try:
        return paced_list(_peeked(cursor, look))
    finally:
        cursor.close()


def _peeked(cursor, look):
    message = Message()
    for _ in range(look.count):
        while not cursor.peek(message):
            if not cursor.forget_skipped():  # skips damage, part by part
                return
            give_way()
        yield look.shown(message, cursor.offset)
        cursor.step()


@blueprint.get("/api/streams/<vhost>/<name>/offset")
@access(ANYBODY)
def find_offset(vhost, name):
    """Return the offset of the first message since ``timestamp`` (Unix ms), or of the next one to come."""
    stream = find_stream(vhost, name)
    if "timestamp" not in request.args:
        raise BadRequest("timestamp is missing: Unix milliseconds")
    timestamp_ms = integer_of(request.args, "timestamp", 0, highest=_HIGHEST)
    return json_answer({"epoch": stream.epoch, "offset": stream.offset_for_timestamp(timestamp_ms)})


@blueprint.delete("/api/streams/<vhost>/<name>/offsets/<tag>")
@access(MANAGEMENT)
def delete_offset(vhost, name, tag):
    """Delete the stored position of the consumer ``tag`` in the stream."""
    if not find_stream(vhost, name).forget_offset(tag):
        raise NoSuchObject(f"the stream knows no position of consumer '{tag}'")
    return no_content()


def find_stream(vhost, name):
    """Return the open stream of this name. Raises NoSuchObject; NotAuthorised if the user may not read it."""
    find_queue(vhost, name)
    queue = queues.to_look_at(caller(vhost), name)
    if not isinstance(queue, StreamQueue):
        raise NoSuchObject(f"queue '{name}' in vhost '{vhost}' is no stream")
    if queue.closed:
        raise NoSuchObject(f"stream '{name}' in vhost '{vhost}' is closed")
    return queue


def _chunks(fd, at, end):
    """Yield the bytes of the file ``fd`` from position ``at`` to ``end``. May switch greenlets."""
    while at < end:
        chunk = in_thread(os.pread, fd, min(CHUNK_OCTETS, end - at), at)
        if not chunk:
            return
        at += len(chunk)
        yield chunk
