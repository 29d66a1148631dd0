"""Bodies of requests, octet for octet, and answers of every shape that etcd does not give."""
import json
import random

import pytest

from gomq_py.cluster.core.records import Kept
from gomq_py.cluster.core.transactions import CREATE, MOD, Compare, Delete, Put, Transaction
from gomq_py.cluster.etcd import messages
from gomq_py.cluster.etcd.messages import AnswerError, Refused

PREFIX = b"gomq/"
# "gomq/", "gomq0", "gomq/leader", "gomq/isr", "gomq/nodes/a", "x" as base64 command makes them
KEY, END, LEADER, IN_SYNC, NODE, X = (
    "Z29tcS8=", "Z29tcTA=", "Z29tcS9sZWFkZXI=", "Z29tcS9pc3I=", "Z29tcS9ub2Rlcy9h", "eA==")
HEADER = {"cluster_id": "7801232528081817440", "member_id": "13458989633860879742", "revision": "9"}


def entry(**changes):
    """A key in an answer, as etcd writes it."""
    return {
        "key": LEADER, "create_revision": "2", "mod_revision": "5", "version": "3", "value": X, "lease": "7",
    } | changes


def range_answer(*entries, **changes):
    return {"header": HEADER, "kvs": list(entries), "count": str(len(entries))} | changes


def transaction_answer(**changes):
    found = {"header": {"revision": "9"}, "kvs": [entry()], "count": "1"}
    return {
        "header": HEADER, "succeeded": True,
        "responses": [{"response_put": {"header": {"revision": "9"}}}, {"response_range": found}],
    } | changes


def test_range_asks_for_the_keys_below_the_prefix_alone():
    assert messages.range_request(PREFIX) == {"key": KEY, "range_end": END}


def test_transaction_reads_the_keys_behind_its_operations_in_both_branches():
    transaction = Transaction(
        (Compare("leader", CREATE, 0), Compare("isr", MOD, 12)),
        (Put("leader", b"x", 7), Put("isr", b"x"), Delete("nodes/a")))

    view = {"request_range": {"key": KEY, "range_end": END}}
    assert messages.transaction_request(PREFIX, transaction) == {
        "compare": [
            {"key": LEADER, "target": "CREATE", "result": "EQUAL", "create_revision": "0"},
            {"key": IN_SYNC, "target": "MOD", "result": "EQUAL", "mod_revision": "12"},
        ],
        "success": [
            {"request_put": {"key": LEADER, "value": X, "lease": "7"}},
            {"request_put": {"key": IN_SYNC, "value": X, "lease": "0"}},
            {"request_delete_range": {"key": NODE}},
            view,
        ],
        "failure": [view],
    }


def test_watch_begins_at_the_present_revision():
    assert messages.watch_request(PREFIX) == {"create_request": {"key": KEY, "range_end": END}}


def test_view_holds_each_key_with_its_revisions_and_lease():
    answer = range_answer(entry(), entry(key=NODE, lease="0"))

    view = messages.view_of(answer, PREFIX)

    assert view.revision == 9
    assert view.leader == Kept(b"x", 2, 5, 7)
    assert view.nodes == {"a": Kept(b"x", 2, 5, 0)}
    assert (view.cluster, view.in_sync, view.secret) == (None, None, None)


def test_fields_left_out_are_zero_or_empty():
    bare = {"key": LEADER, "create_revision": "2", "mod_revision": "2"}

    assert messages.view_of(range_answer(bare), PREFIX).leader == Kept(b"", 2, 2, 0)
    assert messages.view_of({"header": HEADER}, PREFIX).leader is None
    assert not messages.outcome_of(transaction_answer(succeeded=False), PREFIX).is_done


def test_key_that_is_no_text_stops_nothing():
    view = messages.view_of(range_answer(entry(key="Z29tcS//"), entry()), PREFIX)

    assert view.leader is not None


