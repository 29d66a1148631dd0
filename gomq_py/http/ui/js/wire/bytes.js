// Octets to send and octets received, network order, for the two small clients of this folder.

export class WireError extends Error {
    constructor(text) {
        super(text);
        this.name = "WireError";
    }
}

const UTF8 = new TextEncoder();

export function utf8(text) {
    return UTF8.encode(text);
}

/** Grows as it is written to. */
export class Writer {
    constructor() {
        this.octets = new Uint8Array(256);
        this.view = new DataView(this.octets.buffer);
        this.length = 0;
    }

    room(count) {
        const at = this.length;
        this.length += count;
        if (this.length > this.octets.length) {
            const larger = new Uint8Array(Math.max(this.length, 2 * this.octets.length));
            larger.set(this.octets.subarray(0, at));
            this.octets = larger;
            this.view = new DataView(larger.buffer);
        }
        return at;
    }

    u8(value) {
        this.view.setUint8(this.room(1), value);
        return this;
    }

    u16(value) {
        this.view.setUint16(this.room(2), value);
        return this;
    }

    u32(value) {
        this.view.setUint32(this.room(4), value);
        return this;
    }

    u64(value) {
        this.view.setBigUint64(this.room(8), BigInt(value));
        return this;
    }

    raw(octets) {
        const at = this.room(octets.length);
        this.octets.set(octets, at);
        return this;
    }

    /** A length of one, two or four octets, and the octets. */
    sized(octets, width) {
        if (octets.length >= 2 ** (8 * width)) {
            throw new WireError(`${octets.length} bytes where ${2 ** (8 * width) - 1} are the most`);
        }
        this[`u${8 * width}`](octets.length);
        return this.raw(octets);
    }

    text(text, width) {
        return this.sized(utf8(text), width);
    }

    done() {
        return this.octets.slice(0, this.length);
    }
}

/** Reads, and never beyond the end. */
export class Reader {
    constructor(octets) {
        this.octets = octets;
        this.view = new DataView(octets.buffer, octets.byteOffset, octets.byteLength);
        this.at = 0;
    }

    get left() {
        return this.octets.length - this.at;
    }

    pass(count) {
        if (count > this.left) {
            throw new WireError("the broker's answer ends within a field");
        }
        const begin = this.at;
        this.at += count;
        return begin;
    }

    u8() {
        return this.view.getUint8(this.pass(1));
    }

    u16() {
        return this.view.getUint16(this.pass(2));
    }

    u32() {
        return this.view.getUint32(this.pass(4));
    }

    u64() {
        return this.view.getBigUint64(this.pass(8));
    }

    raw(count) {
        const begin = this.pass(count);
        return this.octets.subarray(begin, this.at);
    }

    sized(width) {
        return this.raw(this[`u${8 * width}`]());
    }

    text(width) {
        return new TextDecoder().decode(this.sized(width));
    }
}

/** Takes pieces as they come and gives whole frames: `size(octets)` tells how long the first frame is, counted
 * from its first octet, or 0 while too little has come to tell. */
export class Frames {
    constructor(size, most) {
        this.size = size;
        this.most = most;
        this.rest = new Uint8Array(0);
    }

    *feed(piece) {
        let octets = piece;
        if (this.rest.length) {
            octets = new Uint8Array(this.rest.length + piece.length);
            octets.set(this.rest);
            octets.set(piece, this.rest.length);
        }
        let at = 0;
        for (;;) {
            const size = this.size(octets.subarray(at));
            if (size > this.most) {
                throw new WireError(`a frame of ${size} bytes: more than ${this.most}`);
            }
            if (!size || size > octets.length - at) {
                break;
            }
            yield octets.subarray(at, at + size);
            at += size;
        }
        this.rest = octets.slice(at);
    }
}
