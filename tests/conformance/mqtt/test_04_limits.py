"""What a client of MQTT 5 may limit: packets, unacknowledged messages, topic aliases, problem information."""
import pytest

from tests.conformance.mqtt.statements import mqtt_5
from tests.support.mqtt_wire import connack_properties, publish_properties


@mqtt_5("3.3.4-9", "4.9.0-1", "4.9.0-2")
@pytest.mark.parametrize("qos", [
    1, pytest.param(2, marks=pytest.mark.mosquitto_differs("sends another one too early")),
])
def test_no_more_unacknowledged_messages_are_sent_than_the_receive_maximum(connect, qos):
    wire = connect(5, f"rm{qos}", properties="21 00 02")
    wire.ask(f"82 LL 00 01 00 00 04 'rm/{qos}' 02", "90 LL 00 01 00 02")
    sender = connect(5, f"rms{qos}")

    for number in range(1, 6):
        sender.send(f"3{2 * qos} LL 00 04 'rm/{qos}' 00 {number:02x} 00 '{number}'")
        if qos == 2:
            sender.send(f"62 02 00 {number:02x}")
    pattern = f"3{2 * qos} LL 00 04 'rm/{qos}' .. .. 00 "
    identifiers = [wire.expect(pattern + f"'{number}'") for number in (1, 2)]
    wire.expect_silence()

    for number in (3, 4, 5):
        identifier = identifiers.pop(0)
        if qos == 1:
            wire.send(b"\x40\x02" + identifier)
        else:
            wire.ask(b"\x50\x02" + identifier, f"62 02 {identifier.hex(' ')}")
            wire.fence()  # PUBREC does not make room
            wire.send(b"\x70\x02" + identifier)
        identifiers.append(wire.expect(pattern + f"'{number}'"))


@mqtt_5("4.9.0-2", "3.3.4-9")
def test_pubrec_with_an_error_makes_room(connect):
    wire = connect(5, "rme", properties="21 00 01")
    wire.ask("82 LL 00 01 00 00 04 'rm/e' 02", "90 LL 00 01 00 02")
    sender = connect(5, "rmes")
    for number in (1, 2):
        sender.send(f"34 LL 00 04 'rm/e' 00 0{number} 00 '{number}'", f"62 02 00 0{number}")
    identifier = wire.expect("34 LL 00 04 'rm/e' .. .. 00 '1'")

    wire.send(b"\x50\x03" + identifier + b"\x80")

    wire.expect("34 LL 00 04 'rm/e' .. .. 00 '2'")


@mqtt_5("3.3.4-10", "4.9.0-3")
def test_other_packets_and_qos_0_do_not_wait_for_the_receive_maximum(connect):
    wire = connect(5, "rmo", properties="21 00 01")
    wire.ask("82 LL 00 01 00 00 04 'rm/o' 01", "90 LL 00 01 00 01")
    wire.send("32 LL 00 04 'rm/o' 00 01 00 '1'", "32 LL 00 04 'rm/o' 00 02 00 '2'")
    wire.expect_all("32 LL 00 04 'rm/o' .. .. 00 '1'", "40 02 00 01", "40 02 00 02")

    wire.ask("c0 00", "d0 00")
    wire.ask("82 LL 00 02 00 00 04 'rm/p' 00", "90 LL 00 02 00 00")
    wire.send("30 LL 00 04 'rm/p' 00 '0'")
    wire.expect("30 LL 00 04 'rm/p' 00 '0'")
    wire.ask("a2 LL 00 03 00 00 04 'rm/x'", "b0 LL 00 03 00 11")
    wire.send("34 LL 00 04 'rm/q' 00 04 00 'x'")
    assert wire.packet()[0] == 0x50
    wire.ask("62 02 00 04", "70 02 00 04")


@mqtt_5("3.1.2-24", "3.1.2-25")
@pytest.mark.mosquitto_differs("sends an octet too many")
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_message_above_the_maximum_packet_size_is_dropped_as_if_it_were_delivered(connect, qos):
    wire = connect(5, f"mps{qos}", properties="27 00 00 00 28 21 00 01")
    wire.ask(f"82 LL 00 01 00 00 04 'mp/{qos}' 02", "90 LL 00 01 00 02")
    sender = connect(5, f"mpss{qos}")
    # 2 + 6 + 2 + 1 octets around the payload, or 2 less without a packet identifier
    fits = 40 - 11 + (0 if qos else 2)

    for number, size in enumerate((fits, fits + 1, 2000, fits), 1):
        identifier = f"00 {number:02x}" if qos else ""
        sender.send(f"3{2 * qos} LL 00 04 'mp/{qos}' {identifier} 00 '{number}'*{size}")
        if qos == 2:
            sender.send(f"62 02 00 {number:02x}")

    for number in (1, 4):
        packet = wire.packet()
        assert len(packet) == 40 and packet[-1:] == str(number).encode()
        if qos == 1:
            wire.send(b"\x40\x02" + packet[8:10])
        elif qos == 2:
            wire.ask(b"\x50\x02" + packet[8:10], f"62 02 {packet[8:10].hex(' ')}")
            wire.send(b"\x70\x02" + packet[8:10])
    wire.expect_silence()