@pytest.mark.parametrize("answer", [
    {}, {"header": None}, {"header": {}}, {"header": {"revision": "0"}}, {"header": {"revision": "-1"}},
    {"header": {"revision": "1e3"}}, {"header": {"revision": True}}, {"header": {"revision": 1.5}},
    {"header": {"revision": "9" * 19}}, {"header": {"revision": "9" * 9000}}, {"header": {"revision": "٩"}},
    range_answer(more=True), range_answer(kvs=None), range_answer(kvs={}), range_answer(kvs=[None]),
    range_answer(entry(key="Z29tcS9sZWFkZXI")), range_answer(entry(key="Z29t!cS9sZWFkZXI=")),
    range_answer(entry(key=KEY[:4])), range_answer(entry(key=None)), range_answer(entry(key=7)),
    range_answer(entry(value=["eA=="])), range_answer(entry(value="é")), range_answer(entry(value="eA==\n")),
    range_answer(entry(create_revision="0")), range_answer(entry(create_revision="6")),
    range_answer(entry(mod_revision="10")), range_answer(entry(lease="x")), range_answer(entry(lease={})),
])
def test_malformed_view_is_refused(answer):
    with pytest.raises(AnswerError):
        messages.view_of(answer, PREFIX)


@pytest.mark.parametrize("changes", [
    {"succeeded": "true"}, {"succeeded": None}, {"succeeded": 1}, {"header": {}}, {"responses": []},
    {"responses": None}, {"responses": [None]}, {"responses": [{}]},
    {"responses": [{"response_put": {"header": {"revision": "9"}}}]},
    {"responses": [{"response_range": {"kvs": [entry(mod_revision="99")]}}]},
])
def test_malformed_outcome_is_refused(changes):
    with pytest.raises(AnswerError):
        messages.outcome_of(transaction_answer(**changes), PREFIX)


@pytest.mark.parametrize("octets", [
    b"", b"{", b"[]", b"null", b"7", b'"a"', b"{'a': 1}", b"\xff\xfe", b'{"a": ' + b"9" * 5000 + b"}",
    b"[" * 100_000, b'{"a":' * 100_000, b"{} {}", b"<html>bad gateway</html>",
])
def test_answer_that_is_no_json_object_is_refused(octets):
    with pytest.raises(AnswerError):
        messages.parse(octets)


def test_lease_is_kept_alive_while_the_answer_has_its_time():
    assert messages.is_kept_alive({"result": {"header": HEADER, "ID": "12", "TTL": "5"}}, 12)
    assert not messages.is_kept_alive({"result": {"header": HEADER, "ID": "12"}}, 12)
    assert not messages.is_kept_alive({"result": {"header": HEADER, "ID": "12", "TTL": "0"}}, 12)


@pytest.mark.parametrize("answer", [
    {}, {"result": None}, {"result": []}, {"result": {}}, {"result": {"ID": "13", "TTL": "5"}},
    {"result": {"ID": "12", "TTL": "-1"}}, {"result": {"ID": "12", "TTL": "5 s"}},
])
def test_malformed_answer_to_a_keepalive_is_neither_yes_nor_no(answer):
    with pytest.raises(AnswerError):
        messages.is_kept_alive(answer, 12)


@pytest.mark.parametrize("answer", [{}, {"ID": "0", "TTL": "5"}, {"ID": "7"}, {"ID": "7", "TTL": "0"}])
def test_answer_without_a_lease_is_refused(answer):
    with pytest.raises(AnswerError):
        messages.lease_of(answer)


@pytest.mark.parametrize("token", [None, "", 7, "a b", "a\r\nx-evil: 1", "é", "a" * 8193])
def test_token_that_is_no_header_is_refused_and_not_shown(token):
    with pytest.raises(AnswerError) as caught:
        messages.token_of({"header": HEADER, "token": token})

    assert not token or str(token) not in str(caught.value)


