"""Connection: protocol header, start, login, tune and open,
and what a broker does with those that go wrong.
"""
import re

import pytest

from tests.support.cases import cases
from tests.support.wire_encoding import (
    BODY, HEARTBEAT, HEARTBEAT_FRAME, METHOD, PROTOCOL_HEADER, decode_method, field_value, frame, method,
    method_frame, table)
from tests.support.wire_script import CAPABILITIES

LOGIN_REFUSED = (
    "ACCESS_REFUSED - Login was refused using authentication mechanism {}. "
    "For details see the broker logfile."
)


def start_ok(mechanism="PLAIN", response=b"\x00guest\x00guest", capabilities=None, **client_properties):
    """A start-ok method frame."""
    client_properties["capabilities"] = CAPABILITIES if capabilities is None else capabilities
    return method_frame(
        0, "connection.start-ok", client_properties=client_properties, mechanism=mechanism, response=response,
        locale="en_US",
    )


def tune_ok(channel_max=2047, frame_max=131072, heartbeat=0):
    """A tune-ok method frame."""
    return method_frame(
        0, "connection.tune-ok", channel_max=channel_max, frame_max=frame_max, heartbeat=heartbeat
    )


def amqplain(**entries):
    """An AMQPLAIN response: a field table without its length."""
    return table(entries)[4:]


OPEN = method_frame(0, "connection.open", virtual_host="/")


def started(wire):
    """The wire past connection.start."""
    wire.send(PROTOCOL_HEADER)
    wire.expect(0, "connection.start")
    return wire


def expect_refusal(wire, code):
    """The broker must close the socket, at most after saying why with this code.

    RabbitMQ hangs up in silence, three seconds later.
    """
    octets = wire.expect_end()
    if octets:
        close = decode_method(octets[7:-1])
        assert (close.name, close.reply_code) == ("connection.close", code)


@pytest.mark.deviates("RabbitMQ 4.3 speaks AMQP 1.0, too, and answers most of them with its header", of="4.3")
@cases("header", {
    "http": b"HTTP/1.1", "amqp-1.0": b"AMQP\x00\x01\x00\x00", "sasl": b"AMQP\x03\x01\x00\x00",
    "tls": b"AMQP\x02\x01\x00\x00", "0-10": b"AMQP\x01\x01\x00\x0a", "0-9-2": b"AMQP\x00\x00\x09\x02",
    "lower-case": b"amqp\x00\x00\x09\x01", "zeros": b"\x00" * 8,
})
def test_another_protocol_header_is_answered_with_ours_and_a_close(bare_wire, header):
    wire = bare_wire()

    wire.send(header)

    assert wire.expect_end() == b"AMQP\x00\x00\x09\x01"


@pytest.mark.deviates("RabbitMQ still speaks AMQP 0-8")
@cases("header", {"0-8": b"AMQP\x01\x01\x08\x00", "0-8-of-the-specification": b"AMQP\x01\x01\x09\x01"})
def test_amqp_0_8_is_not_spoken(bare_wire, header):
    wire = bare_wire()

    wire.send(header)

    assert wire.expect_end() == b"AMQP\x00\x00\x09\x01"


def test_protocol_header_may_come_octet_by_octet(bare_wire):
    wire = bare_wire()

    wire.send_pieces(PROTOCOL_HEADER)

    wire.expect(0, "connection.start", version_major=0, version_minor=9)


def test_nothing_is_said_before_the_protocol_header_is_complete(bare_wire, open_wire):
    wire = bare_wire()
    wire.send(PROTOCOL_HEADER[:7])

    open_wire()  # a whole handshake of somebody else, in which the first seven octets were surely read
    wire.socket.settimeout(0.05)
    with pytest.raises(TimeoutError):
        wire.socket.recv(1)

    wire.send(PROTOCOL_HEADER[7:])
    wire.expect(0, "connection.start")


def test_start_names_product_capabilities_and_mechanisms(bare_wire):
    wire = bare_wire()

    wire.send(PROTOCOL_HEADER)
    start = wire.expect(0, "connection.start", locales=b"en_US")

    assert set(start.mechanisms.split()) >= {b"PLAIN", b"AMQPLAIN"}
    assert {
        "product", "version", "platform", "copyright", "information", "cluster_name", "capabilities"
    } <= set(start.server_properties)
    assert start.server_properties["capabilities"] == dict.fromkeys(
        (
            "publisher_confirms", "exchange_exchange_bindings", "basic.nack", "consumer_cancel_notify",
            "connection.blocked", "consumer_priorities", "authentication_failure_close", "per_consumer_qos",
            "direct_reply_to"),
        True,
    )


