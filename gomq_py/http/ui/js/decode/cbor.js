// CBOR (RFC 8949): all major types, indefinite lengths, half floats, large numbers of tags 2 and 3.

import {DecodeError, Marked, Reader, small} from "./values.js";

const BREAK = Symbol("break");
const BREAK_OCTET = 0xff;
const INDEFINITE = 31;
// Digits of a large number are made in time that grows with their square.
const MAX_BIGNUM_OCTETS = 1024;
const SELF_DESCRIBED = 55799;

/** The one value of these octets. Throws DecodeError. */
export function decodeCbor(octets) {
    const reader = new CborReader(octets);
    const value = reader.item();
    reader.input.checkEnd();
    return value;
}

class CborReader extends Reader {
    item() {
        const value = this.itemOrBreak();
        if (value === BREAK) {
            throw new DecodeError("a break where nothing of an indefinite length is open");
        }
        return value;
    }

    itemOrBreak() {
        const first = this.input.unsigned(1);
        const major = first >> 5, info = first & 0x1f;
        if (first === BREAK_OCTET) {
            return BREAK;
        }
        if (major === 7) {
            return this.simple(info);
        }
        if (info === INDEFINITE) {
            return this.indefinite(major);
        }
        const count = this.count(info);
        switch (major) {
        case 0: return count;
        case 1: return typeof count === "bigint" ? -1n - count : small(-1n - BigInt(count));
        case 2: return this.input.take(count);
        case 3: return this.input.text(count);
        case 4: return this.list(count);
        case 5: return this.map(count);
        default: return this.tagged(count);
        }
    }

    count(info) {
        if (info < 24) {
            return info;
        }
        if (info > 27) {
            throw new DecodeError(`${info} is no length in CBOR`);
        }
        return this.input.unsigned(1 << (info - 24));
    }

    indefinite(major) {
        this.bounds.enter();
        const parts = [];
        for (let part = this.part(major); part !== BREAK; part = this.part(major)) {
            this.bounds.add(1);
            parts.push(part);
        }
        this.bounds.leave();
        switch (major) {
        case 2: return joined(parts);
        case 3: return parts.join("");
        case 4: return parts;
        case 5: return pairs(parts);
        default: throw new DecodeError(`nothing of major type ${major} has an indefinite length`);
        }
    }

    /** One part of an indefinite length: a string's are strings of its own kind, of a definite length. */
    part(major) {
        if (major === 2 || major === 3) {
            const next = this.input.left ? this.input.octets[this.input.at] : 0;
            if (next !== BREAK_OCTET && (next >> 5 !== major || (next & 0x1f) === INDEFINITE)) {
                throw new DecodeError(`a part of a string is of another kind, at byte ${this.input.at}`);
            }
        }
        return this.itemOrBreak();
    }

    tagged(tag) {
        this.bounds.enter();
        this.bounds.add(1);
        const value = this.item();
        this.bounds.leave();
        if ((tag === 2 || tag === 3) && value instanceof Uint8Array && value.length <= MAX_BIGNUM_OCTETS) {
            const number = value.reduce((sum, octet) => sum << 8n | BigInt(octet), 0n);
            return small(tag === 2 ? number : -1n - number);
        }
        return tag === SELF_DESCRIBED ? value : new Marked(`tag ${tag}`, value);
    }

    simple(info) {
        switch (info) {
        case 20: return false;
        case 21: return true;
        case 22: return null;
        case 23: return undefined;
        case 24: return this.longSimple();
        case 25: return half(this.input.unsigned(2));
        case 26: return this.input.float(4);
        case 27: return this.input.float(8);
        default:
            if (info > 27) {
                throw new DecodeError(`${info} is no simple value in CBOR`);
            }
            return new Marked("simple", info);
        }
    }

    longSimple() {
        const number = this.input.unsigned(1);
        if (number < 32) {
            throw new DecodeError(`the simple value ${number} is written in two bytes`);
        }
        return new Marked("simple", number);
    }
}

function half(bits) {
    const exponent = bits >> 10 & 0x1f, fraction = bits & 0x3ff, sign = bits & 0x8000 ? -1 : 1;
    if (exponent === 0) {
        return sign * fraction * 2 ** -24;
    }
    if (exponent === 31) {
        return fraction ? NaN : sign * Infinity;
    }
    return sign * (1024 + fraction) * 2 ** (exponent - 25);
}

function joined(parts) {
    const whole = new Uint8Array(parts.reduce((sum, part) => sum + part.length, 0));
    let at = 0;
    for (const part of parts) {
        whole.set(part, at);
        at += part.length;
    }
    return whole;
}

function pairs(parts) {
    if (parts.length % 2) {
        throw new DecodeError("a map ends behind a key");
    }
    const map = new Map();
    for (let at = 0; at < parts.length; at += 2) {
        map.set(parts[at], parts[at + 1]);
    }
    return map;
}
