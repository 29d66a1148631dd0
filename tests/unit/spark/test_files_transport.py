"""A stream's files without Spark: which stream it is, and how far it can be read."""
import pytest

from gomq_py.spark.files_transport import FilesTransport, folder_id
from gomq_py.spark.options import Options
from gomq_py.spark.planning import Planner
from gomq_py.storage.format.head import HEAD_BYTES
from tests.support.stores import INCARNATION
from tests.support.streams import StreamBench


@pytest.fixture
def orders(tmp_path):
    """(folder of the stream ``orders`` with 5 messages, a Planner that reads it)."""
    folder = tmp_path / "data" / "queues" / f"{folder_id('/', 'orders')}.{INCARNATION[:8].hex()}"
    folder.parent.mkdir(parents=True)
    folder.symlink_to(tmp_path / "bench" / "stream")
    (tmp_path / "bench").mkdir()
    StreamBench(tmp_path / "bench").push(5)
    options = Options({"subscribe": "orders", "transport": "files", "dataDir": str(tmp_path / "data")})
    return folder, Planner(options, FilesTransport(options))


@pytest.mark.parametrize("octets", [b"", bytes(65536), b"damaged " * HEAD_BYTES])
def test_a_last_segment_without_a_head_does_not_make_it_another_stream(orders, octets):
    folder, planner = orders
    (folder / "msgs.0000000002").write_bytes(octets)

    shapes = planner.shapes()

    assert (shapes["orders"].epoch, shapes["orders"].end_offset) == (INCARNATION.hex(), 5)
    start, end = planner.starts(shapes, "earliest")["orders"], planner.ends(shapes)["orders"]
    piece, = planner.pieces("orders", shapes["orders"], start, end)
    read = planner.transport.octets("orders", piece.epoch, piece.number, piece.at, piece.bytes)
    assert sum(map(len, read)) == piece.bytes