def test_tune_offers_rabbitmqs_limits(bare_wire):
    wire = started(bare_wire())

    wire.send(start_ok())

    wire.expect(0, "connection.tune", channel_max=2047, frame_max=131072, heartbeat=60)


def test_handshake_written_in_one_piece_is_answered_in_order(bare_wire):
    """Nothing in the protocol forbids a client to write ahead, and some do."""
    wire = bare_wire()

    wire.send(PROTOCOL_HEADER + start_ok() + tune_ok() + OPEN + method_frame(1, "channel.open"))

    for channel, name in (
        (0, "connection.start"), (0, "connection.tune"), (0, "connection.open-ok"), (1, "channel.open-ok")
    ):
        wire.expect(channel, name)


def test_handshake_written_octet_by_octet_is_understood(bare_wire):
    wire = bare_wire()

    wire.send_pieces(PROTOCOL_HEADER + start_ok() + tune_ok() + OPEN)

    for name in ("connection.start", "connection.tune", "connection.open-ok"):
        wire.expect(0, name)


def test_handshake_as_literal_octets(bare_wire):
    """The octets of AMQP 0-9-1 §4.2 written out, so that not even the test's own encoder is trusted."""
    wire = started(bare_wire())

    wire.send(bytes.fromhex(
        "01 0000 00000024 000a000b 00000000 05 504c41494e 0000000c 00 6775657374 00 "
        "6775657374 05 656e5f5553 ce"
    ))
    wire.expect(0, "connection.tune")
    wire.send(bytes.fromhex("01 0000 0000000c 000a001f 07ff 00002000 0000 ce"))
    wire.send(bytes.fromhex("01 0000 00000008 000a0028 01 2f 00 00 ce"))

    assert wire.next_frame() == (METHOD, 0, bytes.fromhex("000a0029 00"))


@cases("mechanism, response", {
    "plain": ("PLAIN", b"\x00guest\x00guest"),
    "amqplain": ("AMQPLAIN", amqplain(LOGIN="guest", PASSWORD="guest")),
    "amqplain-any-order": ("AMQPLAIN", amqplain(PASSWORD="guest", EXTRA=1, LOGIN="guest")),
})
def test_login_succeeds(bare_wire, mechanism, response):
    wire = started(bare_wire())

    wire.send(start_ok(mechanism, response))

    wire.expect(0, "connection.tune")


@cases("mechanism, response", {
    "password": ("PLAIN", b"\x00guest\x00wrong"),
    "user": ("PLAIN", b"\x00nobody\x00guest"),
    "user-case": ("PLAIN", b"\x00Guest\x00guest"),
    "empty-password": ("PLAIN", b"\x00guest\x00"),
    "both-empty": ("PLAIN", b"\x00\x00"),
    "amqplain-password": ("AMQPLAIN", amqplain(LOGIN="guest", PASSWORD="wrong")),
    "amqplain-user": ("AMQPLAIN", amqplain(LOGIN="nobody", PASSWORD="guest")),
    "amqplain-password-is-a-number": ("AMQPLAIN", amqplain(LOGIN="guest", PASSWORD=5)),
})
def test_wrong_credentials_are_refused_with_403_to_clients_that_understand(bare_wire, mechanism, response):
    wire = started(bare_wire())

    wire.send(start_ok(mechanism, response))

    wire.expect_connection_close(403, LOGIN_REFUSED.format(mechanism))


@pytest.mark.parametrize(
    "capabilities", [{}, {"authentication_failure_close": False}], ids=["absent", "false"]
)
def test_wrong_credentials_hang_up_on_clients_without_authentication_failure_close(bare_wire, capabilities):
    wire = started(bare_wire())

    wire.send(start_ok(response=b"\x00guest\x00wrong", capabilities=capabilities))

    assert wire.expect_end() == b""


