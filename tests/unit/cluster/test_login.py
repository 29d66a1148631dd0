"""Tests of the login: both sides prove the secret, or nobody gets in; nothing a peer sends breaks a side."""
import hashlib
import hmac

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gomq_py.cluster.login import FollowerLogin, ForwarderLogin, LeaderLogin, LoginRefused
from gomq_py.cluster.wire.frames import (
    CHALLENGE, EVENTS, FORWARD, HELLO, KINDS, LOGIN_MAX_PAYLOAD, PROOF, REFUSED, WELCOME, Frame, FrameReader,
    encode,
)
from gomq_py.cluster.wire.messages import NO_ID, Challenge, Refused

SECRET = b"sixteen octets.."
CLUSTER, OTHER, RUN, NODE = b"c" * 16, b"o" * 16, b"r" * 16, b"n" * 16


def leader(secret=SECRET, can_resume=lambda run, position: True, epoch=5, cluster_id=CLUSTER, run=RUN):
    return LeaderLogin(secret, cluster_id, epoch, run, can_resume, lambda count: b"\f" * count)


def follower(secret=SECRET, cluster_id=CLUSTER, epoch=4, run=RUN, position=300):
    return FollowerLogin(
        secret, NODE, cluster_id, epoch, run, position, "node-b", lambda count: b"\r" * count)


def forwarder(secret=SECRET, cluster_id=CLUSTER, epoch=4):
    return ForwarderLogin(
        secret, NODE, cluster_id, epoch, "node-b", "amqps", b"header", lambda count: b"\r" * count)


def frame(octets):
    """The only frame in ``octets``, read as before a login."""
    reader = FrameReader(LOGIN_MAX_PAYLOAD)
    reader.feed(octets)
    only = reader.next()
    assert reader.next() is None
    return only


def log_in(one, other):
    """Let both speak until both are done. The refusal of one side is told to the other, then raised."""
    octets, sides = one.hello(), (other, one)
    while octets:
        try:
            octets = sides[0].feed(frame(octets))
        except LoginRefused as error:
            if error.answer:
                with pytest.raises(LoginRefused):
                    sides[1].feed(frame(error.answer))
            raise
        sides = sides[::-1]


def refusal(login, received):
    """The text with which a login refuses a frame; it accepts nothing afterwards."""
    with pytest.raises(LoginRefused) as raised:
        login.feed(received)
    assert not login.done
    for kind in (CHALLENGE, *KINDS):
        with pytest.raises(LoginRefused, match="is not expected here|the leader refuses"):
            login.feed(Frame(kind, 0, 0, b""))
    return raised.value.text


def welcome(one, flags):
    """WELCOME with these flags, of a leader that knows the secret."""
    return hmac.new(SECRET, b"leader" + one._signed + flags, hashlib.sha256).digest() + flags


def test_both_prove_the_secret_with_these_octets():
    one, other = follower(), leader()
    hello = bytes.fromhex(
        "6e" * 16 + "63" * 16 + "0000000000000004" + "72" * 16 + "000000000000012c" + "0d" * 32
    ) + b"node-b"
    challenge = bytes.fromhex("63" * 16 + "0000000000000005" + "72" * 16 + "0c" * 32)

    said = [frame(one.hello())]
    for side in (other, one, other):
        said.append(frame(side.feed(said[-1])))
    assert one.feed(said[-1]) == b""

    proof, last = (
        hmac.new(SECRET, signed, hashlib.sha256).digest()
        for signed in (b"follower" + hello + challenge, b"leader" + hello + challenge + b"\0")
    )
    assert said == [
        Frame(HELLO, 4, 0, hello), Frame(CHALLENGE, 5, 0, challenge), Frame(PROOF, 4, 0, proof),
        Frame(WELCOME, 5, 0, last + b"\0"),
    ]
    assert (one.done, one.cluster_id, one.epoch, one.run, one.is_sync) == (True, CLUSTER, 5, RUN, False)
    assert (other.done, other.hello.name, other.hello.node_id, other.is_sync) == (True, "node-b", NODE, False)


@pytest.mark.parametrize("cluster_id, run, can_resume, is_sync", [
    (CLUSTER, RUN, True, False), (CLUSTER, RUN, False, True), (CLUSTER, NO_ID, True, True),
    (NO_ID, RUN, True, True), (NO_ID, NO_ID, False, True),
])
def test_follower_syncs_unless_the_stream_has_what_it_lacks(cluster_id, run, can_resume, is_sync):
    asked = []
    one = follower(cluster_id=cluster_id, run=run)
    other = leader(can_resume=lambda *position: asked.append(position) or can_resume)

    log_in(one, other)

    assert one.is_sync == other.is_sync == is_sync
    assert asked == ([(RUN, 300)] if NO_ID not in (cluster_id, run) else [])


def test_nonces_differ():
    one, other = (FollowerLogin(SECRET, NODE, NO_ID, 0, NO_ID, 0, "x").hello() for _ in range(2))

    assert one != other


