// A small MQTT client over WebSocket (3.1.1 and 5), to try things from a page.
//
//     const client = new MqttClient({url, version: 5, clientId, username, password, onMessage, onClosed});
//     await client.connect();
//     await client.subscribe("sensors/#", 1);
//     await client.publish("sensors/a", octets, {qos: 1, retain: false});    // resolves once it is acknowledged
//
// Errors are WireErrors. A message beyond MAX_PACKET ends the connection: 5 tells the broker so at the login.

import {Frames, Reader, WireError, Writer} from "./bytes.js";

export const MAX_PACKET = 1024 * 1024;
const CONNECT = 1, CONNACK = 2, PUBLISH = 3, PUBACK = 4, PUBREC = 5, PUBREL = 6, PUBCOMP = 7, SUBSCRIBE = 8,
    SUBACK = 9, UNSUBSCRIBE = 10, UNSUBACK = 11, PINGREQ = 12, PINGRESP = 13, DISCONNECT = 14;
const CONNECT_MS = 15000;
const KEEP_ALIVE_S = 60;
const MAXIMUM_PACKET_SIZE = 0x27, REASON_STRING = 0x1f, USER_PROPERTY = 0x26;
// MQTT 5 §2.2.2.2: how long the value of each property is; "text" and "pair" have lengths of their own.
const PROPERTY_KINDS = {
    0x01: 1, 0x02: 4, 0x03: "text", 0x08: "text", 0x09: "binary", 0x0b: "varint", 0x11: 4, 0x12: "text", 0x13: 2,
    0x15: "text", 0x16: "binary", 0x17: 1, 0x18: 4, 0x19: 1, 0x1a: "text", 0x1c: "text", 0x1f: "text", 0x21: 2,
    0x22: 2, 0x23: 2, 0x24: 1, 0x25: 1, 0x26: "pair", 0x27: 4, 0x28: 1, 0x29: 1, 0x2a: 1,
};
const CONNACK_311 = [
    "", "this version of MQTT is not served", "this client id is not allowed", "the broker is not available",
    "wrong user or password", "this user may not connect",
];
// Of MQTT 5; what else there is is shown by its number.
const REASONS = {
    0x04: "disconnected with its will", 0x80: "unspecified error", 0x81: "malformed packet", 0x82: "protocol error",
    0x83: "implementation specific error", 0x84: "this version of MQTT is not served",
    0x85: "this client id is not allowed", 0x86: "wrong user or password", 0x87: "not authorised",
    0x88: "the broker is not available", 0x89: "the broker is busy", 0x8a: "banned", 0x8b: "the broker shuts down",
    0x8d: "keep alive timed out", 0x8e: "another client with this id has connected", 0x8f: "bad topic filter",
    0x90: "bad topic name", 0x93: "too many unacknowledged messages", 0x95: "packet too large",
    0x96: "too many messages", 0x97: "quota exceeded", 0x98: "closed by an operator", 0x99: "payload format",
    0x9a: "retained messages are not served", 0x9b: "this QoS is not served", 0x9f: "too many connections",
};

export class MqttClient {
    constructor({url, version = 5, clientId, username, password, onMessage, onClosed}) {
        this.settings = {url, version, clientId, username, password};
        this.on = {message: onMessage ?? (() => {}), closed: onClosed ?? (() => {})};
        this.socket = null;
        this.waiting = new Map();   // packet identifier, or "connect": {resolve, reject}
        this.received = new Set();  // packet identifiers of QoS 2 that were handed over
        this.identifier = 0;
        this.isOpen = false;
    }

    async connect() {
        const socket = this.socket = new WebSocket(this.settings.url, ["mqtt"]);
        const frames = new Frames(packetSize, MAX_PACKET);
        socket.binaryType = "arraybuffer";
        socket.onmessage = ({data}) => this.came(frames, data);
        socket.onclose = ({reason}) => this.end(reason || "the broker closed the connection");
        const timer = setTimeout(() => this.end("no answer"), CONNECT_MS);
        socket.onopen = () => socket.send(this.connectPacket());
        try {
            await this.wait("connect");
        } finally {
            clearTimeout(timer);
        }
        this.isOpen = true;
        this.pings = setInterval(() => this.send(PINGREQ, 0, new Writer()), KEEP_ALIVE_S * 500);
    }