@cases("mechanism, response", {
    "unknown": ("WIBBLE", b"\x00guest\x00guest"),
    "none": ("", b"\x00guest\x00guest"),
    "lower-case": ("plain", b"\x00guest\x00guest"),
    "plain-empty": ("PLAIN", b""),
    "plain-no-nul": ("PLAIN", b"guest"),
    "plain-one-nul": ("PLAIN", b"guest\x00guest"),
    "plain-three-parts": ("PLAIN", b"\x00guest\x00guest\x00more"),
    "amqplain-no-password": ("AMQPLAIN", amqplain(LOGIN="guest")),
    "amqplain-no-login": ("AMQPLAIN", amqplain(PASSWORD="guest")),
    "amqplain-rubbish": ("AMQPLAIN", b"\xff\xffxx"),
    "amqplain-empty": ("AMQPLAIN", b""),
    "amqplain-types": ("AMQPLAIN", amqplain(LOGIN=5, PASSWORD=b"V")),
    "amqplain-cut": ("AMQPLAIN", amqplain(LOGIN="guest", PASSWORD="guest")[:-2]),
})
def test_mechanism_or_response_that_cannot_be_understood_is_refused(bare_wire, mechanism, response):
    wire = started(bare_wire())

    wire.send(start_ok(mechanism, response))

    expect_refusal(wire, 403)


@cases("channel_max, frame_max, text", {
    "frame-4095": (2047, 4095, "frame_max = 4095 is lower than the minimum allowed value (4096)"),
    "frame-1": (2047, 1, "frame_max = 1 is lower than the minimum allowed value (4096)"),
    "frame-131073": (2047, 131073, "frame_max = 131073 is higher than the maximum allowed value (131072)"),
    "frame-0": (2047, 0, "frame_max = 0 is higher than the maximum allowed value (131072)"),
    "channel-2048": (2048, 131072, "channel_max = 2048 is higher than the maximum allowed value (2047)"),
    "channel-0": (0, 131072, "channel_max = 0 is higher than the maximum allowed value (2047)"),
})
def test_tune_ok_outside_the_offer_is_refused(bare_wire, channel_max, frame_max, text):
    """RabbitMQ logs the reason and hangs up; saying it with 530 is more helpful and as final.

    Zero means "no limit", which was not offered.
    """
    wire = started(bare_wire())

    wire.send(start_ok() + tune_ok(channel_max, frame_max) + OPEN)
    wire.expect(0, "connection.tune")

    octets = wire.expect_end()
    if octets:
        close = decode_method(octets[7:-1])
        assert close.reply_code == 530
        assert (
            close.reply_text == f"NOT_ALLOWED - failed to negotiate connection parameters: negotiated {text}"
        )


@pytest.mark.deviates("RabbitMQ 4.3 takes no frame_max below 8192", of="4.3", cases=("least",))
@cases("channel_max, frame_max, heartbeat", {
    "least": (1, 4096, 0), "offered": (2047, 131072, 60), "rare-heartbeats": (2047, 131072, 65535),
})
def test_tune_ok_within_the_offer_is_taken(bare_wire, channel_max, frame_max, heartbeat):
    wire = started(bare_wire())

    wire.send(start_ok() + tune_ok(channel_max, frame_max, heartbeat) + OPEN)

    wire.expect(0, "connection.tune")
    wire.expect(0, "connection.open-ok")


def test_open_of_an_unknown_vhost_is_refused_with_530(bare_wire):
    wire = bare_wire()
    wire.login()

    wire.send_method(0, "connection.open", virtual_host="no-such-vhost")

    wire.expect_connection_close(
        530, re.compile("^NOT_ALLOWED - vhost no-such-vhost not found$"), "connection.open"
    )


def test_start_ok_may_fill_4096_octets(bare_wire):
    """The least frame_max of the protocol; tokens and long client properties need it."""
    wire = started(bare_wire())
    room = 4096 - len(start_ok(filling=""))

    wire.send(start_ok(filling="x" * room))

    wire.expect(0, "connection.tune")


@pytest.mark.parametrize("size", [4096, 16384, 200000])
def test_oversized_start_ok_is_refused_before_it_is_read(bare_wire, size):
    """Memory must not be had without a login: the frame's announced length is enough to refuse it."""
    wire = started(bare_wire())

    wire.send(start_ok(filling="x" * size)[:4000])

    expect_refusal(wire, 501)