def test_follower_with_another_secret_is_refused_and_told():
    with pytest.raises(LoginRefused) as raised:
        log_in(follower(secret=b"another secret.."), leader())

    assert raised.value.text == "the follower has another secret"
    assert frame(raised.value.answer) == Frame(REFUSED, 5, 0, b"the follower has another secret")


def test_leader_is_not_asked_for_positions_before_the_proof():
    other = leader(can_resume=lambda run, position: pytest.fail("asked"))

    with pytest.raises(LoginRefused):
        log_in(follower(secret=b"another secret.."), other)


def test_leader_that_does_not_know_the_secret_is_left():
    one = follower()
    one.feed(frame(leader().feed(frame(one.hello()))))

    assert refusal(one, Frame(WELCOME, 5, 0, bytes(33))) == (
        "the leader has not proved that it knows the secret"
    )
    assert (one.cluster_id, one.epoch) == (CLUSTER, 4)


def test_proof_of_a_follower_is_none_of_a_leader():
    one = follower()
    proof = frame(one.feed(frame(leader().feed(frame(one.hello())))))

    assert "has not proved" in refusal(one, Frame(WELCOME, 5, 0, proof.payload + b"\0"))


def test_proof_counts_for_one_login_only():
    one, other = follower(), leader()
    proof = frame(one.feed(frame(other.feed(frame(one.hello())))))
    later = LeaderLogin(SECRET, CLUSTER, 5, RUN, lambda run, position: True)
    later.feed(frame(one.hello()))

    assert refusal(later, proof) == "the follower has another secret"


@pytest.mark.parametrize("changes, text", [
    ({"cluster_id": OTHER}, f"this folder belongs to cluster {OTHER.hex()}, the leader to {CLUSTER.hex()}"),
    ({"epoch": 6}, "the leader is in epoch 5, this folder has seen 6"),
])
def test_follower_leaves_the_leader_of_another_cluster_or_a_lower_epoch(changes, text):
    one = follower(**changes)
    challenge = frame(leader().feed(frame(one.hello())))

    assert refusal(one, challenge) == text


@pytest.mark.parametrize("changes, text", [
    (
        {"cluster_id": OTHER},
        f"the follower's folder belongs to cluster {OTHER.hex()}, not to {CLUSTER.hex()}",
    ),
    ({"epoch": 6}, "the follower has seen epoch 6, the leader is in 5: it must not lead"),
])
def test_leader_refuses_a_follower_of_another_cluster_or_a_higher_epoch(changes, text):
    """With a follower that does not look at the challenge itself."""
    one, other = follower(**changes), leader()
    challenge = frame(other.feed(frame(one.hello())))
    one.cluster_id, one.epoch = CLUSTER, 5

    assert refusal(other, frame(one.feed(challenge))) == text


@pytest.mark.parametrize("run", [NO_ID, b"x" * 16])
def test_leader_that_goes_on_where_the_follower_did_not_ask_is_left(run):
    """It has the secret, but skips the sync without which its events mean nothing here."""
    one, other = follower(run=run), leader()
    one.feed(frame(other.feed(frame(one.hello()))))

    text = refusal(one, Frame(WELCOME, 5, 0, welcome(one, b"\0")))

    assert "without a sync in another run" in text
    assert (one.epoch, one.run) == (4, run)


def test_follower_goes_on_at_a_leader_that_has_followed_the_same_run():
    one, other = follower(run=b"x" * 16), leader(can_resume=lambda run, position: run == b"x" * 16)

    log_in(one, other)

    assert (one.run, one.is_sync, one.is_successor) == (RUN, False, True)
    same = follower()
    log_in(same, leader())
    assert not same.is_successor


def test_welcome_whose_flags_were_changed_on_the_way_is_refused():
    """Without TLS: a follower that takes what it has received for safe would be trusted with promises."""
    one, other = follower(), leader()
    sent = frame(other.feed(frame(one.feed(frame(other.feed(frame(one.hello())))))))

    assert refusal(one, Frame(WELCOME, 5, 0, sent.payload[:-1] + b"\2")) == (
        "the leader has not proved that it knows the secret")


def test_epoch_that_no_cluster_reaches_is_refused():
    one = follower()
    challenge = frame(leader(epoch=(1 << 62) + 1).feed(frame(one.hello())))

    assert refusal(one, challenge) == (
        "the leader is in epoch 4611686018427387905, the highest is 4611686018427387904")
    log_in(follower(), leader(epoch=1 << 62))


@pytest.mark.parametrize("cluster_id, run", [(NO_ID, RUN), (CLUSTER, NO_ID)])
def test_leader_without_a_cluster_or_run_is_left(cluster_id, run):
    challenge = Challenge(cluster_id, 9, run, bytes(32)).encode()

    assert refusal(follower(cluster_id=NO_ID), Frame(CHALLENGE, 9, 0, challenge)) == (
        "the leader names no cluster or run"
    )


