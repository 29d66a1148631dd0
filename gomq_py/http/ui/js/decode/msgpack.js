// MessagePack, its specification of 2017: all formats, the timestamp extension too.

import {DecodeError, Marked, Reader, small} from "./values.js";

const TIMESTAMP = -1;
// What a Date can hold.
const MAX_DATE_S = 8.64e12;

/** The one value of these octets. Throws DecodeError. */
export function decodeMsgpack(octets) {
    const reader = new MsgpackReader(octets);
    const value = reader.item();
    reader.input.checkEnd();
    return value;
}

class MsgpackReader extends Reader {
    item() {
        const input = this.input;
        const first = input.unsigned(1);
        if (first <= 0x7f) {
            return first;
        }
        if (first >= 0xe0) {
            return first - 0x100;
        }
        if (first <= 0x8f) {
            return this.map(first & 0x0f);
        }
        if (first <= 0x9f) {
            return this.list(first & 0x0f);
        }
        if (first <= 0xbf) {
            return input.text(first & 0x1f);
        }
        switch (first) {
        case 0xc0: return null;
        case 0xc2: return false;
        case 0xc3: return true;
        case 0xc4: case 0xc5: case 0xc6: return input.take(input.unsigned(1 << (first - 0xc4)));
        case 0xc7: case 0xc8: case 0xc9: return this.extension(input.unsigned(1 << (first - 0xc7)));
        case 0xca: return input.float(4);
        case 0xcb: return input.float(8);
        case 0xcc: case 0xcd: case 0xce: case 0xcf: return input.unsigned(1 << (first - 0xcc));
        case 0xd0: case 0xd1: case 0xd2: case 0xd3: return input.signed(1 << (first - 0xd0));
        case 0xd4: case 0xd5: case 0xd6: case 0xd7: case 0xd8: return this.extension(1 << (first - 0xd4));
        case 0xd9: case 0xda: case 0xdb: return input.text(input.unsigned(1 << (first - 0xd9)));
        case 0xdc: case 0xdd: return this.list(input.unsigned(first === 0xdc ? 2 : 4));
        case 0xde: case 0xdf: return this.map(input.unsigned(first === 0xde ? 2 : 4));
        default: throw new DecodeError(`0x${first.toString(16)} begins nothing in MessagePack`);
        }
    }

    extension(length) {
        const type = this.input.signed(1);
        const octets = this.input.take(length);
        if (type === TIMESTAMP && (length === 4 || length === 8 || length === 12)) {
            return timestamp(new DataView(octets.buffer, octets.byteOffset, length), length);
        }
        return new Marked(`extension ${type}`, octets);
    }
}

function timestamp(view, length) {
    let seconds, nanoseconds = 0;
    if (length === 4) {
        seconds = view.getUint32(0);
    } else if (length === 8) {
        const both = view.getBigUint64(0);
        seconds = Number(both & 0x3ffffffffn);
        nanoseconds = Number(both >> 34n);
    } else {
        nanoseconds = view.getUint32(0);
        seconds = small(view.getBigInt64(4));
    }
    if (typeof seconds === "bigint" || Math.abs(seconds) > MAX_DATE_S) {
        return new Marked("timestamp", seconds);
    }
    const whole = new Date(seconds * 1000).toISOString().slice(0, -5);
    const part = nanoseconds ? "." + String(nanoseconds).padStart(9, "0").replace(/0+$/, "") : "";
    return new Marked("timestamp", `${whole}${part}Z`);
}