    /** The QoS that was granted. */
    async subscribe(filter, qos) {
        const answer = await this.ask(SUBSCRIBE, 2, (writer) => writer.text(filter, 2).u8(qos));
        const granted = answer.octets[answer.octets.length - 1];
        if (granted >= 0x80) {
            throw new WireError(this.reasonOf(granted));
        }
        return granted;
    }

    async unsubscribe(filter) {
        await this.ask(UNSUBSCRIBE, 2, (writer) => writer.text(filter, 2));
    }

    /** Resolves at once with QoS 0, else with the broker's answer. */
    async publish(topic, payload, {qos = 0, retain = false, userProperties = []} = {}) {
        this.checkOpen();
        const writer = new Writer().text(topic, 2);
        let answer = null;
        if (qos) {
            const identifier = this.nextIdentifier();
            writer.u16(identifier);
            answer = this.wait(identifier);
        }
        if (this.settings.version === 5) {
            const properties = new Writer();
            for (const [name, value] of userProperties) {
                properties.u8(USER_PROPERTY).text(name, 2).text(value, 2);
            }
            varint(writer, properties.length).raw(properties.done());
        }
        this.send(PUBLISH, qos << 1 | (retain ? 1 : 0), writer.raw(payload));
        await answer;
    }

    close() {
        if (this.isOpen) {
            this.send(DISCONNECT, 0, new Writer());
        }
        this.end("closed");
    }

    // what goes

    connectPacket() {
        const {version, clientId, username, password} = this.settings;
        const writer = new Writer().text("MQTT", 2).u8(version === 5 ? 5 : 4);
        writer.u8(0x02 | (username ? 0x80 : 0) | (password ? 0x40 : 0)).u16(KEEP_ALIVE_S);
        if (version === 5) {
            writer.u8(5).u8(MAXIMUM_PACKET_SIZE).u32(MAX_PACKET);
        }
        writer.text(clientId, 2);
        if (username) {
            writer.text(username, 2);
        }
        if (password) {
            writer.text(password, 2);
        }
        return packet(CONNECT, 0, writer);
    }

    async ask(type, flags, write) {
        this.checkOpen();
        const identifier = this.nextIdentifier();
        const writer = new Writer().u16(identifier);
        if (this.settings.version === 5) {
            writer.u8(0);
        }
        write(writer);
        const answer = this.wait(identifier);
        this.send(type, flags, writer);
        return answer;
    }

    wait(key) {
        return new Promise((resolve, reject) => this.waiting.set(key, {resolve, reject}));
    }

    nextIdentifier() {
        do {
            this.identifier = this.identifier % 0xffff + 1;
        } while (this.waiting.has(this.identifier));
        return this.identifier;
    }

    send(type, flags, writer) {
        if (this.socket.readyState === WebSocket.OPEN) {
            this.socket.send(packet(type, flags, writer));
        }
    }

    checkOpen() {
        if (!this.isOpen) {
            throw new WireError("not connected");
        }
    }

    // what comes

    came(frames, data) {
        try {
            for (const octets of frames.feed(new Uint8Array(data))) {
                this.packetCame(octets);
            }
        } catch (error) {
            if (!(error instanceof WireError)) {
                throw error;
            }
            this.end(error.message);
        }
    }

    packetCame(octets) {
        const reader = new Reader(octets);
        const first = reader.u8();
        readVarint(reader);
        switch (first >> 4) {
        case CONNACK: this.connected(reader); break;
        case PUBLISH: this.published(first & 0x0f, reader); break;
        case PUBACK: case PUBCOMP: this.acknowledged(reader); break;
        case PUBREC: this.receivedThere(reader); break;
        case PUBREL: this.released(reader.u16()); break;
        case SUBACK: case UNSUBACK: this.settle(reader.u16(), null, reader); break;
        case PINGRESP: break;
        case DISCONNECT: this.end(this.toldReason(reader, "the broker disconnected")); break;
        default: throw new WireError(`unexpected packet of type ${first >> 4}`);
        }
    }

    connected(reader) {
        reader.u8();
        const code = reader.u8();
        if (code) {
            const {version} = this.settings;
            this.end(version === 5 ? this.reasonOf(code) : CONNACK_311[code] ?? `refused: ${code}`);
        } else {
            this.settle("connect", null, reader);
        }
    }

