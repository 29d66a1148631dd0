// A small AMQP 0-9-1 client over WebSocket, to try things from a page: one connection, one channel.
//
//     const client = new AmqpClient({url, username, password, vhost, onDelivery, onReturn, onClosed});
//     await client.connect();
//     await client.publish("amq.topic", "a.b", {content_type: "text/plain"}, octets);   // resolves when confirmed
//     const tag = await client.consume(await client.temporaryQueue("amq.topic", "a.#"));
//
// Errors are WireErrors with the broker's words. Bodies beyond MAX_BODY are cut, and say how long they were.

import {readProperties, readTable, writeProperties, writeTable} from "./amqp_fields.js";
import {Frames, Reader, utf8, WireError, Writer} from "./bytes.js";

export const MAX_BODY = 1024 * 1024;
export const PROTOCOL_HEADER = Uint8Array.of(0x41, 0x4d, 0x51, 0x50, 0, 0, 9, 1);
const METHOD = 1, HEADER = 2, BODY = 3, HEARTBEAT = 8, FRAME_END = 0xce;
const FRAME_MAX = 131072;
const CONNECT_MS = 15000;

// Class and method in one number.
const id = (cls, method) => cls << 16 | method;
const M = {
    START: id(10, 10), START_OK: id(10, 11), TUNE: id(10, 30), TUNE_OK: id(10, 31), OPEN: id(10, 40),
    OPEN_OK: id(10, 41), CLOSE: id(10, 50), CLOSE_OK: id(10, 51), BLOCKED: id(10, 60), UNBLOCKED: id(10, 61),
    CHANNEL_OPEN: id(20, 10), CHANNEL_OPEN_OK: id(20, 11), CHANNEL_CLOSE: id(20, 40),
    CHANNEL_CLOSE_OK: id(20, 41), QUEUE_DECLARE: id(50, 10), QUEUE_DECLARE_OK: id(50, 11),
    QUEUE_BIND: id(50, 20), QUEUE_BIND_OK: id(50, 21), QOS: id(60, 10), QOS_OK: id(60, 11),
    CONSUME: id(60, 20), CONSUME_OK: id(60, 21), CANCEL: id(60, 30), CANCEL_OK: id(60, 31),
    PUBLISH: id(60, 40), RETURN: id(60, 50), DELIVER: id(60, 60), ACK: id(60, 80), REJECT: id(60, 90),
    NACK: id(60, 120), SELECT: id(85, 10), SELECT_OK: id(85, 11),
};

export class AmqpClient {
    constructor({url, username, password, vhost = "/", onDelivery, onReturn, onClosed, onBlocked}) {
        this.settings = {url, username, password, vhost};
        this.on = {
            delivery: onDelivery ?? (() => {}), returned: onReturn ?? (() => {}), closed: onClosed ?? (() => {}),
            blocked: onBlocked ?? (() => {}),
        };
        this.socket = null;
        this.waiting = [];         // of requests that were sent: {expected, resolve, reject}, the oldest first
        this.unconfirmed = new Map();  // number: {resolve, reject}
        this.published = 0;
        this.content = null;       // what the frames of a message have brought so far
        this.frameMax = 4096;
        this.heartbeat = null;
        this.isOpen = false;
        this.hasChannel = false;
    }

    /** Logs in and opens the channel, with confirms. */
    async connect() {
        const tuned = new Promise((resolve, reject) => this.waiting.push({expected: M.TUNE, resolve, reject}));
        const socket = this.socket = new WebSocket(this.settings.url, ["amqp"]);
        const frames = new Frames(frameSize, FRAME_MAX + 8);
        socket.binaryType = "arraybuffer";
        socket.onopen = () => socket.send(PROTOCOL_HEADER);
        socket.onmessage = ({data}) => this.received(frames, data);
        socket.onclose = ({reason}) => this.end(reason || "the broker closed the connection");
        const timer = setTimeout(() => this.fail("no answer"), CONNECT_MS);
        try {
            const tune = await tuned;
            this.tune(tune);
            await this.ask(0, M.OPEN, (writer) => writer.text(this.settings.vhost, 1).u8(0).u8(0), M.OPEN_OK);
            this.isOpen = true;
            await this.openChannel();
        } finally {
            clearTimeout(timer);
        }
    }

    async openChannel() {
        await this.ask(1, M.CHANNEL_OPEN, (writer) => writer.u8(0), M.CHANNEL_OPEN_OK);
        this.hasChannel = true;
        this.published = 0;
        await this.ask(1, M.SELECT, (writer) => writer.u8(0), M.SELECT_OK);
    }

