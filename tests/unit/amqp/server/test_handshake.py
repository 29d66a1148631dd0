"""The handshake's state table, without a socket."""
import pytest

from gomq_py.amqp.server.handshake import (
    Closed, Handshake, HandshakeError, Limits, Login, Open, Send, client_properties_of, start_frame,
)
from gomq_py.amqp.wire.frames import HEARTBEAT_FRAME, PROTOCOL_HEADER, frame, method_frame
from gomq_py.amqp.wire.methods import (
    ChannelOpen, ConnectionClose, ConnectionCloseOk, ConnectionOpen, ConnectionStart, ConnectionStartOk,
    ConnectionTune, ConnectionTuneOk, decode_method,
)
from gomq_py.content.fields import encode_table

OFFERED = Limits(channel_max=2047, frame_max=131072, heartbeat_s=60)
NOTHING = None


def handshake_in(state):
    """A handshake that has come as far as ``state``."""
    handshake = Handshake(OFFERED, start_frame({"product": "test"}, False))
    steps = [
        ("starting", lambda: feed(handshake, PROTOCOL_HEADER)),
        ("tuning", lambda: (feed(handshake, start_ok()), handshake.logged_in())),
        ("opening", lambda: feed(handshake, tune_ok())),
    ]
    for name, advance in steps:
        if handshake.state == state:
            break
        advance()
        assert handshake.state == name
    assert handshake.state == state
    return handshake


def feed(handshake, octets):
    handshake.feed(octets)
    return handshake.next_step()


def start_ok(mechanism="PLAIN", response=b"\0guest\0secret", capabilities=None):
    properties = {} if capabilities is None else {"capabilities": capabilities}
    return method_frame(
        0,
        ConnectionStartOk(
            client_properties=properties, mechanism=mechanism, response=response, locale="en_US"
        ),
    )


def tune_ok(channel_max=2047, frame_max=131072, heartbeat=60):
    return method_frame(
        0, ConnectionTuneOk(channel_max=channel_max, frame_max=frame_max, heartbeat=heartbeat)
    )


def sent(octets):
    """The method in the one frame of ``octets``."""
    assert octets[-1] == 0xCE
    return decode_method(octets[7:-1])


def refusal(handshake, octets):
    """What the peer is told when it sends ``octets``: the method, or None for nothing."""
    with pytest.raises(HandshakeError) as caught:
        feed(handshake, octets)
    return sent(caught.value.reply) if caught.value.reply else NOTHING


# the protocol header

@pytest.mark.parametrize("header", [PROTOCOL_HEADER, b"AMQP\x01\x01\x00\x09"])
def test_protocol_header_is_answered_with_start(header):
    start = sent(feed(Handshake(OFFERED, start_frame({"product": "test"}, False)), header).octets)

    assert isinstance(start, ConnectionStart)
    assert (start.version_major, start.version_minor) == (0, 9)
    assert (start.mechanisms, start.locales) == (b"AMQPLAIN PLAIN", b"en_US")
    assert start.server_properties == {"product": "test"}


@pytest.mark.parametrize("header", [
    b"AMQP\x00\x00\x09\x02", b"AMQP\x00\x01\x00\x00", b"AMQP\x01\x01\x08\x00", b"GET / HT",
    b"\x16\x03\x01\x02\x00\x01\x00\x01",
])
def test_other_protocols_are_told_the_version_spoken_here(header):
    handshake = Handshake(OFFERED, start_frame({}, False))

    with pytest.raises(HandshakeError) as caught:
        feed(handshake, header)

    assert caught.value.reply == PROTOCOL_HEADER


def test_other_protocols_need_not_send_eight_octets_to_be_refused():
    with pytest.raises(HandshakeError):
        feed(Handshake(OFFERED, start_frame({}, False)), b"GET")


def test_handshake_byte_by_byte_gives_the_same_steps():
    handshake = Handshake(OFFERED, start_frame({}, False))
    stream = PROTOCOL_HEADER + start_ok() + tune_ok() + method_frame(0, ConnectionOpen(virtual_host="v"))
    steps = []

    for at in range(len(stream)):
        step = feed(handshake, stream[at:at + 1])
        if isinstance(step, Login):
            handshake.logged_in()
        if step is not None:
            steps.append(type(step))

    assert steps == [Send, Login, Open]


# mechanisms