    published(flags, reader) {
        const qos = flags >> 1 & 3;
        const topic = reader.text(2);
        const identifier = qos ? reader.u16() : 0;
        const userProperties = this.settings.version === 5 ? readProperties(reader).userProperties : [];
        const message = {
            topic, qos, retain: (flags & 1) === 1, duplicate: (flags & 8) === 8, userProperties,
            payload: reader.raw(reader.left).slice(),
        };
        if (qos < 2 || !this.received.has(identifier)) {
            this.on.message(message);
        }
        if (qos === 2) {
            this.received.add(identifier);
        }
        if (qos) {
            this.send(qos === 1 ? PUBACK : PUBREC, 0, new Writer().u16(identifier));
        }
    }

    released(identifier) {
        this.received.delete(identifier);
        this.send(PUBCOMP, 0, new Writer().u16(identifier));
    }

    receivedThere(reader) {
        const identifier = reader.u16();
        const code = reader.left ? reader.u8() : 0;
        if (code >= 0x80) {
            this.settle(identifier, this.reasonOf(code));
        } else {
            this.send(PUBREL, 2, new Writer().u16(identifier));
        }
    }

    acknowledged(reader) {
        const identifier = reader.u16();
        const code = reader.left ? reader.u8() : 0;
        this.settle(identifier, code >= 0x80 ? this.reasonOf(code) : null, reader);
    }

    toldReason(reader, usual) {
        if (!reader.left) {
            return usual;
        }
        const reason = this.reasonOf(reader.u8());
        const told = reader.left ? readProperties(reader).reason : "";
        return told ? `${reason}: ${told}` : reason;
    }

    reasonOf(code) {
        return REASONS[code] ?? `refused: 0x${code.toString(16)}`;
    }

    settle(key, refusal, answer) {
        const waiting = this.waiting.get(key);
        this.waiting.delete(key);
        refusal === null ? waiting?.resolve(answer) : waiting?.reject(new WireError(refusal));
    }

    end(reason) {
        if (this.ended) {
            return;
        }
        this.ended = true;
        const wasOpen = this.isOpen;
        this.isOpen = false;
        clearInterval(this.pings);
        for (const key of [...this.waiting.keys()]) {
            this.settle(key, reason);
        }
        this.socket.close();
        if (wasOpen) {
            this.on.closed(reason);
        }
    }
}

function packet(type, flags, writer) {
    const head = new Writer().u8(type << 4 | flags);
    return varint(head, writer.length).raw(writer.done()).done();
}

function varint(writer, value) {
    let left = value;
    do {
        writer.u8(left & 0x7f | (left > 0x7f ? 0x80 : 0));
        left >>= 7;
    } while (left);
    return writer;
}

function readVarint(reader) {
    let value = 0;
    for (let shift = 0; shift < 28; shift += 7) {
        const octet = reader.u8();
        value |= (octet & 0x7f) << shift;
        if (!(octet & 0x80)) {
            return value;
        }
    }
    throw new WireError("a length of more than four bytes");
}

function packetSize(octets) {
    for (let at = 1; at < Math.min(octets.length, 5); at += 1) {
        if (!(octets[at] & 0x80)) {
            const reader = new Reader(octets);
            reader.u8();
            return readVarint(reader) + at + 1;
        }
    }
    if (octets.length >= 5) {
        throw new WireError("a length of more than four bytes");
    }
    return 0;
}

function readProperties(reader) {
    const length = readVarint(reader);
    const inner = new Reader(reader.raw(length));
    const userProperties = [];
    let reason = "";
    while (inner.left) {
        const property = inner.u8();
        const kind = PROPERTY_KINDS[property];
        switch (kind) {
        case "text": {
            const text = inner.text(2);
            reason = property === REASON_STRING ? text : reason;
            break;
        }
        case "binary": inner.sized(2); break;
        case "varint": readVarint(inner); break;
        case "pair": userProperties.push([inner.text(2), inner.text(2)]); break;
        case undefined: throw new WireError(`the property ${property} is unknown`);
        default: inner.raw(kind);
        }
    }
    return {userProperties, reason};
}