@cases("octets", {
    "tune-ok": tune_ok(),
    "open": OPEN,
    "channel.open": method_frame(1, "channel.open"),
    "close": method_frame(0, "connection.close", reply_code=200),
    "body": frame(BODY, 1, b"x"),
    "zeros": b"\x00" * 64,
    "frame-end": start_ok()[:-1] + b"\x00",
    "channel-1": start_ok()[:1] + b"\x00\x01" + start_ok()[3:],
    "unknown-method": frame(METHOD, 0, b"\x00\x0a\x00\x63"),
    "empty": frame(METHOD, 0, b""),
    "cut": frame(METHOD, 0, start_ok()[7:-4]),
    "trailing": frame(METHOD, 0, start_ok()[7:-1] + b"x"),
    "bad-table": frame(
        METHOD, 0, method("connection.start-ok", client_properties=b"\x00\x00\x00\x04\x01aZ\x00")
    ),
    "start-ok-twice": start_ok() + start_ok(),
    "open-before-tune-ok": start_ok() + OPEN,
    "channel-before-tune-ok": start_ok() + method_frame(1, "channel.open"),
})
def test_what_is_out_of_place_before_tune_ok_ends_the_connection(bare_wire, octets):
    wire = started(bare_wire())

    wire.send(octets)

    assert b"\x00\x0a\x00\x29" not in wire.expect_end(), "it was let in"


@cases("octets, code, failing", {
    "tune-ok": (tune_ok(), 504, "connection.tune-ok"),
    "start-ok": (method_frame(0, "connection.start-ok", mechanism="PLAIN"), 504, "connection.start-ok"),
    "channel.open-on-0": (method_frame(0, "channel.open"), 504, "channel.open"),
    "channel.open": (method_frame(1, "channel.open"), 505, ""),
    "body": (frame(BODY, 1, b"x"), 505, ""),
})
def test_what_is_out_of_place_before_open_closes_the_connection(bare_wire, octets, code, failing):
    wire = bare_wire()
    wire.login()

    wire.send(octets)

    wire.expect_connection_close(code, re.compile("^(CHANNEL_ERROR|UNEXPECTED_FRAME) - "), failing)


@cases("octets, code, text, failing", {
    "method": (
        method_frame(1, "channel.open"), 505, "UNEXPECTED_FRAME - type 1, all octets = <<0,20,0,10,0>>", ""
    ),
    "heartbeat": (frame(HEARTBEAT, 1, b""), 505, "UNEXPECTED_FRAME - type 8, all octets = <<>>", ""),
    "body": (frame(BODY, 0, b"x"), 505, 'UNEXPECTED_FRAME - type 3, all octets = <<"x">>', ""),
    "heartbeat-with-payload": (
        frame(HEARTBEAT, 0, b"x"), 501, 'FRAME_ERROR - type 8, all octets = <<"x">>: unknown_frame', ""
    ),
    "empty-method": (
        frame(METHOD, 0, b""), 501, "FRAME_ERROR - type 1, all octets = <<>>: unknown_frame", ""
    ),
    "name": (
        method_frame(0, "connection.open", virtual_host=b"\xff"), 501,
        "FRAME_ERROR - Malformed UTF-8 in shortstr", "connection.open",
    ),
})
def test_what_is_wrong_before_open_is_told(bare_wire, octets, code, text, failing):
    wire = bare_wire()
    wire.login()

    wire.send(octets)

    wire.expect_connection_close(code, text, failing)


@pytest.mark.deviates("RabbitMQ hangs up before tune-ok, and answers 504 before open")
@cases("octets", {"start-ok": b"", "tune-ok": start_ok(), "open": start_ok() + tune_ok()})
def test_client_may_take_leave_before_it_is_in(bare_wire, octets):
    wire = started(bare_wire())

    wire.send(octets + method_frame(0, "connection.close", reply_code=200))

    assert wire.expect_end().endswith(method_frame(0, "connection.close-ok"))


def test_heartbeats_may_come_at_any_time_of_the_handshake(bare_wire):
    wire = started(bare_wire())

    wire.send(HEARTBEAT_FRAME + start_ok() + HEARTBEAT_FRAME + tune_ok() + HEARTBEAT_FRAME + OPEN)

    wire.expect(0, "connection.tune")
    wire.expect(0, "connection.open-ok")


def test_client_properties_of_every_type_are_taken(bare_wire):
    wire = started(bare_wire())
    every = {"t": True, "I": -1, "l": 2 ** 40, "d": 1.5, "S": "é", "x": b"\xff", "T": 1, "V": None}
    values = {tag: field_value(tag, value) for tag, value in every.items()}

    wire.send(start_ok(connection_name="a name", nested={"array": [1, {"deep": [True]}], **values}))

    wire.expect(0, "connection.tune")


def test_connections_that_say_nothing_delay_nobody(bare_wire, open_wire):
    for _ in range(20):
        bare_wire().send(PROTOCOL_HEADER[:4])

    assert open_wire().channel().declare()
