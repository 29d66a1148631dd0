"""CRC-32C by each way that this processor can take, in Python and in the C that compiled modules have."""
import subprocess

import pytest

from gomq_py import octets
from tests.support import octets_in_c

# RFC 3720 B.4, and the check value of CRC-32C.
KNOWN = [
    (bytes(32), 0x8A9136AA),
    (b"\xff" * 32, 0x62A8AB43),
    (bytes(range(32)), 0x46DD794E),
    (bytes(reversed(range(32))), 0x113FDB5C),
    (b"123456789", 0xE3069283),
    (b"", 0),
]


@pytest.mark.parametrize("content, crc", KNOWN)
def test_a_checksum_is_the_published_one(content, crc):
    assert octets.crc32c(0, b"!" + content + b"!", 1, len(content)) == crc


@pytest.mark.parametrize("content, crc", KNOWN)
def test_a_checksum_goes_on_from_what_came_before(content, crc):
    half = len(content) // 2
    first = octets.crc32c(0, content, 0, half)

    assert octets.crc32c(first, content, half, len(content) - half) == crc


@pytest.mark.needs_program("cc")
def test_in_c_every_way_to_a_checksum_gives_the_same(tmp_path):
    """By tables, and by instructions where there are any; make processors does so for other processors."""
    said = subprocess.check_output([octets_in_c.compiled(tmp_path, "cc")], text=True).splitlines()

    assert said[0] == "tables: right"
    assert said[1] in ("instructions: right", "instructions: none here")
    assert said[2:] == ["as called, in two parts: right", "integers: right"]


@pytest.mark.needs_program("cc")
def test_in_c_a_wrong_checksum_is_told(tmp_path, monkeypatch):
    wrong_block = octets_in_c.block().replace("0x82F63B78u", "0x82F63B79u")
    monkeypatch.setattr(octets_in_c, "block", lambda: wrong_block)

    wrong = subprocess.run([octets_in_c.compiled(tmp_path, "cc")], capture_output=True, text=True)

    assert wrong.returncode == 1
    assert wrong.stdout.startswith("tables: ") and wrong.stdout.endswith("not 8a9136aa\n")