def test_follower_shows_the_text_of_a_refusal_quoted():
    assert refusal(follower(), Frame(REFUSED, 5, 0, Refused("no\n\x1b[31m").encode())) == (
        r"the leader refuses: 'no\n\x1b[31m'"
    )


@pytest.mark.parametrize("kind", KINDS)
def test_frames_out_of_turn_are_refused(kind):
    if kind not in (HELLO, FORWARD):
        assert refusal(leader(), Frame(kind, 0, 0, b"")) == f"{KINDS[kind]} is not expected here"
    if kind not in (CHALLENGE, REFUSED):
        assert refusal(follower(), Frame(kind, 0, 0, b"")) == f"{KINDS[kind]} is not expected here"


def test_malformed_message_is_refused():
    assert refusal(leader(), Frame(HELLO, 0, 0, bytes(96))) == "a HELLO has 96 bytes"
    assert refusal(follower(), Frame(CHALLENGE, 0, 0, b"")) == "a CHALLENGE has 0 bytes"


def test_nothing_is_accepted_behind_a_login():
    one, other = follower(), leader()
    log_in(one, other)

    for login in (one, other):
        with pytest.raises(LoginRefused, match="EVENTS is not expected here"):
            login.feed(Frame(EVENTS, 5, 0, b""))


def test_short_secret_is_none():
    for side in (leader, follower):
        with pytest.raises(ValueError, match="less than 16 bytes"):
            side(secret=b"fifteen octets.")


@settings(deadline=None)
@given(
    st.lists(st.tuples(st.sampled_from(sorted(KINDS)), st.binary(max_size=150)), max_size=4), st.booleans(),
)
def test_no_frames_break_a_leader_or_log_in(frames, says_hello):
    login = leader()
    if says_hello:
        login.feed(frame(follower().hello()))
    try:
        for kind, payload in frames:
            login.feed(frame(encode(kind, payload)))
    except LoginRefused as error:
        assert frame(error.answer).kind == REFUSED
    assert not login.done


@settings(deadline=None)
@given(
    st.lists(st.tuples(st.sampled_from(sorted(KINDS)), st.binary(max_size=100)), max_size=4),
    st.binary(min_size=72, max_size=72), st.booleans(),
)
def test_no_frames_break_a_follower_or_log_in(frames, challenge, is_challenged):
    login = follower(cluster_id=NO_ID, epoch=0)
    try:
        for kind, payload in [(CHALLENGE, challenge)] * is_challenged + frames:
            login.feed(frame(encode(kind, payload)))
    except LoginRefused as error:
        assert error.answer == b""
    assert not login.done and (login.cluster_id, login.epoch) == (NO_ID, 0)


@settings(deadline=None)
@given(st.integers(0, 3), st.integers(0, 999), st.integers(1, 255))
def test_login_with_a_changed_message_fails_on_a_side(at, octet, change):
    """A frame is changed on its way, its checksum is right. The octet for a sync is not signed."""
    one, other = follower(cluster_id=NO_ID, epoch=0), leader()
    sides, octets = (other, one), one.hello()
    with pytest.raises(LoginRefused):
        for step in range(4):
            kind, epoch, position, payload = frame(octets)
            if step == at:
                changed = bytearray(payload)
                changed[octet % min(len(changed), 32 if kind == WELCOME else 999)] ^= change
                payload = bytes(changed)
            octets = sides[0].feed(Frame(kind, epoch, position, payload))
            sides = sides[::-1]
    assert not one.done


def test_forwarder_proves_the_secret_in_a_role_of_its_own():
    one, other = forwarder(), leader()
    hello = frame(one.hello())
    challenge = frame(other.feed(hello))
    proof = frame(one.feed(challenge))

    assert hello.kind == FORWARD
    assert proof.payload == hmac.new(
        SECRET, b"forwarder" + hello.payload + challenge.payload, hashlib.sha256).digest()
    one.feed(frame(other.feed(proof)))
    assert one.done and other.done and not other.is_sync
    assert (other.hello.name, other.hello.listener, other.hello.proxy) == ("node-b", "amqps", b"header")


@pytest.mark.parametrize("one, text", [
    (forwarder(secret=b"another secret.."), "the follower has another secret"),
    (forwarder(cluster_id=OTHER), "this folder belongs to cluster"),
    (forwarder(epoch=6), "the leader is in epoch 5, this folder has seen 6"),
])
def test_forwarder_is_refused_as_a_follower_is(one, text):
    with pytest.raises(LoginRefused, match=text):
        log_in(one, leader())


def test_forwarder_leaves_a_leader_that_announces_a_sync():
    one, other = forwarder(), leader()
    one.feed(frame(other.feed(frame(one.hello()))))

    assert refusal(one, Frame(WELCOME, 5, 0, welcome(one, b"\1"))) == (
        "the leader takes this connection for a follower's")