def test_plain_response_gives_name_and_password():
    step = feed(handshake_in("starting"), start_ok(response=b"\0b\xc3\xb6b\0pass word"))

    assert step == Login("PLAIN", "b\u00f6b", b"pass word")


def test_plain_password_may_be_empty():
    assert feed(handshake_in("starting"), start_ok(response=b"\0bob\0")) == Login("PLAIN", "bob", b"")


@pytest.mark.parametrize("response", [
    b"", b"garbage", b"\0guest", b"authz\0guest\0guest", b"\0gu\0est\0guest"
])
def test_malformed_plain_response_ends_the_handshake_without_a_word(response):
    assert refusal(handshake_in("starting"), start_ok(response=response)) is NOTHING


def test_amqplain_response_gives_name_and_password():
    response = encode_table({"LOGIN": "bob", "PASSWORD": "secret"})[4:]

    assert feed(handshake_in("starting"), start_ok("AMQPLAIN", response)) == Login(
        "AMQPLAIN", "bob", b"secret"
    )


@pytest.mark.parametrize("response", [
    b"", b"\xff\xff", encode_table({"LOGIN": "bob"})[4:], encode_table({"LOGIN": 1, "PASSWORD": "x"})[4:]
])
def test_malformed_amqplain_response_ends_the_handshake_without_a_word(response):
    assert refusal(handshake_in("starting"), start_ok("AMQPLAIN", response)) is NOTHING


def test_unknown_mechanism_ends_the_handshake_without_a_word():
    assert refusal(handshake_in("starting"), start_ok("KERBEROS_V4")) is NOTHING


def test_refused_login_is_explained_to_clients_that_understand_it():
    handshake = handshake_in("starting")
    feed(handshake, start_ok(capabilities={"authentication_failure_close": True}))

    close = sent(handshake.refused())

    assert (close.reply_code, close.class_id, close.method_id) == (403, 0, 0)
    assert close.reply_text == (
        "ACCESS_REFUSED - Login was refused using authentication mechanism PLAIN. "
        "For details see the broker logfile."
    )


@pytest.mark.parametrize("capabilities", [None, {}, {"authentication_failure_close": False}, "nonsense"])
def test_refused_login_is_silent_for_other_clients(capabilities):
    handshake = handshake_in("starting")
    feed(handshake, start_ok(capabilities=capabilities))

    assert handshake.refused() == b""


# before the login

@pytest.mark.parametrize("octets", [
    method_frame(0, ConnectionOpen(virtual_host="/")), tune_ok(), method_frame(1, ChannelOpen()),
    frame(1, 0, b"\0\0\0\0"),
    frame(2, 0, bytes(14)), frame(3, 0, b"x"), frame(9, 0, b""), frame(1, 0, b"\0\x0a\0\x0b\0\0"),
    b"\x01\0\0\0\0\0\x04\0\x0a\0\x0b\x00",
])
def test_anything_but_start_ok_ends_the_handshake_without_a_word(octets):
    assert refusal(handshake_in("starting"), octets) is NOTHING


def test_frame_announced_larger_than_initial_frame_max_is_refused_before_it_is_sent():
    assert refusal(handshake_in("starting"), b"\x01\0\0" + (4097).to_bytes(4, "big")) is NOTHING


@pytest.mark.parametrize("octets", [4096, 8192])
def test_start_ok_of_initial_frame_max_octets_passes(octets):
    longest = octets - len(start_ok(response=b"\0u\0")) + 8
    handshake = Handshake(OFFERED, start_frame({"product": "test"}, False), frame_max_before=octets)
    feed(handshake, PROTOCOL_HEADER)

    step = feed(handshake, start_ok(response=b"\0u\0" + b"p" * longest))

    assert step == Login("PLAIN", "u", b"p" * longest)


@pytest.mark.parametrize("state", ["starting", "tuning", "opening"])
def test_heartbeats_are_passed_over_in_every_state(state):
    assert feed(handshake_in(state), HEARTBEAT_FRAME) is None


@pytest.mark.parametrize("state", ["starting", "tuning", "opening"])
def test_client_may_take_leave_in_every_state(state):
    handshake = handshake_in(state)

    step = feed(handshake, method_frame(0, ConnectionClose(reply_code=200)))

    assert isinstance(sent(step.octets), ConnectionCloseOk)
    assert isinstance(handshake.next_step(), Closed)