@mqtt_5(
    "3.1.2-24", "3.2.2-19", "3.2.2-20", "3.4.2-2", "3.4.2-3", "3.5.2-2", "3.5.2-3", "3.6.2-2", "3.6.2-3",
    "3.7.2-2", "3.7.2-3", "3.9.2-1", "3.9.2-2", "3.11.2-1", "3.11.2-2", "3.14.2-3", "3.14.2-4",
)
def test_no_answer_is_longer_than_the_maximum_packet_size(connect):
    """Forty octets are room for every answer without a reason string or user properties."""
    wire = connect(5, "small", properties="27 00 00 00 28")
    assert len(wire.connected) <= 40

    wire.send(
        "32 LL 00 05 'small' 00 01 00 'x'", "34 LL 00 05 'small' 00 02 00 'x'", "62 02 00 63", "50 02 00 63",
        "82 LL 00 03 00 00 02 'a#' 00", "a2 LL 00 04 00 00 01 'b'", "36 LL 00 01 'a' 00 05 00 'x'",
    )

    while (packet := wire.packet()) is not None:
        assert len(packet) <= 40, packet.hex(" ")


@mqtt_5("3.1.2-24", "3.2.0-1")
@pytest.mark.parametrize("most", [1, 2, 4])
@pytest.mark.parametrize("connect", [
    "02 00 3c 05 27 00 00 00 0{most} 00 02 'sm'",
    "c2 00 3c 05 27 00 00 00 0{most} 00 02 'sm' 00 05 'guest' 00 05 'wrong'",
    "02 00 3c 08 27 00 00 00 0{most} 15 00 00 00 02 'sm'",  # an authentication method
    "e6 00 3c 05 27 00 00 00 0{most} 00 02 'sm' 00 00 01 '#' 00 01 'x' 00 05 'guest' 00 05 'guest'",
])
def test_client_that_takes_no_connack_gets_none(open_socket, connect, most):
    wire = open_socket(5)

    wire.send("10 LL 00 04 'MQTT' 05 " + connect.replace("{most}", str(most)))

    wire.expect_end()


@mqtt_5("3.1.2-24")
@pytest.mark.mosquitto_differs("sends an answer that is too long")
@pytest.mark.parametrize("request_", [
    "82 LL 00 01 00" + " 00 02 'aa' 00" * 40, "a2 LL 00 01 00" + " 00 02 'aa'" * 40,
])
def test_answer_to_more_filters_than_the_client_takes_is_not_sent(connect, request_):
    """SUBACK and UNSUBACK have an octet for each filter, and none of them may be left out."""
    wire = connect(5, "filters", properties="27 00 00 00 28")

    wire.send(request_)

    wire.expect_refusal(0x95)


@mqtt_5("3.1.2-29")
def test_no_reason_strings_where_problem_information_was_declined(connect):
    wire = connect(5, "noproblem", properties="17 00")

    wire.send(
        "32 LL 00 09 'noproblem' 00 01 00 'x'", "34 LL 00 09 'noproblem' 00 02 00 'x'", "62 02 00 63",
        "82 LL 00 03 00 00 03 'a/b' 00", "a2 LL 00 04 00 00 01 'b'", "c0 00",
    )

    while (packet := wire.packet())[0] != 0xD0:
        if packet[0] in (0x90, 0xB0):
            assert packet[4] == 0, "SUBACK and UNSUBACK without properties"
        else:
            assert len(packet) <= 5 or packet[5] == 0, packet.hex(" ")


@mqtt_5("3.1.2-26", "3.1.2-27", "3.3.2-11")
@pytest.mark.parametrize("maximum", [None, 0, 1, 3])
def test_topic_aliases_of_deliveries_stay_within_the_maximum(connect, maximum):
    properties = "" if maximum is None else f"22 00 {maximum:02x}"
    wire = connect(5, f"ta{maximum}", properties=properties)
    wire.ask("82 LL 00 01 00 00 04 'ta/+' 00", "90 LL 00 01 00 00")
    sender = connect(5, f"tas{maximum}")

    sent = [f"ta/{number % 5}" for number in range(20)]
    sender.send(*(f"30 LL 00 04 '{topic}' 00 'x'" for topic in sent))

    aliases: dict = {}
    received = []
    for _ in sent:
        packet = wire.packet()
        size = int.from_bytes(packet[2:4], "big")
        topic = packet[4:4 + size].decode()
        alias = dict(publish_properties(packet)).get(0x23)
        if alias is not None:
            assert maximum and 0 < alias <= maximum
            if topic:
                aliases[alias] = topic
        received.append(topic or aliases[alias])
    assert received == sent


@mqtt_5("3.2.2-8", "3.2.2-22")
def test_connack_tells_nothing_that_its_table_does_not_have(connect):
    properties = connack_properties(connect(5, "table", keep_alive=60).connected)

    allowed = {
        0x11, 0x21, 0x24, 0x25, 0x27, 0x12, 0x22, 0x1F, 0x26, 0x28, 0x29, 0x2A, 0x13, 0x1A, 0x1C, 0x15, 0x16}
    assert set(properties) <= allowed
    assert properties.get(0x24, 0) in (0, 1) and properties.get(0x21, 1) > 0 and properties.get(0x27, 1) > 0