    /** A queue of this connection alone, bound to an exchange: its name. */
    async temporaryQueue(exchange, routingKey, bindArguments = {}) {
        const declared = await this.ask(1, M.QUEUE_DECLARE, (writer) => {
            writeTable(writer.u16(0).text("", 1).u8(0b01100), {});  // exclusive, auto-delete
        }, M.QUEUE_DECLARE_OK);
        const name = declared.text(1);
        await this.ask(1, M.QUEUE_BIND, (writer) => {
            writer.u16(0).text(name, 1).text(exchange, 1).text(routingKey, 1).u8(0);
            writeTable(writer, bindArguments);
        }, M.QUEUE_BIND_OK);
        return name;
    }

    /** Begins to consume, with acknowledgement unless `noAck`: the consumer's tag. */
    async consume(queue, {prefetch = 10, noAck = false, consumeArguments = {}} = {}) {
        await this.ask(1, M.QOS, (writer) => writer.u32(0).u16(prefetch).u8(0), M.QOS_OK);
        const ok = await this.ask(1, M.CONSUME, (writer) => {
            writer.u16(0).text(queue, 1).text("", 1).u8(noAck ? 0b0010 : 0);
            writeTable(writer, consumeArguments);
        }, M.CONSUME_OK);
        return ok.text(1);
    }

    async cancel(tag) {
        await this.ask(1, M.CANCEL, (writer) => writer.text(tag, 1).u8(0), M.CANCEL_OK);
    }

    ack(deliveryTag) {
        this.method(1, M.ACK, (writer) => writer.u64(deliveryTag).u8(0));
    }

    reject(deliveryTag, requeue) {
        this.method(1, M.REJECT, (writer) => writer.u64(deliveryTag).u8(requeue ? 1 : 0));
    }

    /** Resolves once the broker has confirmed it; rejects where it was refused. */
    publish(exchange, routingKey, properties, body, {mandatory = false} = {}) {
        this.checkChannel();
        const header = new Writer().u16(60).u16(0).u64(body.length);
        writeProperties(header, properties);
        const method = new Writer().u32(M.PUBLISH).u16(0).text(exchange, 1).text(routingKey, 1);
        this.frame(METHOD, 1, method.u8(mandatory ? 1 : 0).done());
        this.frame(HEADER, 1, header.done());
        const most = this.frameMax - 8;
        for (let at = 0; at < body.length; at += most) {
            this.frame(BODY, 1, body.subarray(at, at + most));
        }
        this.published += 1;
        return new Promise((resolve, reject) => this.unconfirmed.set(this.published, {resolve, reject}));
    }

    async close() {
        if (this.isOpen) {
            const close = (writer) => writer.u16(200).text("closed by the page", 1).u16(0).u16(0);
            await this.ask(0, M.CLOSE, close, M.CLOSE_OK).catch(() => {});
        }
        this.end("closed");
    }

    // what comes

    received(frames, data) {
        try {
            for (const octets of frames.feed(new Uint8Array(data))) {
                this.frameCame(octets);
            }
        } catch (error) {
            if (!(error instanceof WireError)) {
                throw error;
            }
            this.fail(error.message);
        }
    }

    frameCame(octets) {
        if (octets[0] === 0x41) {
            throw new WireError("the broker speaks another version of AMQP");
        }
        if (octets[octets.length - 1] !== FRAME_END) {
            throw new WireError("a frame has no end");
        }
        const reader = new Reader(octets.subarray(0, octets.length - 1));
        const type = reader.u8();
        reader.raw(6);
        if (type === METHOD) {
            this.methodCame(reader.u32(), reader);
        } else if (type === HEADER) {
            this.headerCame(reader);
        } else if (type === BODY) {
            this.bodyCame(reader.raw(reader.left));
        }
    }

    methodCame(method, reader) {
        switch (method) {
        case M.START: this.started(reader); break;
        case M.CLOSE: this.method(0, M.CLOSE_OK); this.fail(closeReason(reader)); break;
        case M.CHANNEL_CLOSE: this.channelClosed(closeReason(reader)); break;
        case M.CANCEL: this.on.closed(`the broker cancelled the consumer ${reader.text(1)}`, true); break;
        case M.BLOCKED: this.on.blocked(reader.text(1)); break;
        case M.UNBLOCKED: this.on.blocked(""); break;
        case M.ACK: this.confirmed(Number(reader.u64()), reader.u8() & 1, null); break;
        case M.NACK: this.confirmed(Number(reader.u64()), reader.u8() & 1, "the broker refused it"); break;
        case M.DELIVER:
            this.content = {
                consumerTag: reader.text(1), deliveryTag: reader.u64(), redelivered: reader.u8() === 1,
                exchange: reader.text(1), routingKey: reader.text(1), isReturn: false,
            };
            break;
        case M.RETURN:
            this.content = {
                replyCode: reader.u16(), replyText: reader.text(1), exchange: reader.text(1),
                routingKey: reader.text(1), isReturn: true,
            };
            break;
        default: this.answered(method, reader);
        }
    }