# tuning

def test_login_is_answered_with_the_limits():
    handshake = handshake_in("starting")
    feed(handshake, start_ok())

    tune = sent(handshake.logged_in())

    assert isinstance(tune, ConnectionTune)
    assert (tune.channel_max, tune.frame_max, tune.heartbeat) == (2047, 131072, 60)


@pytest.mark.parametrize("limits", [(2047, 131072, 60), (1, 4096, 0), (2047, 131072, 65535)])
def test_limits_within_the_offer_are_agreed(limits):
    handshake = handshake_in("tuning")

    feed(handshake, tune_ok(*limits))

    assert handshake.limits == Limits(*limits)


@pytest.mark.parametrize(("limits", "text"), [
    ((2047, 4095, 0), "negotiated frame_max = 4095 is lower than the minimum allowed value (4096)"),
    ((2047, 1, 0), "negotiated frame_max = 1 is lower than the minimum allowed value (4096)"),
    ((2047, 131073, 0), "negotiated frame_max = 131073 is higher than the maximum allowed value (131072)"),
    ((2047, 0, 0), "negotiated frame_max = 0 is higher than the maximum allowed value (131072)"),
    ((2048, 131072, 0), "negotiated channel_max = 2048 is higher than the maximum allowed value (2047)"),
    ((0, 131072, 0), "negotiated channel_max = 0 is higher than the maximum allowed value (2047)"),
])
def test_limits_outside_the_offer_are_refused(limits, text):
    close = refusal(handshake_in("tuning"), tune_ok(*limits))

    assert (close.reply_code, close.class_id, close.method_id) == (530, 10, 31)
    assert close.reply_text == f"NOT_ALLOWED - failed to negotiate connection parameters: {text}"


def test_server_without_limits_takes_a_client_without_limits():
    handshake = Handshake(Limits(0, 0, 0), start_frame({}, False))
    for octets in (PROTOCOL_HEADER, start_ok()):
        feed(handshake, octets)
    handshake.logged_in()

    feed(handshake, tune_ok(0, 0, 0))

    assert handshake.limits == Limits(0, 0, 0)


def test_open_before_tune_ok_is_out_of_order():
    close = refusal(handshake_in("tuning"), method_frame(0, ConnectionOpen(virtual_host="/")))

    assert (close.reply_code, close.reply_text) == (
        504, "CHANNEL_ERROR - unexpected method in connection state tuning"
    )


# opening

@pytest.mark.parametrize("name", ["/", "shop", ""])
def test_open_names_the_virtual_host(name):
    assert feed(handshake_in("opening"), method_frame(0, ConnectionOpen(virtual_host=name))) == Open(name)


def test_channel_open_before_open_is_unexpected():
    close = refusal(handshake_in("opening"), method_frame(1, ChannelOpen()))

    assert close.reply_code == 505


def test_octets_behind_open_are_handed_on():
    handshake = handshake_in("opening")
    behind = method_frame(1, ChannelOpen()) + b"\x01\0"
    feed(handshake, method_frame(0, ConnectionOpen(virtual_host="/")) + behind)
    handshake.opened()

    assert handshake.rest() == behind
    assert handshake.state == "open"


def test_clients_share_equal_properties_and_nothing_of_the_credentials_is_kept_with_them():
    client_properties_of.cache_clear()
    first, second, other = (Handshake(OFFERED, start_frame({}, False)) for _ in range(3))

    for handshake, name in ((first, "fleet"), (second, "fleet"), (other, "other")):
        feed(handshake, PROTOCOL_HEADER)
        feed(handshake, start_ok(capabilities={"of": name}))

    assert first.client_properties == {"capabilities": {"of": "fleet"}} != other.client_properties
    assert first.client_properties is second.client_properties
    assert client_properties_of.cache_info().currsize == 2


@pytest.mark.parametrize("size", [0, 3, 1 << 31])
def test_properties_whose_size_is_wrong_are_malformed(size):
    handshake = Handshake(OFFERED, start_frame({}, False))
    feed(handshake, PROTOCOL_HEADER)
    frame = bytearray(start_ok(capabilities={"a": True}))
    frame[11:15] = size.to_bytes(4, "big")

    with pytest.raises(HandshakeError, match="cannot decode connection.start-ok|PLAIN|mechanism"):
        feed(handshake, bytes(frame))