@pytest.mark.parametrize("answer, code, text", [
    ({"error": "lease not found", "message": "lease not found", "code": 5}, 5, "lease not found"),  # 3.4
    ({"code": 5, "message": "lease not found", "details": []}, 5, "lease not found"),  # 3.6
    ({"error": {"grpc_code": 14, "http_code": 503, "message": "no leader"}}, 14, "no leader"),  # a stream's
    ({"error": {"code": 14, "message": "no leader", "details": []}}, 14, "no leader"),
])
def test_error_is_read_in_the_forms_of_all_gateways(answer, code, text):
    refused = messages.refused_by(answer)

    assert (refused.code, refused.text) == (code, text)


@pytest.mark.parametrize("answer", [
    {}, {"error": None}, {"error": "x"}, {"error": {}}, {"code": "5", "message": "x"},
    {"code": 5, "message": None}, {"error": {"code": 5}},
])
def test_error_of_another_form_is_no_refusal(answer):
    with pytest.raises(AnswerError):
        messages.refused_by(answer)


@pytest.mark.parametrize("code, text, is_certain", [
    (3, "etcdserver: duplicate key given in txn request", True),
    (5, "etcdserver: requested lease not found", True),
    (7, "etcdserver: permission denied", True),
    (16, "etcdserver: invalid auth token", True),
    # carried out, if it was the one that took the last room
    (8, "etcdserver: mvcc: database space exceeded", False),
    (14, "etcdserver: request timed out", False),
    (14, "etcdserver: request timed out, possibly due to previous leader failure", False),
    (14, "etcdserver: leader changed", False),
    (14, "etcdserver: no leader", False),
    (2, "context canceled", False),
    (4, "context deadline exceeded", False),
    (13, "transport is closing", False),
])
def test_only_what_etcd_refuses_before_its_work_is_certain(code, text, is_certain):
    refused = Refused(code, text)

    assert refused.is_certain == is_certain
    assert refused.lacks_leader == (text == "etcdserver: no leader")


def test_watch_is_ended_by_a_cancel_alone():
    created = {"result": {"header": HEADER, "created": True}}
    event = {"result": {"header": HEADER, "events": [{"kv": entry()}]}}

    assert messages.cancel_reason(created) is None
    assert messages.cancel_reason(event) is None
    assert messages.cancel_reason({"result": {"header": HEADER}}) is None
    assert messages.cancel_reason({"result": {"canceled": True}}) == "no reason given"
    assert messages.cancel_reason({"result": {"canceled": True, "cancel_reason": "why"}}) == "why"
    with pytest.raises(Refused):
        messages.cancel_reason({"error": {"grpc_code": 14, "http_code": 503, "message": "no leader"}})


@pytest.mark.parametrize("seed", range(20))
def test_answer_changed_anywhere_is_read_or_refused(seed):
    """2000 answers with parts replaced at random, and cut or changed octets: no other error."""
    draw = random.Random(seed)
    samples = [range_answer(entry(), entry(key=NODE)), transaction_answer(),
               {"result": {"ID": "12", "TTL": "5"}}, {"error": {"code": 14, "message": "x"}}]
    readers = [
        lambda answer: messages.view_of(answer, PREFIX), lambda answer: messages.outcome_of(answer, PREFIX),
        lambda answer: messages.is_kept_alive(answer, 12), messages.lease_of, messages.refused_by,
        messages.cancel_reason, messages.token_of, messages.check_header,
    ]
    for _ in range(100):
        octets = bytearray(json.dumps(replaced(draw, draw.choice(samples))).encode())
        if draw.random() < 0.5:
            octets[draw.randrange(len(octets))] = draw.randrange(256)
        for read in readers:
            try:
                read(messages.parse(bytes(octets)))
            except (AnswerError, Refused) as error:
                assert len(str(error)) < 500


def replaced(draw, value):
    """The same with some part replaced."""
    if draw.random() < 0.1:
        return draw.choice(
            [None, True, 0, -1, 1 << 70, 1.5, "", "x", "9" * 30, [], [[]], {}, {"a": 1}, "eA=="])
    if isinstance(value, dict):
        return {key: replaced(draw, item) for key, item in value.items() if draw.random() > 0.02}
    if isinstance(value, list):
        return [replaced(draw, item) for item in value]
    return value
