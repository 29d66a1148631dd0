"""The page's AMQP and MQTT clients: their octets are those of the specifications, and a hostile broker cannot
make them read on for ever.
"""
import pytest

from tests.support.node_modules import copy_modules, run

pytestmark = pytest.mark.needs_program("node")


@pytest.fixture(scope="module")
def modules(tmp_path_factory):
    """The folder that holds the modules."""
    return copy_modules(tmp_path_factory.mktemp("modules"), "decode", "wire")


def test_properties_of_amqp_are_written_and_read(modules):
    """Octets by hand, from AMQP 0-9-1 §4.2.5 and §4.2.6."""
    told = run(modules, """
import {readProperties, writeProperties} from "./wire/amqp_fields.js";
import {Reader, Writer} from "./wire/bytes.js";
---
const written = writeProperties(new Writer(), {
    content_type: "a/b", delivery_mode: 2, timestamp: 3,
    headers: {t: true, n: -1, l: 4294967296, s: "x", f: {}, a: [null]},
}).done();
const read = readProperties(new Reader(written));
const headers = [...read.headers].map(([key, value]) => [key, value instanceof Map ? "table" : value]);
tell([hex(written), read.content_type, read.delivery_mode, read.timestamp, headers]);
""")

    assert told == [
        "b040" "03612f62" "0000002d" "017474" "01" "016e49" "ffffffff" "016c6c" "0000000100000000" "017353"
        "0000000178" "016646" "00000000" "016141" "00000001" "56" "02" "0000000000000003",
        "a/b", 2, 3, [["t", True], ["n", -1], ["l", 4294967296], ["s", "x"], ["f", "table"], ["a", [None]]]]


def test_packets_of_mqtt_are_those_of_the_specification(modules):
    told = run(modules, """
import {MqttClient} from "./wire/mqtt.js";
---
globalThis.WebSocket = {OPEN: 1};
const packets = [];
for (const version of [4, 5]) {
    const client = new MqttClient({url: "", version, clientId: "c", username: "u", password: "p"});
    client.socket = {readyState: 1, send: (sent) => packets.push(hex(sent)), close: () => {}};
    client.isOpen = true;
    packets.push(hex(client.connectPacket()));
    client.subscribe("a/#", 1).catch(() => {});
    const userProperties = version === 5 ? [["k", "v"]] : [];
    client.publish("a", octets("ff"), {qos: 1, retain: true, userProperties}).catch(() => {});
    client.close();
}
tell(packets);
""")

    assert told == [
        "1013" "00044d515454" "04" "c2" "003c" "000163" "000175" "000170", "8208" "0001" "0003612f23" "01",
        "3306" "000161" "0002" "ff", "e000",
        "1019" "00044d515454" "05" "c2" "003c" "05" "2700100000" "000163" "000175" "000170",
        "8209" "0001" "00" "0003612f23" "01",
        "330e" "000161" "0002" "07" "26" "00016b" "000176" "ff", "e000"]


def test_what_a_broker_sends_wrong_ends_the_reading(modules):
    """A frame that is too large, a table that is longer than its frame, tables in tables without an end."""
    told = run(modules, """
import {readTable} from "./wire/amqp_fields.js";
import {Frames, Reader, WireError} from "./wire/bytes.js";
---
const refused = (work) => {
    try {
        work();
        return "taken";
    } catch (error) {
        return error instanceof WireError ? error.message : String(error);
    }
};
const large = new Frames((octets) => octets.length < 4 ? 0 : 1 << 30, 1000);
let deep = octets("00000000");
for (let depth = 0; depth < 80; depth += 1) {
    const field = [1, 0x61, 0x46, ...deep];
    deep = Uint8Array.from([0, 0, field.length >> 8, field.length & 255, ...field]);
}
tell([
    refused(() => [...large.feed(octets("0000000000"))]),
    refused(() => readTable(new Reader(octets("00000009")))),
    refused(() => readTable(new Reader(octets("0000000301617a")))),
    refused(() => readTable(new Reader(deep))),
    refused(() => readTable(new Reader(octets("00000008016153ffffffff"))))
]);
""")

    assert told == [
        "a frame of 1073741824 bytes: more than 1000", "a table is longer than what holds it",
        "the field type 'z' is unknown", "a table nested deeper than 64",
        "a table is longer than what holds it"]