    started(reader) {
        reader.raw(2);
        readTable(reader);
        if (!reader.text(4).split(" ").includes("PLAIN")) {
            throw new WireError("the broker takes no passwords here");
        }
        const {username, password} = this.settings;
        this.method(0, M.START_OK, (writer) => {
            const capabilities = {
                "basic.nack": true, publisher_confirms: true, consumer_cancel_notify: true,
                authentication_failure_close: true, "connection.blocked": true,
            };
            writeTable(writer, {product: "gomq-py page", connection_name: "management page", capabilities});
            writer.text("PLAIN", 1).sized(utf8(`\0${username}\0${password}`), 4).text("en_US", 1);
        });
    }

    tune(reader) {
        reader.u16();
        const frameMax = reader.u32();
        const heartbeat = reader.u16();
        this.frameMax = Math.min(frameMax || FRAME_MAX, FRAME_MAX);
        this.method(0, M.TUNE_OK, (writer) => writer.u16(1).u32(this.frameMax).u16(heartbeat));
        if (heartbeat) {
            this.heartbeat = setInterval(() => this.frame(HEARTBEAT, 0, new Uint8Array(0)), heartbeat * 500);
        }
    }

    answered(method, reader) {
        const next = this.waiting[0];
        if (!next || next.expected !== method) {
            throw new WireError(`unexpected method ${method >> 16}.${method & 0xffff}`);
        }
        this.waiting.shift();
        next.resolve(reader);
    }

    confirmed(number, multiple, refusal) {
        for (const [each, {resolve, reject}] of this.unconfirmed) {
            if (each === number || multiple && each < number) {
                this.unconfirmed.delete(each);
                refusal ? reject(new WireError(refusal)) : resolve();
            }
        }
    }

    headerCame(reader) {
        if (!this.content) {
            throw new WireError("a message's header without its method");
        }
        reader.raw(4);
        const size = Number(reader.u64());
        Object.assign(this.content, {
            size, left: size, properties: readProperties(reader), body: new Uint8Array(Math.min(size, MAX_BODY)),
        });
        this.handOver();
    }

    bodyCame(octets) {
        const {content} = this;
        if (!content || octets.length > content.left) {
            throw new WireError("more of a body than was announced");
        }
        const at = content.size - content.left;
        if (at < MAX_BODY) {
            content.body.set(octets.subarray(0, MAX_BODY - at), at);
        }
        content.left -= octets.length;
        this.handOver();
    }

    handOver() {
        const {content} = this;
        if (content.left === 0) {
            this.content = null;
            (content.isReturn ? this.on.returned : this.on.delivery)(content);
        }
    }

    channelClosed(reason) {
        this.method(1, M.CHANNEL_CLOSE_OK);
        this.hasChannel = false;
        this.content = null;
        this.refuseAll(reason);
        this.on.closed(reason, true);
    }

    // what goes

    ask(channel, method, write, expected) {
        if (channel && method !== M.CHANNEL_OPEN) {
            this.checkChannel();
        }
        return new Promise((resolve, reject) => {
            this.method(channel, method, write);
            this.waiting.push({expected, resolve, reject});
        });
    }

    checkChannel() {
        if (!this.hasChannel) {
            throw new WireError("the channel is closed");
        }
    }

    method(channel, method, write) {
        const writer = new Writer().u32(method);
        write?.(writer);
        this.frame(METHOD, channel, writer.done());
    }

    frame(type, channel, payload) {
        if (this.socket.readyState === WebSocket.OPEN) {
            this.socket.send(new Writer().u8(type).u16(channel).sized(payload, 4).u8(FRAME_END).done());
        }
    }

    fail(reason) {
        this.end(reason);
        this.socket.close();
    }

    end(reason) {
        if (this.ended) {
            return;
        }
        this.ended = true;
        const wasOpen = this.isOpen;
        this.isOpen = this.hasChannel = false;
        clearInterval(this.heartbeat);
        this.refuseAll(reason);
        this.socket.close();
        if (wasOpen) {
            this.on.closed(reason, false);
        }
    }

    refuseAll(reason) {
        const refused = [...this.waiting.splice(0), ...this.unconfirmed.values()];
        this.unconfirmed.clear();
        refused.forEach(({reject}) => reject(new WireError(reason)));
    }
}

function frameSize(octets) {
    if (octets.length < 8) {
        return 0;
    }
    // An AMQP header in place of a frame: this is how a broker refuses a version.
    return octets[0] === 0x41 ? 8 : new DataView(octets.buffer, octets.byteOffset).getUint32(3) + 8;
}

function closeReason(reader) {
    const code = reader.u16();
    return `${code} ${reader.text(1)}`;
}
