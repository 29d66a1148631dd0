"""Records: what is written is read, and whatever else stands there is refused in words."""
import json
from random import Random

import pytest

from gomq_py.cluster.core.records import (
    MAX_EPOCH, MAX_OCTETS, InSyncRecord, Kept, LeaderRecord, NodeRecord, RecordError, decode_cluster,
    decode_secret, decoded,
)

A, B = "a" * 32, "0123456789abcdef" * 2
DECODERS = LeaderRecord.decode, InSyncRecord.decode, NodeRecord.decode, decode_cluster, decode_secret
LEADER = {"node": A, "epoch": 7, "address": "broker-1:5679"}
IN_SYNC = {"epoch": 7, "members": {A: 7, B: 0}}


@pytest.mark.parametrize("record", [
    LeaderRecord(A, 7, "broker-1:5679"), LeaderRecord(B, MAX_EPOCH, "[::1]:1"),
    InSyncRecord(7, {A: 7, B: 0}), InSyncRecord(7, {A: 7, B: 0}, {A: 9}),
    NodeRecord("broker 1", "10.0.0.1:65535"),
])
def test_a_record_is_read_as_written(record):
    assert type(record).decode(record.encode()) == record


def test_the_stored_form_is_the_documented_one():
    assert LeaderRecord(A, 7, "broker-1:5679").encode() == (
        b'{"node":"%s","epoch":7,"address":"broker-1:5679"}' % A.encode())
    assert InSyncRecord(7, {A: 7, B: 0}).encode() == (
        b'{"epoch":7,"members":{"%s":0,"%s":7}}' % (B.encode(), A.encode()))
    assert InSyncRecord(7, {A: 7}, {A: 9}).encode() == (
        b'{"epoch":7,"members":{"%s":7},"positions":{"%s":9}}' % (A.encode(), A.encode()))


@pytest.mark.parametrize("change", [
    {"node": A.upper()}, {"node": A[1:]}, {"node": A + "a"}, {"node": A + "\n"}, {"node": None}, {"node": 7},
    {"epoch": 0}, {"epoch": -1}, {"epoch": True}, {"epoch": 7.0}, {"epoch": "7"}, {"epoch": MAX_EPOCH + 1},
    {"address": ""}, {"address": "broker-1"}, {"address": ":5679"}, {"address": "broker-1:0"},
    {"address": "broker-1:65536"}, {"address": "broker-1:+80"}, {"address": "broker-1:٣"},
    {"address": "a b:1"}, {"address": "a\n:1"}, {"address": "a" * 300 + ":1"}, {"address": ["a:1"]},
    {"more": 1},
])
def test_a_malformed_leader_is_refused(change):
    with pytest.raises(RecordError):
        LeaderRecord.decode(json.dumps({**LEADER, **change}).encode())


@pytest.mark.parametrize("change", [
    {"epoch": 0}, {"epoch": 6}, {"members": {}}, {"members": [A]}, {"members": None}, {"members": {"a": 1}},
    {"members": {A: -1}}, {"members": {A: None}}, {"members": {A: False}}, {"members": {A: 8}}, {"more": 1},
    {"members": {f"{number:032x}": 1 for number in range(1025)}},
    {"positions": [A]}, {"positions": {"c" * 32: 1}},
    {"positions": {A: 0}}, {"positions": {A: True}}, {"positions": {A: MAX_EPOCH + 1}},
])
def test_a_malformed_set_is_refused(change):
    with pytest.raises(RecordError):
        InSyncRecord.decode(json.dumps({**IN_SYNC, **change}).encode())


@pytest.mark.parametrize("value", [
    b"", b"null", b"[]", b"{}", b"7", b"rubbish", b"\xff\xfe", b"[" * 100_000, b"9" * 10_000,
    b" " * (MAX_OCTETS + 1), b'{"epoch":' + b"9" * 6000 + b"}", b'"' + A.encode() + b'"',
])
@pytest.mark.parametrize("decode", DECODERS)
def test_rubbish_is_refused(decode, value):
    with pytest.raises(RecordError):
        decode(value)


def test_whatever_stands_there_is_a_record_or_refused():
    """Changed octets of each kind of value: no other error, whatever they say."""
    random = Random(39)
    values = [
        LeaderRecord(**LEADER).encode(), InSyncRecord(**IN_SYNC).encode(), NodeRecord("b", "b:1").encode(),
        A.encode(), b"ab" * 32,
    ]
    read = 0
    for _ in range(4000):
        value = bytearray(random.choice(values))
        for _ in range(random.randint(1, 4)):
            at = random.randrange(len(value) + 1)
            value[at:at + random.randint(0, 2)] = random.choice(
                (b"", b"{", b'"', b"0", b"-1", b"null", b"\\u0000", b"\xc3", b"e9", b"a"))
        for decode in DECODERS:
            read += decoded(Kept(bytes(value), 1, 1), decode) is not None

    assert read > 0


def test_an_id_and_a_secret_are_read():
    assert decode_cluster(A.encode()) == A
    assert decode_secret(b"00ff" * 16) == b"\x00\xff" * 16


@pytest.mark.parametrize("value", [b"short", b"zz" * 32, b"xy" * 100])
def test_a_refused_secret_is_not_shown(value):
    with pytest.raises(RecordError) as refused:
        decode_secret(value)

    assert value.decode() not in str(refused.value)


def test_a_refused_value_is_shown_in_part():
    with pytest.raises(RecordError) as refused:
        LeaderRecord.decode(json.dumps({**LEADER, "address": "x" * 5000}).encode())

    assert len(str(refused.value)) < 200
